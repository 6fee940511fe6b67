#pragma once
// `caravan convert`: any supported source checkpoint to one Caravan HDF5 file, streamed.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "caravan/core/dtype.h"
#include "caravan/text/chat_format.h"

namespace caravan::checkpoint {

/// What a conversion is doing, for messages.
enum class ConvertPhase { kWriting, kReadingBack };

struct ConvertOptions {
  std::string source;  // a folder (Hugging Face, Meta, torchtune) or a file
  std::string target;  // MODEL.h5
  /// Empty: keep the source's (quantized sources: fp32, exact). int8 and int4 take GGUF's Q8_0,
  /// Q4_0 and Q4_1 over exactly where these are of the same kind.
  std::optional<DType> dtype;
  std::optional<text::ChatFormatKind> chat_format;  // empty: recognised from the source
  std::optional<std::string> name;                  // empty: from the source
  std::optional<std::string> tokenizer;             // file or folder; empty: that of the source
  bool overwrite = false;
  /// Told (phase, bytes done of it, bytes in all) at the begin of each phase and some times a
  /// second; by one thread at a time. What it throws ends the conversion. May be empty.
  std::function<void(ConvertPhase, std::int64_t, std::int64_t)> progress;
};

struct ConvertSummary {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
  std::string content_hash;
};

/// Writes to a temporary name beside `target`, reads it back against its checksums, then renames.
/// Peak memory stays near the largest tensor. On any failure the temporary file is removed and
/// `target` is untouched.
///
/// @throws UsageError (target exists without overwrite, or equals the source), MissingInputError,
/// InputError (the source
///         is damaged, incomplete or not a Llama model: says which), ConfigError (sizes that the
///         dtype does not allow), CannotCreateError, IoError
///         (disk full ...), what `progress` throws.
ConvertSummary convert(const ConvertOptions& options);

}  // namespace caravan::checkpoint
