#include "caravan/image/pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "caravan/core/error.h"
#include "decode_memory.h"
#include "images_in_use.h"
#include "vips_image.h"

namespace caravan::image {
namespace {

/// One submitted image.
struct Item {
  std::string url;
  std::size_t source = 0;
  std::int64_t reserved_bytes = 0;  // before it is ready
  bool is_ready = false;
  ImageOutcome outcome;
  std::exception_ptr fault;  // not the image's own
};

struct Result {
  ImagePointer image;
  std::string error;
  std::exception_ptr fault;
  std::string content_hash;
};

/// Runs `work` for the image at `url` and turns what it throws into a result.
template <typename Work>
Result result_of(const std::string& url, const Work& work) {
  try {
    return {work(), "", nullptr, ""};
  } catch (const InputError& error) {
    return {nullptr, error.what(), nullptr, ""};
  } catch (const std::bad_alloc&) {
    // What a record is answered never depends on the memory of the machine.
    return {nullptr, "",
            std::make_exception_ptr(ConfigError(fmt::format(
                "image {}: there is not enough memory to decode it. Use a node with more memory, "
                "or fewer ranks on each, or lower --max-image-pixels",
                describe_source(url)))),
            ""};
  } catch (...) {
    return {nullptr, "", std::current_exception(), ""};
  }
}

}  // namespace

class ImagePipeline::State {
 public:
  State(std::vector<ImageSource> sources, const DecodeOptions& decoding, const TilingConfig& tiling,
        const PipelineOptions& options)
      : sources_(std::move(sources)),
        decoding_(decoding),
        tiling_(tiling),
        options_(options),
        decode_memory_(options.max_decode_bytes) {
    try {
      for (int i = 0; i < options.num_threads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error& error) {
      stop();
      throw DeviceError(
          fmt::format("cannot start {} threads for images: {}", options.num_threads, error.what()));
    }
  }
  ~State() { stop(); }

  Ticket submit(std::string url, std::size_t source) {
    std::unique_lock lock(mutex_);
    const std::int64_t bytes = bytes_to_reserve(url);
    room_.wait(lock, [&] { return has_room(bytes); });
    return queue(std::move(url), source, bytes);
  }

  std::optional<Ticket> try_submit(std::string&& url, std::size_t source) {
    const std::lock_guard lock(mutex_);
    const std::int64_t bytes = bytes_to_reserve(url);
    if (!has_room(bytes)) return std::nullopt;
    return queue(std::move(url), source, bytes);
  }

  ImageOutcome take(Ticket ticket) {
    std::unique_lock lock(mutex_);
    require(ticket);
    ready_.wait(lock, [&] { return require(ticket).is_ready; });
    return remove(ticket);
  }

  std::optional<ImageOutcome> try_take(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    if (!require(ticket).is_ready) return std::nullopt;
    return remove(ticket);
  }

  void discard(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    Item& item = require(ticket);
    item.fault = nullptr;
    // One in work by a thread is missed by that thread when it is done.
    remove(ticket);
  }

  PipelineCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }
  std::int64_t ahead_bytes() const {
    const std::lock_guard lock(mutex_);
    return ahead_bytes_;
  }

 private:
  // Below, all but serve, prepare and decode_in_turn are called with the lock held.

  std::int64_t bytes_to_reserve(const std::string& url) const {
    return tiling_.max_bytes() + static_cast<std::int64_t>(url.size());
  }
  bool has_room(std::int64_t bytes) const {
    return ahead_bytes_ == 0 || ahead_bytes_ + bytes <= options_.max_ahead_bytes;
  }
  Ticket queue(std::string url, std::size_t source, std::int64_t bytes) {
    CARAVAN_ASSERT(source < sources_.size(), "image source {} of {}", source, sources_.size());
    const Ticket ticket = next_ticket_++;
    Item& item = items_[ticket];
    item.url = std::move(url);
    item.source = source;
    item.reserved_bytes = bytes;
    ahead_bytes_ += bytes;
    ++counts_.submitted;
    waiting_.push_back(ticket);
    work_.notify_one();
    return ticket;
  }
  Item& require(Ticket ticket) {
    const auto found = items_.find(ticket);
    CARAVAN_ASSERT(found != items_.end(), "image ticket {} is unknown or was taken", ticket);
    return found->second;
  }
  ImageOutcome remove(Ticket ticket) {
    Item item = std::move(require(ticket));
    items_.erase(ticket);
    ahead_bytes_ -= item.reserved_bytes;
    ahead_bytes_ -= in_use_.release(item.outcome.image);
    room_.notify_all();
    if (item.fault) std::rethrow_exception(item.fault);
    return std::move(item.outcome);
  }
  void publish(Ticket ticket, const Result& result) {
    const auto found = items_.find(ticket);
    if (found == items_.end()) return;  // discarded
    Item& item = found->second;
    if (!result.image) ++counts_.failed;
    item.outcome = {result.image, result.error, result.content_hash};
    item.fault = result.fault;
    item.is_ready = true;
    ahead_bytes_ -= std::exchange(item.reserved_bytes, 0);
    ahead_bytes_ += in_use_.hold(result.image);
    ready_.notify_all();
    room_.notify_all();
  }

