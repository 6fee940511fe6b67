#pragma once
// Random numbers that depend on what they are for and on nothing that happened before: a counter is
// enciphered, there is no state.
//
// So a draw does not depend on batch mates, on the order of steps or on a restart.

#include <array>
#include <cstdint>

namespace caravan::engine {

/// Philox4x32 with 10 rounds: 128 pseudo-random bits of (counter, key).
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 4.3.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key);

/// Which token of a request a draw is for.
struct DrawPlace {
  std::int64_t prompt = 0;    // among those that share a seed; below 2^32, as is the choice
  std::int64_t choice = 0;    // which of its n samples
  std::int64_t position = 0;  // of the token among the generated ones
};

/// The draw for one token: uniform in [0, 1), a multiple of 2^-53.
double uniform_draw(std::uint64_t seed, const DrawPlace& place);

}  // namespace caravan::engine
