#include "caravan/checkpoint/source.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "caravan/core/error.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_present(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::string gguf;
  bool meta = is_present(folder / "params.json");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".gguf")) gguf = entry.path().string();
    meta = meta || (name.starts_with("consolidated.") && name.ends_with(".pth"));
  }
  CARAVAN_CHECK(!is_present(folder / "adapter_config.json"), InputError,
                "{} holds a LoRA adapter (adapter_config.json) and not a model; merge it into its "
                "base model first",
                folder.string());
  CARAVAN_CHECK(!meta, InputError,
                "{} is a Meta checkpoint (params.json, consolidated.*.pth), which this version "
                "does not read; take the Hugging Face form of the model",
                folder.string());
  CARAVAN_CHECK(gguf.empty(), InputError, "{} is a folder with GGUF files; name the file, as {}",
                folder.string(), gguf);
  throw InputError(fmt::format(
      "{} is not a model folder: it has no config.json (expected a Hugging Face folder or a GGUF "
      "file)",
      folder.string()));
}

enum class FileKind { kGguf, kHdf5, kZip, kOther };

FileKind file_kind(io::InputFile& file) {
  std::array<char, 8> head{};
  const auto count = std::min<std::int64_t>(file.size(), std::ssize(head));
  file.read(0, std::as_writable_bytes(std::span(head)).first(static_cast<std::size_t>(count)));
  const std::string_view text(head.data(), head.size());
  if (text.starts_with("GGUF")) return FileKind::kGguf;
  if (text == "\x89HDF\r\n\x1a\n") return FileKind::kHdf5;
  if (text.starts_with("PK\x03\x04")) return FileKind::kZip;
  return FileKind::kOther;
}

[[noreturn]] void refuse_hdf5(const std::string& path) {
  try {
    const ModelFile file = ModelFile::open(path);
  } catch (const ConfigError& error) {
    throw InputError(
        fmt::format("{} is an HDF5 file, expected a GGUF file or a Hugging Face folder ({})", path,
                    error.what()));
  }
  throw InputError(
      fmt::format("{} is a Caravan checkpoint already: there is nothing to convert", path));
}

Source open_source_file(const std::string& path, const SourceOptions& options) {
  io::InputFile file(path);
  refuse_lfs_pointer(file);
  switch (file_kind(file)) {
    case FileKind::kGguf: return open_gguf(path, options);
    case FileKind::kHdf5: refuse_hdf5(path);
    case FileKind::kZip:
      throw InputError(fmt::format(
          "{} is a pickled PyTorch file, which this version does not read; take the safetensors "
          "form of the model, as a Hugging Face folder",
          path));
    case FileKind::kOther: break;
  }
  CARAVAN_CHECK(!path.ends_with(".safetensors"), InputError,
                "{} is one file of a model; name the folder that holds it and config.json", path);
  throw InputError(fmt::format(
      "{} is of no known format (expected a GGUF file or a Hugging Face folder)", path));
}

}  // namespace

const SourceTensor& Source::tensor(const std::string& canonical_name) const {
  const auto found = tensors.find(canonical_name);
  CARAVAN_ASSERT(found != tensors.end(), "tensor \"{}\"", canonical_name);
  return found->second;
}

Source open_source(const std::string& path, const SourceOptions& options) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return open_source_file(path, options);
  if (!is_present(fs::path(path) / "config.json")) refuse_folder(path);
  return open_hugging_face(path, options);
}

}  // namespace caravan::checkpoint
