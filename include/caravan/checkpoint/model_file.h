#pragma once
// A Caravan checkpoint (HDF5, format version 1 or 2) opened for reading. README, "Checkpoint
// format", describes the file.
//
// Rank 0 opens the file with HDF5, checks every shape, type and size against the model description
// and makes an index; the index is broadcast and every rank reads its bands with plain reads at the
// datasets' offsets. So metadata is read once, each weight byte once, and MPI-IO and file locks are
// not needed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/model/config.h"
#include "caravan/model/weight_source.h"
#include "caravan/text/chat_format.h"
#include "caravan/text/tokenizer_spec.h"

namespace caravan::checkpoint {

inline constexpr int kFormatVersion = 1;
/// Of files with quantized matrices, which programs of version 1 cannot read.
inline constexpr int kQuantizedFormatVersion = 2;
inline int format_version(DType dtype) {
  return is_quantized(dtype) ? kQuantizedFormatVersion : kFormatVersion;
}

/// Defaults that the source gives for generation; empty where it gives none.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> repetition_penalty;
  std::vector<std::int32_t> stop_ids;  // union of all the source's end-of-text ids
  bool operator==(const GenerationDefaults&) const = default;
};

/// Everything in a checkpoint but the weights' values.
struct ModelDescription {
  std::string name;        // "SmolLM2-135M-Instruct"
  std::string source;      // format and file names it was converted from
  std::string created_by;  // program and version
  std::string
      content_hash;  // of all tensors' checksums and the description; part of the run fingerprint.
                     // Files may lack it: then it is computed when they are opened
  DType dtype = DType::kFloat32;  // of the matrices (model::matrix_dtype)
  model::LlamaConfig config;
  text::TokenizerSpec tokenizer;
  std::string chat_template;  // the source's, as it was; may be empty
  text::ChatFormatKind chat_format = text::ChatFormatKind::kNone;
  std::string chat_default_system;
  GenerationDefaults generation;
};

/// One stored tensor, or part of a quantized one (model/stored_parts.h).
struct StoredTensor {
  model::TensorSpec spec;
  DType dtype = DType::kFloat32;
  std::int64_t file_offset = 0;  // bytes
  std::int64_t bytes = 0;
  std::vector<std::uint32_t> band_crc32c;  // one per band
};

/// What a complete check has read.
struct VerifyResult {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// Told the bytes that were read or written since the last call; by one thread at a time. What it
/// throws ends the work.
using BytesDone = std::function<void(std::int64_t)>;

class ModelFile final : public model::WeightSource {
 public:
  /// Opens and checks the file (one process).
  /// @throws MissingInputError if there is no such file; ConfigError if it is not a Caravan
  /// checkpoint, is truncated, of
  ///         another version, or disagrees with its own description: each fault named.
  static ModelFile open(const std::string& path);

  /// The index and description as bytes, and a ModelFile made of them on another rank.
  std::vector<std::byte> serialize() const;
  static ModelFile deserialize(std::span<const std::byte> bytes);

  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;
  ~ModelFile() override;

  const std::string& path() const;
  const ModelDescription& description() const;
  const std::vector<StoredTensor>& tensors() const;
  /// File size in bytes.
  std::int64_t file_bytes() const;

  DType dtype(const model::TensorSpec& spec) const override;
  void read_rows(const model::TensorSpec& spec, Range rows, void* destination) override;
  /// Weight bytes read so far by this process through this object.
  std::int64_t bytes_read() const;
  /// Whether read_rows checks checksums (default yes).
  void set_verify(bool verify);

  /// Reads every tensor and checks every checksum. @param done  may be empty
  /// @throws ConfigError naming the bad bands (at most 20); IoError; what `done` throws.
  VerifyResult verify_all(const BytesDone& done = {});

 private:
  struct State;
  explicit ModelFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Opens a checkpoint, reads everything and checks every checksum.
/// @throws as ModelFile::open; ConfigError naming the bad bands (at most 20).
VerifyResult verify(const std::string& path);

/// What `caravan inspect` prints: a readable table, or JSON. `with_tensors` lists every tensor.
std::string inspect_text(const ModelFile& file, bool with_tensors);
std::string inspect_json(const ModelFile& file, bool with_tensors);

}  // namespace caravan::checkpoint
