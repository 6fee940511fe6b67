#pragma once
// The whole input after validation: how many records, which are faulty and why, what they may cost.
// Good records are parsed again when their turn comes, so memory does not grow with their texts.
//
// Leaves out: running them (driver.h).

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "caravan/batch/image_catalog.h"
#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/prompt_files.h"
#include "caravan/batch/request_parser.h"
#include "caravan/engine/request.h"

namespace caravan::batch {

/// One record when its turn has come.
struct WorkItem {
  std::int64_t index = 0;
  std::string custom_id;
  /// Of the request: of a good one as its record has it, of a faulty one of its text and of how
  /// often that was there before.
  std::uint64_t content_hash = 0;
  ParsedRecord record;
};

struct WorkloadSummary {
  std::int64_t records = 0;
  std::int64_t faulty = 0;
  std::int64_t chat = 0;
  std::int64_t completions = 0;
  std::int64_t blank_lines = 0;
  std::int64_t input_bytes = 0;
  std::int64_t open_ended = 0;     // good records without a token limit: up to the context's end
  std::int64_t bos_texts = 0;      // raw prompts that spell the start token, which stays plain text
  std::int64_t image_records = 0;  // good records with images
  std::int64_t images = 0;         // in them
  std::int64_t distinct_images = 0;  // of all records, by content
};

/// A record, and the positions that its longest prompt and answer may take.
struct LargeRecord {
  std::string label;  // "prompts.jsonl:7"
  std::int64_t prompt_tokens = 0;
  std::int64_t max_tokens = 0;
};

/// A record, and the blocks of image memory that images which it shows together need.
struct LargeImages {
  std::int64_t index = 0;
  std::string label;
  std::int64_t blocks = 0;
};

class Workload {
 public:
  /// Reads and checks everything. All references outlive this object. @param images  null: the
  /// parser refuses images.
  Workload(PromptFiles files, const RequestParser& parser, const PromptBuilder& builder,
           ImageCatalog* images = nullptr);

  /// Good records that fit the model's context but not a cache of `kv_tokens` positions, in order.
  /// That is no fault of theirs.
  std::vector<LargeRecord> too_large(std::int64_t kv_tokens);

  /// @throws InputError listing all faults if there is any.
  void require_valid() const;
  /// @throws InputError listing all faults if the records of some file cannot be told from each
  /// other.
  void require_readable() const;
  /// All faults, or the first `most_lines`, as text; empty when all is well. Records of one file
  /// that follow each other and have the same fault share a line.
  std::string fault_list(std::size_t most_lines = std::numeric_limits<std::size_t>::max()) const;

  const WorkloadSummary& summary() const { return summary_; }
  std::int64_t size() const { return summary_.records; }
  const std::string& input_hash() const { return files_.content_hash(); }
  /// Over all images that were looked at; empty where there are none.
  const std::string& images_hash() const { return images_hash_; }
  std::vector<std::string> input_paths() const { return files_.paths(); }

  /// Positions that the `sequences` largest sequences may fill together (upper bound), and that the
  /// largest alone may fill.
  std::int64_t worst_case_tokens(std::int64_t sequences) const;

  /// Image blocks that the `records` records with most of them may need together (upper bound).
  std::int64_t worst_case_image_blocks(std::int64_t records) const;
  /// Image blocks with which no image need be encoded twice while `records` records run at a time.
  std::int64_t lasting_image_blocks(std::int64_t records) const;
  /// Image blocks of the largest group of images that are seen together.
  std::int64_t largest_image_group() const;
  /// Image blocks that the text behind such a group reads, at most: equal images count each time.
  std::int64_t most_seen_image_blocks() const;
  /// Good records with images that must fit `image_blocks` together and do not, in order.
  std::vector<LargeImages> images_too_large(std::int64_t image_blocks) const;
  /// Makes a good record faulty. @param message  what its images need and what there is.
  void refuse_images(const LargeImages& record, const std::string& message);

  /// Whether a record is good and shows images. @pre 0 <= index < size().
  bool has_images(std::int64_t index) const {
    return entries_[static_cast<std::size_t>(index)].has_images;
  }

  /// @pre 0 <= index < size().
  /// @throws IoError if the input has changed since.
  WorkItem item(std::int64_t index);

 private:
  struct Entry {
    RecordPlace place;
    std::uint64_t text_hash = 0;  // tells whether the file still says what was checked
    std::int32_t worst_case = 0;  // positions of its longest sequence
    std::int32_t sequences = 0;
    bool has_images = false;
    // Of images that the model reads:
    std::int32_t image_blocks = 0;
    std::int32_t image_group = 0;
    std::int32_t seen_blocks = 0;
  };
  struct Faulty {
    std::string custom_id;
    std::uint64_t content_hash = 0;
    RecordFault fault;
  };
  void add(const PromptFiles::Seen& seen);
  void find_faults(Record& record, Entry& entry, std::optional<RecordFault>& fault);
  void add_good(const Record& record, Entry& entry);
  void count_good(const Record& record, std::int64_t change);
  void mark_faulty(std::int64_t index, Faulty faulty);
  bool is_duplicate(const std::string& custom_id, std::int64_t index, std::int64_t& first);

  PromptFiles files_;
  const RequestParser* parser_;
  const PromptBuilder* builder_;
  ImageCatalog* images_;
  std::string images_hash_;
  std::vector<Entry> entries_;
  std::unordered_map<std::int64_t, Faulty> faulty_;
  // During the scan: hash of a custom_id -> its first record; hash of the text of a record that has
  // the custom_id of another -> how many there are.
  std::unordered_map<std::uint64_t, std::int64_t> ids_;
  std::unordered_map<std::uint64_t, std::uint64_t> duplicates_;
  WorkloadSummary summary_;
};

/// Requests for the engine of one record: one for each prompt, each with random streams of its own.
/// Ids count from `first_id`.
/// @param images  of the record's prompt; records with images have one prompt.
std::vector<engine::Request> engine_requests(const Record& record,
                                             const std::vector<TokenizedPrompt>& prompts,
                                             std::int64_t first_id,
                                             std::vector<engine::PromptImage> images = {});

}  // namespace caravan::batch
