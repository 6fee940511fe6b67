#include "caravan/checkpoint/convert.h"

#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/checkpoint/model_writer.h"
#include "caravan/checkpoint/source.h"
#include "caravan/checkpoint/tensor_stream.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/io/atomic_file.h"
#include "caravan/model/stored_parts.h"
#include "quantizer.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

// Metadata, alignment and the tokenizer, which for the largest vocabularies is some 10 MB.
constexpr std::int64_t kOverheadBytes = std::int64_t{4} << 20;
constexpr std::int64_t kOverheadBytesPerTensor = 16384;

void check_target(const ConvertOptions& options) {
  std::error_code failure;
  CARAVAN_CHECK(!io::same_file(options.source, options.target), UsageError,
                "the target {} is the source itself", options.target);
  CARAVAN_CHECK(!fs::is_directory(options.target, failure), UsageError,
                "the target {} is a folder, expected the name of a file to write", options.target);
  CARAVAN_CHECK(options.overwrite || !fs::exists(options.target, failure), CannotCreateError,
                "{} exists already; --overwrite replaces it", options.target);
  CARAVAN_CHECK(
      !fs::exists(options.target, failure) || fs::is_regular_file(options.target, failure),
      CannotCreateError, "the target {} is no regular file", options.target);
  const fs::path folder = fs::absolute(options.target).parent_path();
  CARAVAN_CHECK(fs::is_directory(folder, failure), CannotCreateError,
                "the target {} cannot be created: there is no folder {}", options.target,
                folder.string());
  // A source folder's files are its own, whether this conversion reads them or not; a former
  // conversion's file there may be replaced.
  CARAVAN_CHECK(!fs::is_directory(options.source, failure) ||
                    !fs::exists(options.target, failure) ||
                    fs::path(options.target).extension() == ".h5" ||
                    !io::same_file(folder.string(), options.source),
                UsageError, "the target {} is a file of the source folder {}", options.target,
                options.source);
}

void check_target_is_no_part(const Source& source, const std::string& target) {
  for (const io::InputFile& file : source.files) {
    CARAVAN_CHECK(!io::same_file(file.path(), target), UsageError,
                  "the target {} is a file of the source ({})", target, file.path());
  }
}

// Vectors are small and always computed with in float32: they keep a 16-bit type only where it
// holds the source's values exactly.
DType stored_dtype(const Source& source, const model::TensorSpec& spec, DType matrix_dtype) {
  if (!spec.is_vector) return model::matrix_dtype(spec, matrix_dtype);
  const ElementType type = source.tensor(spec.name).type;
  const bool same = (type == ElementType::kBF16 && matrix_dtype == DType::kBFloat16) ||
                    (type == ElementType::kF16 && matrix_dtype == DType::kFloat16);
  return same ? matrix_dtype : DType::kFloat32;
}

std::vector<TensorToWrite> tensors_to_write(const Source& source) {
  std::vector<TensorToWrite> tensors;
  for (const model::TensorSpec& spec : model::tensor_specs(source.description.config))
    tensors.push_back({spec, stored_dtype(source, spec, source.description.dtype)});
  return tensors;
}

void check_quantizable(const ModelDescription& description, const std::string& source) {
  if (!is_quantized(description.dtype)) return;
  const auto problems = model::quantization_problems(description.config);
  CARAVAN_CHECK(problems.empty(), ConfigError,
                "{} cannot be stored as {}: {}; use --dtype bf16, fp16 or fp32", source,
                dtype_name(description.dtype), fmt::join(problems, "; "));
}

/// Says where quantized matrices come from.
void log_quantization(const Source& source, const std::vector<TensorToWrite>& tensors) {
  std::map<std::string, std::int64_t> counts;
  for (const TensorToWrite& tensor : tensors) {
    if (!is_quantized(tensor.dtype)) continue;
    const ElementType type = source.tensor(tensor.spec.name).type;
    const char* const how = has_quantized_form(type, tensor.dtype) ? "taken over exactly from"
                            : is_quantized(type)                   ? "quantized again from"
                                                                   : "quantized from";
    counts[fmt::format("{} {} {}", dtype_name(tensor.dtype), how, element_type_name(type))] += 1;
  }
  for (const auto& [how, count] : counts) log::info("{} matrices: {}", count, how);
}

void check_disk_space(const std::string& target, std::int64_t weight_bytes,
                      std::int64_t num_tensors) {
  const std::int64_t needed = weight_bytes + kOverheadBytes + num_tensors * kOverheadBytesPerTensor;
  const std::int64_t available = io::free_disk_bytes(target);
  CARAVAN_CHECK(available >= needed, IoError,
                "{} needs {}, but its file system has {} free: make room, or name another place",
                target, format_bytes(static_cast<double>(needed)),
                format_bytes(static_cast<double>(available)));
}

/// Adds up what the threads report of one phase.
BytesDone progress_of(const ConvertOptions& options, ConvertPhase phase, std::int64_t total) {
  if (!options.progress) return [](std::int64_t) {};
  options.progress(phase, 0, total);
  return [&options, phase, total, done = std::int64_t{0}](std::int64_t bytes) mutable {
    done += bytes;
    options.progress(phase, done, total);
  };
}

void check_readable_back(const std::string& path, const std::string& expected_hash,
                         const BytesDone& done) {
  ModelFile file = ModelFile::open(path);
  CARAVAN_CHECK(file.description().content_hash == expected_hash, IoError,
                "{} reads back with another content than was written: the disk or the memory of "
                "this machine is at fault",
                path);
  file.verify_all(done);
}

}  // namespace

ConvertSummary convert(const ConvertOptions& options) {
  const Stopwatch watch;
  check_target(options);
  Source source =
      open_source(options.source, {options.chat_format, options.name, options.tokenizer});
  check_target_is_no_part(source, options.target);
  ModelDescription& description = source.description;
  description.dtype = options.dtype.value_or(description.dtype);
  description.created_by = "caravan " CARAVAN_VERSION;
  check_quantizable(description, options.source);

  const std::vector<TensorToWrite> tensors = tensors_to_write(source);
  ConvertSummary summary;
  summary.tensors = std::ssize(tensors);
  std::int64_t num_datasets = 0;
  for (const TensorToWrite& tensor : tensors) {
    summary.bytes += tensor.bytes();
    num_datasets += std::ssize(tensor.parts);
  }
  log_quantization(source, tensors);
  io::Leftovers leftovers(options.target);
  check_disk_space(options.target, summary.bytes, num_datasets);

  io::TemporaryName temporary(options.target);
  {
    ModelWriter writer(temporary.path(), tensors);
    stream_tensors(source, tensors, writer, StreamLimits{},
                   progress_of(options, ConvertPhase::kWriting, summary.bytes));
    source.finish_checks();
    writer.finish(description);
  }
  check_readable_back(temporary.path(), description.content_hash,
                      progress_of(options, ConvertPhase::kReadingBack, summary.bytes));
  temporary.commit(options.overwrite ? io::ExistingTarget::kReplace : io::ExistingTarget::kKeep);
  leftovers.remove_unchanged();
  summary.content_hash = description.content_hash;
  summary.seconds = watch.seconds();
  return summary;
}

}  // namespace caravan::checkpoint
