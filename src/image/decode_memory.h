#pragma once
// Who decodes when: images take turns with the memory that decoding them takes. Leaves out what the
// memory is used for, and whether the machine has it.

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace caravan::image {

class DecodeMemory {
 public:
  explicit DecodeMemory(std::int64_t most_bytes) : most_bytes_(most_bytes) {}

  std::int64_t most_bytes() const { return most_bytes_; }

  /// Holds `bytes` from when they are free; more than there are in all when nobody holds any.
  class Turn {
   public:
    Turn(DecodeMemory& memory, std::int64_t bytes) : memory_(memory), bytes_(bytes) {
      std::unique_lock lock(memory_.mutex_);
      memory_.given_back_.wait(lock, [this] {
        return memory_.held_bytes_ == 0 || memory_.held_bytes_ + bytes_ <= memory_.most_bytes_;
      });
      memory_.held_bytes_ += bytes_;
    }
    ~Turn() {
      const std::lock_guard lock(memory_.mutex_);
      memory_.held_bytes_ -= bytes_;
      memory_.given_back_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    DecodeMemory& memory_;
    std::int64_t bytes_;
  };

 private:
  const std::int64_t most_bytes_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::int64_t held_bytes_ = 0;
};

}  // namespace caravan::image
