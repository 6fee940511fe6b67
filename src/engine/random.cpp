#include "caravan/engine/random.h"

namespace caravan::engine {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53U;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kKeyStep0 = 0x9E3779B9U;
constexpr std::uint32_t kKeyStep1 = 0xBB67AE85U;
constexpr int kRounds = 10;

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key[0] += kKeyStep0;
    key[1] += kKeyStep1;
  }
  return counter;
}

double uniform_draw(std::uint64_t seed, const DrawPlace& place) {
  const auto position = static_cast<std::uint64_t>(place.position);
  const auto choice = static_cast<std::uint64_t>(place.choice);
  const auto prompt = static_cast<std::uint64_t>(place.prompt);
  const auto bits = philox4x32({low(position), high(position), low(choice), low(prompt)},
                               {low(seed), high(seed)});
  const std::uint64_t word = (std::uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace caravan::engine
