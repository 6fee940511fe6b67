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
  void value(T& result) {
    take(&result, 1);
  }
  template <typename T>
  void vector(std::vector<T>& result) {
    std::int64_t count = 0;
    value(count);
    CARAVAN_ASSERT(count >= 0 && static_cast<std::size_t>(count) <= bytes_.size() / sizeof(T),
                   "step plan: {} elements announced, {} bytes left", count, bytes_.size());
    result.resize(static_cast<std::size_t>(count));
    take(result.data(), result.size());
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
  std::vector<std::byte> bytes;
  serialize_to(bytes);
  return bytes;
}

void StepPlan::serialize_to(std::vector<std::byte>& out) const {
  out.clear();
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
}

StepPlan StepPlan::deserialize(std::span<const std::byte> bytes) {
  StepPlan plan;
  plan.deserialize_from(bytes);
  return plan;
}

void StepPlan::deserialize_from(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  reader.value(action);
  reader.value(number);
  reader.vector(tokens);
  reader.vector(positions);
  reader.vector(segments);
  reader.vector(blocks);
  reader.vector(block_copies);
  reader.vector(argmax_rows);
  reader.vector(logit_rows);
  reader.vector(image_work);
  reader.vector(pixels);
  reader.vector(image_blocks);
  reader.vector(image_rows);
  reader.vector(seen_tokens);
  reader.vector(seen_blocks);
  CARAVAN_ASSERT(reader.done(), "step plan {} has bytes left over", number);
}

}  // namespace caravan::model
