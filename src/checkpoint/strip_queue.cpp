#include "strip_queue.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"

namespace caravan::checkpoint {

StripQueue::StripQueue(std::span<const TensorToWrite> tensors, std::int64_t strip_bytes)
    : staged_(tensors.size()) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorToWrite& tensor = tensors[i];
    const model::TensorSpec& spec = tensor.spec;
    const std::int64_t band_bytes = tensor.bytes() / spec.num_bands();
    const std::int64_t bands =
        std::max<std::int64_t>(strip_bytes / std::max<std::int64_t>(band_bytes, 1), 1);
    if (spec.transposed) {
      staged_[i].size = tensor.bytes();
      const std::int64_t source_row_bytes =
          std::max<std::int64_t>(tensor.bytes() / spec.columns, 1);
      add_strips(i, StripKind::kLoad, spec.columns,
                 std::max<std::int64_t>(strip_bytes / source_row_bytes, 1));
      add_strips(i, StripKind::kTranspose, spec.rows, bands * spec.band_rows);
    } else {
      add_strips(i, StripKind::kCopy, spec.rows, bands * spec.band_rows);
    }
    // The next transposed tensor is read while the one before is written if both together are no
    // larger than the largest tensor of all.
    max_staged_bytes_ = std::max(max_staged_bytes_, tensor.bytes());
  }
}

void StripQueue::add_strips(std::size_t tensor, StripKind kind, std::int64_t num_rows,
                            std::int64_t step) {
  for (std::int64_t row = 0; row < num_rows; row += step) {
    strips_.push_back({tensor, kind, {row, std::min(row + step, num_rows)}});
    if (kind == StripKind::kLoad) staged_[tensor].loads_left += 1;
    if (kind == StripKind::kTranspose) staged_[tensor].transposes_left += 1;
  }
}

bool StripQueue::can_begin(const Strip& strip) const {
  const Staged& staged = staged_[strip.tensor];
  switch (strip.kind) {
    case StripKind::kCopy: return true;
    case StripKind::kLoad: return staged.bytes || staged_bytes_ + staged.size <= max_staged_bytes_;
    case StripKind::kTranspose: return staged.loads_left == 0;
  }
  return true;
}

std::optional<Strip> StripQueue::take() {
  std::unique_lock lock(mutex_);
  if (stopped_ || next_ == strips_.size()) return std::nullopt;
  const Strip strip = strips_[next_++];
  changed_.wait(lock, [&] { return stopped_ || can_begin(strip); });
  if (stopped_) return std::nullopt;
  Staged& staged = staged_[strip.tensor];
  if (strip.kind == StripKind::kLoad && !staged.bytes) {
    staged.bytes =
        std::make_unique_for_overwrite<std::byte[]>(checked_cast<std::size_t>(staged.size));
    staged_bytes_ += staged.size;
    changed_.notify_all();
  }
  return strip;
}

std::optional<Strip> StripQueue::ahead(std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (next_ + count >= strips_.size()) return std::nullopt;
  return strips_[next_ + count];
}

void StripQueue::done(const Strip& strip) {
  const std::lock_guard lock(mutex_);
  Staged& staged = staged_[strip.tensor];
  if (strip.kind == StripKind::kLoad) staged.loads_left -= 1;
  if (strip.kind == StripKind::kTranspose && --staged.transposes_left == 0) {
    staged.bytes.reset();
    staged_bytes_ -= staged.size;
  }
  changed_.notify_all();
}

void StripQueue::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace caravan::checkpoint
