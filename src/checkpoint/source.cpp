#include "caravan/checkpoint/source.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

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
    throw InputError(fmt::format("{} is an HDF5 file, expected a GGUF file or a folder ({})", path,
                                 error.what()));
  }
  throw InputError(
      fmt::format("{} is a Caravan checkpoint already: there is nothing to convert", path));
}

Source open_source_file(const std::string& path, const SourceOptions& options) {
  io::InputFile file(path);
  refuse_stand_in(file);
  switch (file_kind(file)) {
    case FileKind::kGguf: return open_gguf(path, options);
    case FileKind::kHdf5: refuse_hdf5(path);
    case FileKind::kZip: return open_folder(path, options);
    case FileKind::kOther: break;
  }
  if (path.ends_with(".safetensors")) return open_folder(path, options);
  throw InputError(
      fmt::format("{} is of no known format (expected a GGUF file, or a folder of "
                  "Hugging Face, Meta or torchtune)",
                  path));
}

}  // namespace

const SourceTensor& Source::tensor(const std::string& canonical_name) const {
  const auto found = tensors.find(canonical_name);
  CARAVAN_ASSERT(found != tensors.end(), "tensor \"{}\"", canonical_name);
  return found->second;
}

void Source::finish_checks() {
  for (const auto& [file, checks] : checksums)
    checks->finish(files[checked_cast<std::size_t>(file)]);
}

Source open_source(const std::string& path, const SourceOptions& options) {
  std::error_code failure;
  return fs::is_directory(path, failure) ? open_folder(path, options)
                                         : open_source_file(path, options);
}

}  // namespace caravan::checkpoint
