#pragma once
// The images of a run before any is decoded: where they may come from, whether their headers are
// good, and into how many tiles each is cut.
//
// An image that several records name is looked at once; what is kept of it has a fixed size but for
// the numbers of the records that show it.
// Leaves out: preparing images (image_stage.h), what tiles cost (model/).

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "caravan/batch/record.h"
#include "caravan/core/partition.h"
#include "caravan/engine/request.h"
#include "caravan/image/decode.h"
#include "caravan/image/image_source.h"
#include "caravan/image/tiling.h"
#include "caravan/io/sha256.h"

namespace caravan::batch {

struct ImageOptions {
  std::optional<std::string> media_root;  // empty: for each record the folder of its input file
  std::int64_t max_bytes = std::int64_t{64} << 20;
  image::DecodeOptions decoding;
  image::TilingConfig tiling;
  std::int64_t tile_tokens = 0;    // image tokens that the model sees of a tile
  std::int64_t block_tokens = 16;  // image tokens in a block of memory

  std::int64_t blocks_of(std::int64_t tiles) const {
    return ceil_div(tiles * tile_tokens, block_tokens);
  }
};

/// Enough of a SHA-256 to tell images apart.
using ImageKey = std::array<char, 16>;

/// What is known of an image that passed its check.
struct ImageFacts {
  model::TileGrid grid;
  ImageKey content{};  // of its bytes
};

/// Blocks of image memory that a record's images take, equal ones once. A group are images with
/// nothing between them, which are seen together.
struct ImageBlocks {
  std::int64_t all = 0;
  std::int64_t largest_group = 0;
  std::size_t group_image = 0;  // of the record: the first one of that group
  std::int64_t most_seen = 0;   // blocks that text behind a group reads: equal images as often as
                                // they are in it
};

class ImageCatalog {
 public:
  /// @throws MissingInputError if the media root is no folder that can be read.
  explicit ImageCatalog(ImageOptions options);

  /// Number of the source for records whose input file is in `folder` (empty: standard input, which
  /// has files with a media root only).
  std::size_t source_of(const std::string& folder);
  /// Sources by number, for an ImagePipeline. @throws MissingInputError if a folder is gone.
  std::vector<image::ImageSource> open_sources() const;

  /// What the record's images take, or the faults of those that cannot be used.
  /// @param index  of the record among those of a run, ascending: good images of a record that
  ///               computes are kept in mind for next_use(). Nothing: they are not.
  std::variant<ImageBlocks, RecordFault> check(const Record& record,
                                               std::optional<std::int64_t> index = {});
  /// The record will not show its images.
  void forget_uses(std::int64_t index, const Record& record);
  /// @pre check() found no fault in the record.
  ImageBlocks blocks_of(const Record& record) const;

  /// @pre check() found no fault in a record that names it.
  const ImageFacts& facts(std::size_t source, std::string_view url) const;

  /// The first record behind `index` that shows the image and is not done;
  /// engine::PromptImage::kNeverAgain if there is none.
  std::int64_t next_use(const ImageFacts& image, std::int64_t index,
                        const std::function<bool(std::int64_t index)>& is_done) const;
  /// Most blocks, at any place of the records, of images that were shown before and will be shown
  /// again: room for them spares encoding an image twice.
  std::int64_t most_recurring_blocks() const;

  std::int64_t num_checked() const { return num_checked_; }  // as records name them
  std::int64_t num_distinct() const { return static_cast<std::int64_t>(distinct_.size()); }
  /// Blocks of all distinct good images together.
  std::int64_t distinct_blocks() const { return distinct_blocks_; }
  /// About what preparing them takes at most, with prepared images held up to `max_prepared_bytes`,
  /// or those of the one record with most.
  std::int64_t preparation_bytes(std::int64_t max_prepared_bytes) const;
  /// Hash over all images that were checked, in order of their first mention. Once, last.
  std::string content_hash() { return hash_.hex_digest(); }

  const ImageOptions& options() const { return options_; }

 private:
  struct KeyHash {
    std::size_t operator()(const ImageKey& key) const;
  };
  struct Entry {
    ImageFacts facts;
    std::int32_t fault = -1;  // in faults_; -1: good
  };
  struct Content {
    std::int64_t blocks = 0;
    std::vector<std::int32_t> records;  // that show it, ascending
  };
  const Entry& look_at(std::size_t source, const std::string& url);
  ImageBlocks blocks_of(const Record& record, std::span<const ImageFacts> facts) const;

  ImageOptions options_;
  std::vector<std::string> roots_;  // of sources
  std::vector<image::ImageSource> sources_;
  std::unordered_map<ImageKey, Entry, KeyHash> entries_;     // by source and address
  std::unordered_map<ImageKey, Content, KeyHash> distinct_;  // by content
  std::vector<std::string> faults_;
  std::int64_t num_checked_ = 0;
  std::int64_t distinct_blocks_ = 0;
  std::int64_t decode_bytes_ = 0;  // of all distinct images
  std::int64_t largest_decode_bytes_ = 0;
  std::int64_t largest_record_bytes_ = 0;  // of prepared images of one record
  io::Sha256 hash_;
};

/// Of the 64 hexadecimal digits of a SHA-256.
ImageKey image_key(std::string_view sha256);

}  // namespace caravan::batch
