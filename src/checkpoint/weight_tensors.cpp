#include "weight_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "caravan/checkpoint/pth.h"
#include "caravan/checkpoint/safetensors.h"
#include "caravan/checkpoint/tensor_names.h"
#include "caravan/core/error.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

enum class FileKind { kSafetensors, kTorchArchive };

FileKind file_kind(io::InputFile& file) {
  std::array<char, 4> head{};
  const auto count = std::min<std::int64_t>(file.size(), std::ssize(head));
  file.read(0, std::as_writable_bytes(std::span(head)).first(static_cast<std::size_t>(count)));
  const std::string_view text(head.data(), head.size());
  if (text == "PK\x03\x04") return FileKind::kTorchArchive;
  if (file.path().ends_with(".safetensors")) return FileKind::kSafetensors;
  CARAVAN_CHECK(head[0] != '\x80', InputError,
                "{} is in the form that torch.save wrote before PyTorch 1.6; load and save it with "
                "a newer PyTorch, or take the safetensors form of the model",
                file.path());
  throw InputError(fmt::format(
      "{} is no file that torch.save wrote (its first bytes differ): the download is incomplete",
      file.path()));
}

struct Mark {
  std::string_view ending;  // of the names of tensors
  std::string_view method;
};
constexpr std::array kMarks = {Mark{".qweight", "GPTQ or AWQ"},
                               Mark{".qzeros", "GPTQ or AWQ"},
                               Mark{".g_idx", "GPTQ or AWQ"},
                               Mark{".absmax", "bitsandbytes"},
                               Mark{".quant_map", "bitsandbytes"},
                               Mark{".SCB", "bitsandbytes"},
                               Mark{".weight_packed", "compressed-tensors"},
                               Mark{".weight_shape", "compressed-tensors"},
                               Mark{".biases", "MLX"},
                               Mark{"_blocks", "MXFP4"},
                               Mark{".weight_scale", "FP8 or compressed-tensors"},
                               Mark{".weight_scale_inv", "FP8"},
                               Mark{".input_scale", "FP8"}};

/// The method that left such a tensor; empty if there is no sign of any.
std::string_view quantization_of(const std::string& name, std::string_view type) {
  for (const Mark& mark : kMarks) {
    if (name.ends_with(mark.ending)) return mark.method;
  }
  if (type.starts_with("F8")) return "FP8";
  if (type == "U32" && name.ends_with(".weight")) return "MLX";
  if (type == "U8" && name.ends_with(".weight")) return "bitsandbytes";
  return {};
}

void refuse_foreign(const std::string& name, std::string_view type, bool is_read,
                    const std::string& path) {
  CARAVAN_CHECK(name.find(".lora_") == std::string::npos, InputError,
                "{} holds a LoRA adapter ({}) and not a model; merge it into its base model first",
                path, name);
  const std::string_view method = quantization_of(name, type);
  CARAVAN_CHECK(method.empty(), InputError,
                "{} holds weights quantized by {} ({} of type {}); convert the unquantized model "
                "or a GGUF of it",
                path, method, name, type);
  CARAVAN_CHECK(is_read, InputError,
                "{}: tensor \"{}\" has type {}, expected F32, F16, BF16 or F64; if the model is "
                "quantized, convert the unquantized one or a GGUF of it",
                path, name, type);
}

bool is_ignored(const std::string& name) {
  return is_ignored_tensor(name, NameStyle::kHuggingFace) ||
         is_ignored_tensor(name, NameStyle::kMeta);
}

// All that is read of the archive from now on is checked.
std::unique_ptr<ZipChecksums> check_reads(io::InputFile& file) {
  auto checksums = std::make_unique<ZipChecksums>(file.path(), read_zip_directory(file));
  file.observe([seen = checksums.get()](std::int64_t offset, std::span<const std::byte> bytes) {
    seen->see(offset, bytes);
  });
  return checksums;
}

std::vector<SourceTensor> read_tensors(io::InputFile& file, Source& source) {
  const std::int64_t index = std::ssize(source.files);
  std::vector<SourceTensor> tensors;
  const auto add = [&](const auto& entry) -> SourceTensor* {
    if (is_ignored(entry.name)) return nullptr;
    refuse_foreign(entry.name, entry.type_name, entry.type.has_value(), file.path());
    // A number without extents is one value, as a gate may be.
    const std::vector<std::int64_t> shape =
        entry.shape.empty() ? std::vector<std::int64_t>{1} : entry.shape;
    return &tensors.emplace_back(SourceTensor{entry.name, *entry.type, shape, index, entry.offset});
  };
  switch (file_kind(file)) {
    case FileKind::kSafetensors:
      for (const SafetensorsEntry& entry : read_safetensors_header(file)) {
        if (SourceTensor* tensor = add(entry)) tensor->bytes = entry.bytes;
      }
      break;
    case FileKind::kTorchArchive:
      source.checksums[index] = check_reads(file);
      for (const PthEntry& entry : read_pth(file)) {
        if (SourceTensor* tensor = add(entry)) tensor->strides = entry.strides;
      }
      break;
  }
  return tensors;
}

std::map<std::string, std::string> check_unique(
    const std::vector<std::vector<SourceTensor>>& tensors, const WeightFiles& weights) {
  std::map<std::string, std::string> found_in;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string file = weights.files[i].filename().string();
    for (const SourceTensor& tensor : tensors[i]) {
      const auto [other, is_new] = found_in.emplace(tensor.name, file);
      CARAVAN_CHECK(is_new, InputError, "{}: tensor \"{}\" is both in {} and {}",
                    weights.folder.string(), tensor.name, other->second, file);
    }
  }
  return found_in;
}

}  // namespace

std::vector<std::vector<SourceTensor>> read_weight_files(Source& source,
                                                         const WeightFiles& weights) {
  std::vector<std::vector<SourceTensor>> tensors;
  for (const fs::path& path : weights.files) {
    io::InputFile file(path.string());
    refuse_stand_in(file);
    tensors.push_back(read_tensors(file, source));
    source.files.push_back(std::move(file));
  }
  if (weights.layout == WeightFiles::Layout::kModelParallel) return tensors;
  const auto found_in = check_unique(tensors, weights);
  if (weights.index.empty()) return tensors;
  for (const auto& [tensor, file] : read_weight_index(weights.index)) {
    const auto found = found_in.find(tensor);
    CARAVAN_CHECK(is_ignored(tensor) || (found != found_in.end() && found->second == file),
                  InputError, "{} says that tensor \"{}\" is in {}, but it is not there",
                  weights.index.string(), tensor, file);
  }
  return tensors;
}

}  // namespace caravan::checkpoint
