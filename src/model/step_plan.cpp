#include "caravan/model/step_plan.h"

#include <cstring>
#include <type_traits>

#include "caravan/core/error.h"

namespace caravan::model {
namespace {

template <typename T>
void put(std::vector<std::byte>& out, const T* data, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + count * sizeof(T));
}

template <typename T>
void put_vector(std::vector<std::byte>& out, const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  put(out, &count, 1);
  put(out, values.data(), values.size());
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T value() {
    T result{};
    take(&result, 1);
    return result;
  }
  template <typename T>
  std::vector<T> vector() {
    const auto count = value<std::int64_t>();
    CARAVAN_ASSERT(count >= 0 && static_cast<std::size_t>(count) <= bytes_.size() / sizeof(T),
                   "step plan: {} elements announced, {} bytes left", count, bytes_.size());
    std::vector<T> result(static_cast<std::size_t>(count));
    take(result.data(), result.size());
    return result;
  }
  bool done() const { return bytes_.empty(); }

 private:
  template <typename T>
  void take(T* target, std::size_t count) {
    const std::size_t size = count * sizeof(T);
    CARAVAN_ASSERT(size <= bytes_.size(), "step plan ends early: {} bytes needed, {} left", size,
                   bytes_.size());
    if (size > 0) std::memcpy(target, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> StepPlan::serialize() const {
  std::vector<std::byte> out;
  out.reserve(256 + 8 * tokens.size() + sizeof(Segment) * segments.size() + 4 * blocks.size() +
              pixels.size() + 4 * seen_blocks.size());
  put(out, &action, 1);
  put(out, &number, 1);
  put_vector(out, tokens);
  put_vector(out, positions);
  put_vector(out, segments);
  put_vector(out, blocks);
  put_vector(out, block_copies);
  put_vector(out, argmax_rows);
  put_vector(out, logit_rows);
  put_vector(out, image_work);
  put_vector(out, pixels);
  put_vector(out, image_blocks);
  put_vector(out, image_rows);
  put_vector(out, seen_tokens);
  put_vector(out, seen_blocks);
  return out;
}

StepPlan StepPlan::deserialize(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  StepPlan plan;
  plan.action = reader.value<Action>();
  plan.number = reader.value<std::int64_t>();
  plan.tokens = reader.vector<std::int32_t>();
  plan.positions = reader.vector<std::int32_t>();
  plan.segments = reader.vector<Segment>();
  plan.blocks = reader.vector<std::int32_t>();
  plan.block_copies = reader.vector<BlockCopy>();
  plan.argmax_rows = reader.vector<std::int32_t>();
  plan.logit_rows = reader.vector<std::int32_t>();
  plan.image_work = reader.vector<ImageWork>();
  plan.pixels = reader.vector<std::uint8_t>();
  plan.image_blocks = reader.vector<std::int32_t>();
  plan.image_rows = reader.vector<ImageRows>();
  plan.seen_tokens = reader.vector<std::int32_t>();
  plan.seen_blocks = reader.vector<std::int32_t>();
  CARAVAN_ASSERT(reader.done(), "step plan {} has bytes left over", plan.number);
  return plan;
}

}  // namespace caravan::model