  void serve() {
    while (true) {
      Ticket ticket = 0;
      std::string url;
      std::size_t source = 0;
      {
        std::unique_lock lock(mutex_);
        work_.wait(lock, [&] { return is_stopping_ || !waiting_.empty(); });
        if (is_stopping_) break;
        ticket = waiting_.front();
        waiting_.pop_front();
        const auto found = items_.find(ticket);
        if (found == items_.end()) continue;  // discarded
        url = std::move(found->second.url);
        source = found->second.source;
      }
      prepare(ticket, url, sources_[source]);
    }
    leave_vips_thread();
  }

  void prepare(Ticket ticket, const std::string& url, const ImageSource& source) {
    std::vector<std::byte> bytes;
    std::string hash;
    const Result failure = result_of(url, [&]() -> ImagePointer {
      bytes = source.read(url);
      hash = content_hash(bytes);
      return nullptr;
    });
    std::unique_lock lock(mutex_);
    if (!failure.error.empty() || failure.fault) return publish(ticket, failure);
    if (const ImagePointer known = in_use_.find(hash)) {
      ++counts_.shared;
      return publish(ticket, {known, "", nullptr, hash});
    }
    const auto [in_work, is_first] = in_work_.try_emplace(hash);
    in_work->second.push_back(ticket);
    if (!is_first) {
      ++counts_.shared;
      return;  // the thread that has it in work publishes for all
    }
    ++counts_.decoded;
    lock.unlock();
    Result result = result_of(url, [&] { return decode_in_turn(bytes, hash); });
    result.content_hash = hash;
    lock.lock();
    if (result.image) in_use_.add(result.image);
    for (const Ticket waiting : in_work_.at(hash)) publish(waiting, result);
    in_work_.erase(hash);
  }

  /// Waits until the memory that decoding takes is there; an image larger than all of it goes
  /// alone. So does, once more, one that failed: others may have had the memory that it needed.
  ImagePointer decode_in_turn(const std::vector<std::byte>& bytes, const std::string& hash) {
    const std::int64_t memory = read_header(bytes, decoding_).decode_bytes;
    const auto prepare = [&] {
      return std::make_shared<const PreparedImage>(
          prepare_tiles(decode(bytes, decoding_), hash, tiling_));
    };
    try {
      const DecodeMemory::Turn turn(decode_memory_, memory);
      return prepare();
    } catch (const InputError&) {
    } catch (const std::bad_alloc&) {
    }
    const DecodeMemory::Turn turn(decode_memory_, std::max(memory, decode_memory_.most_bytes()));
    return prepare();
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const std::vector<ImageSource> sources_;
  const DecodeOptions decoding_;
  const TilingConfig tiling_;
  const PipelineOptions options_;
  DecodeMemory decode_memory_;  // has a lock of its own

  mutable std::mutex mutex_;
  std::condition_variable work_;   // something is waiting, or the end
  std::condition_variable ready_;  // some item became ready
  std::condition_variable room_;   // fewer bytes ahead
  bool is_stopping_ = false;
  Ticket next_ticket_ = 1;
  std::map<Ticket, Item> items_;
  std::deque<Ticket> waiting_;
  std::unordered_map<std::string, std::vector<Ticket>> in_work_;  // by content hash
  ImagesInUse in_use_;
  std::int64_t ahead_bytes_ = 0;
  PipelineCounts counts_;
  std::vector<std::thread> threads_;  // last: they use all of the above
};

ImagePipeline::ImagePipeline(std::vector<ImageSource> sources, const DecodeOptions& decoding,
                             const TilingConfig& tiling, const PipelineOptions& options) {
  check(tiling);
  CARAVAN_CHECK(
      options.num_threads >= 1 && options.max_ahead_bytes >= 0 && options.max_decode_bytes >= 0,
      ConfigError,
      "images need at least 1 thread and no negative limits: {} threads, {} bytes ahead, {} in "
      "decoding",
      options.num_threads, options.max_ahead_bytes, options.max_decode_bytes);
  start_vips();
  state_ = std::make_unique<State>(std::move(sources), decoding, tiling, options);
}

ImagePipeline::~ImagePipeline() = default;

std::optional<ImagePipeline::Ticket> ImagePipeline::try_submit(std::string&& url,
                                                               std::size_t source) {
  return state_->try_submit(std::move(url), source);
}
ImagePipeline::Ticket ImagePipeline::submit(std::string url, std::size_t source) {
  return state_->submit(std::move(url), source);
}
ImageOutcome ImagePipeline::take(Ticket ticket) { return state_->take(ticket); }
std::optional<ImageOutcome> ImagePipeline::try_take(Ticket ticket) {
  return state_->try_take(ticket);
}
void ImagePipeline::discard(Ticket ticket) { state_->discard(ticket); }
PipelineCounts ImagePipeline::counts() const { return state_->counts(); }
std::int64_t ImagePipeline::ahead_bytes() const { return state_->ahead_bytes(); }

}  // namespace caravan::image
