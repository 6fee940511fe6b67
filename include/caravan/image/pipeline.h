#pragma once
// Prepares images on threads of its own, ahead of the step that needs them.
//
// An image is submitted, which gives a ticket, and taken by the ticket later, in any order. What is
// submitted and not taken yet is bounded in bytes. Equal images (by content, whatever their
// addresses) are decoded once while one of them is in work or held by anybody.
// Leaves out: which images a request has (batch/), what the model makes of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/image/decode.h"
#include "caravan/image/image_source.h"
#include "caravan/image/tiling.h"

namespace caravan::image {

struct PipelineOptions {
  int num_threads = 1;
  std::int64_t max_ahead_bytes = std::int64_t{256} << 20;  // submitted and not taken
  std::int64_t max_decode_bytes = std::int64_t{1} << 30;   // in all threads while they decode
};

/// A prepared image, or why there is none. Others may hold the same image: it never changes.
struct ImageOutcome {
  std::shared_ptr<const PreparedImage> image;  // shared with equal images
  std::string error;                           // for the record that names the image, if no image
  std::string content_hash;                    // empty if the bytes could not be read
};

/// What has been done until now.
struct PipelineCounts {
  std::int64_t submitted = 0;
  std::int64_t decoded = 0;  // also those that failed while they were decoded
  std::int64_t shared = 0;   // found in use or in work
  std::int64_t failed = 0;
};

class ImagePipeline {
 public:
  using Ticket = std::int64_t;

  /// @param sources  where images may come from, by number.
  /// @throws ConfigError if `tiling` or `options` cannot be; DeviceError if threads or libvips
  ///         cannot be started.
  ImagePipeline(std::vector<ImageSource> sources, const DecodeOptions& decoding,
                const TilingConfig& tiling, const PipelineOptions& options);
  /// Images in work are finished, others are dropped. No other call may be running.
  ~ImagePipeline();
  ImagePipeline(const ImagePipeline&) = delete;
  ImagePipeline& operator=(const ImagePipeline&) = delete;

  // Calls below are safe from several threads at once.

  /// Queues the image at `url` of a source; nothing, and `url` stays as it is, if there is no room
  /// for it ahead. There always is when everything was taken.
  std::optional<Ticket> try_submit(std::string&& url, std::size_t source = 0);
  /// Waits for room. Whoever takes must be another thread.
  Ticket submit(std::string url, std::size_t source = 0);

  /// Waits until the image is prepared. Each ticket can be taken once.
  /// @throws InternalError if `ticket` is unknown or taken; what the preparation threw if that was
  ///         no fault of the image: ConfigError for want of memory, IoError as ImageSource::read.
  ImageOutcome take(Ticket ticket);
  /// As `take`; nothing if the image is not prepared yet.
  std::optional<ImageOutcome> try_take(Ticket ticket);
  /// Gives `ticket` up, prepared or not: its record was refused for another reason.
  void discard(Ticket ticket);

  PipelineCounts counts() const;
  /// Bytes of what is submitted and not taken, as they count towards max_ahead_bytes.
  std::int64_t ahead_bytes() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::image
