#pragma once
// The order in which threads read and write the pieces of a model, and who waits for whom.
//
// A tensor that is stored as it comes is cut into strips of rows. One that is stored transposed is
// first read whole (strips of source rows), then written in strips of stored rows: so every byte is
// read once, in long reads. Threads take strips in order, and a strip waits for earlier ones only.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "caravan/checkpoint/model_writer.h"
#include "caravan/core/partition.h"

namespace caravan::checkpoint {

enum class StripKind { kCopy, kLoad, kTranspose };

struct Strip {
  std::size_t tensor = 0;
  StripKind kind = StripKind::kCopy;
  Range rows;  // of the stored tensor, whole bands; of the source for kLoad
};

class StripQueue {
 public:
  /// @param tensors  borrowed
  StripQueue(std::span<const TensorToWrite> tensors, std::int64_t strip_bytes);

  /// The next strip, when it can begin; empty at the end or after stop().
  std::optional<Strip> take();
  /// The strip that is taken after `count` others from now; empty beyond the end.
  std::optional<Strip> ahead(std::size_t count);
  /// Every strip that was taken is reported when it is done.
  void done(const Strip& strip);
  /// A thread failed: the others get no more.
  void stop();

  /// Room for the whole tensor in the source's order and the stored type, part after part, while
  /// its kLoad and kTranspose strips are taken.
  std::byte* staging(std::size_t tensor) { return staged_[tensor].bytes.get(); }

 private:
  struct Staged {
    std::unique_ptr<std::byte[]> bytes;
    std::int64_t size = 0;
    std::int64_t loads_left = 0;
    std::int64_t transposes_left = 0;
  };
  void add_strips(std::size_t tensor, StripKind kind, std::int64_t num_rows, std::int64_t step);
  bool can_begin(const Strip& strip) const;

  std::vector<Strip> strips_;
  std::vector<Staged> staged_;  // of each tensor
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_ = 0;
  std::int64_t max_staged_bytes_ = 0;
  std::int64_t staged_bytes_ = 0;
  bool stopped_ = false;
};

}  // namespace caravan::checkpoint
