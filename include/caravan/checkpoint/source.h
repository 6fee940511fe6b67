#pragma once
// A source checkpoint: its description, and every canonical tensor located and checked.
//
// Leaves out: converting values and writing (convert.h).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/checkpoint/source_tensor.h"
#include "caravan/checkpoint/zip_checksums.h"
#include "caravan/io/input_file.h"
#include "caravan/text/chat_format.h"

namespace caravan::checkpoint {

/// Order of the rows of one head in q and k (rotary pairs side by side, or first halves first).
enum class HeadOrder { kInterleaved, kHalfSplit };

struct SourceOptions {
  std::optional<text::ChatFormatKind> chat_format;  // empty: recognised from the template
  std::optional<std::string> name;                  // empty: from the source
  std::optional<std::string> tokenizer;             // file or folder; empty: that of the source
};

struct Source {
  /// created_by and content_hash are empty; dtype is the one that keeps every value of the
  /// matrices (float32 for float64, which is rounded).
  ModelDescription description;
  HeadOrder head_order = HeadOrder::kInterleaved;
  std::vector<io::InputFile> files;
  /// By file, of those that are zip archives: what is read of them is checked on the way.
  std::map<std::int64_t, std::unique_ptr<ZipChecksums>> checksums;
  std::map<std::string, SourceTensor> tensors;  // by canonical name

  const SourceTensor& tensor(const std::string& canonical_name) const;
  /// After all tensors were read: completes the checks of what was read in part.
  /// @throws InputError naming file and entry of a damaged archive; IoError.
  void finish_checks();
};

/// Recognises the format by content and reads everything but the weights' values.
/// @throws MissingInputError if there is no such file or folder; InputError naming what was found
/// and what is wrong with it: unsupported formats and architectures, missing, unknown or ill-shaped
/// tensors (all of them), missing shards, unknown chat template.
Source open_source(const std::string& path, const SourceOptions& options);

}  // namespace caravan::checkpoint
