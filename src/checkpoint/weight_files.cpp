#include "weight_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <utility>

#include "caravan/checkpoint/pth.h"
#include "caravan/checkpoint/safetensors.h"
#include "caravan/core/error.h"
#include "json_reader.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMaxIndexBytes = 100'000'000;
constexpr std::size_t kMaxShares = 16;  // model-parallel files of the largest release
constexpr const char* kUnnumbered = "consolidated.pth";

// Members of a numbered set: "model-00001-of-00004.safetensors", torchtune's "hf_model_0001_2.pt".
std::regex numbered_name() {
  return std::regex(R"((.+)-(\d{5})-of-(\d{5})\.(safetensors|bin|pt))");
}
// torchtune: kind, part (only hf_model) and epoch.
std::regex tune_name() {
  return std::regex(R"((torchtune_model|meta_model|hf_model)(?:_(\d{4}))?_(\d{1,6})\.(?:pt|bin))");
}

std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::binary_search(names.begin(), names.end(), name);
}

bool has_extension(const std::string& name, std::initializer_list<std::string_view> extensions) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](std::string_view extension) { return name.ends_with(extension); });
}

WeightFiles files_of(const fs::path& folder, const std::vector<std::string>& names) {
  WeightFiles weights;
  weights.folder = folder;
  for (const std::string& name : names) weights.files.push_back(folder / name);
  return weights;
}

/// Shard of each tensor, from an index file.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json parsed = JsonReader::parse(read_small_file(path, kMaxIndexBytes), path.string());
  const JsonReader json(parsed, path.string());
  const Json* weight_map = json.find("weight_map");
  CARAVAN_CHECK(weight_map != nullptr && weight_map->is_object() && !weight_map->empty(),
                InputError, "{}: \"weight_map\" must name the file of each tensor", path.string());
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, value] : weight_map->items()) {
    CARAVAN_CHECK(value.is_string(), InputError, "{}: the file of tensor \"{}\" is not a text",
                  path.string(), tensor);
    const auto file = value.get<std::string>();
    // A downloaded index must not lead out of its folder.
    CARAVAN_CHECK(!file.empty() && file != ".." && fs::path(file).filename() == file, InputError,
                  "{}: the file of tensor \"{}\" is \"{}\", expected a name in the same folder",
                  path.string(), tensor, file);
    shards[tensor] = file;
  }
  return shards;
}

WeightFiles indexed_files(const fs::path& folder, const std::vector<std::string>& names,
                          const std::string& index) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : read_index(folder / index)) files.insert(file);
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    if (!contains(names, file)) missing.push_back(file);
  }
  CARAVAN_CHECK(missing.empty(), InputError, "{}: {} of {} weight files are missing: {}",
                folder.string(), missing.size(), files.size(), fmt::join(missing, ", "));
  WeightFiles weights = files_of(folder, {files.begin(), files.end()});
  weights.index = folder / index;
  return weights;
}

bool is_meta_name(const std::string& name) {
  return name.starts_with("consolidated.") && name.ends_with(".pth");
}

// "consolidated.00.pth", "consolidated.01.pth" ..., or Llama 3.2 11B Vision's single kUnnumbered.
std::optional<WeightFiles> model_parallel_files(const fs::path& folder,
                                                const std::vector<std::string>& names) {
  std::vector<std::string> shares;
  std::copy_if(names.begin(), names.end(), std::back_inserter(shares), is_meta_name);
  if (shares.empty()) return std::nullopt;
  const bool unnumbered = contains(shares, kUnnumbered);
  CARAVAN_CHECK(!unnumbered || shares.size() == 1, InputError,
                "{} holds two models, {} and {}; name the one to convert", folder.string(),
                kUnnumbered, shares.front());
  CARAVAN_CHECK(shares.size() <= kMaxShares, InputError,
                "{} has {} files consolidated.*.pth, "
                "expected at most {}",
                folder.string(), shares.size(), kMaxShares);
  for (std::size_t i = 0; i < shares.size() && !unnumbered; ++i) {
    const std::string expected = fmt::format("consolidated.{:02}.pth", i);
    CARAVAN_CHECK(shares[i] == expected, InputError,
                  "{} is missing ({} follows instead): the download is incomplete",
                  (folder / expected).string(), shares[i]);
  }
  WeightFiles weights = files_of(folder, shares);
  weights.layout = WeightFiles::Layout::kModelParallel;
  return weights;
}

// Sets "NAME-0000i-of-0000N.EXTENSION" without an index, which must be complete.
std::optional<WeightFiles> numbered_files(const fs::path& folder,
                                          const std::vector<std::string>& names) {
  std::map<std::string, std::set<std::string>> sets;  // members by the name of the last one
  for (const std::string& name : names) {
    std::smatch match;
    if (name.starts_with("adapter") || !std::regex_match(name, match, numbered_name())) continue;
    sets[fmt::format("{}-{}-of-{}.{}", match.str(1), match.str(3), match.str(3), match.str(4))]
        .insert(name);
  }
  if (sets.empty()) return std::nullopt;
  CARAVAN_CHECK(sets.size() == 1, InputError,
                "{} holds several sets of weights ({} and {}); name a file of the one to convert",
                folder.string(), sets.begin()->first, sets.rbegin()->first);
  const auto& [last, members] = *sets.begin();
  std::smatch match;
  std::regex_match(last, match, numbered_name());
  const int count = std::stoi(match.str(3));
  CARAVAN_CHECK(std::ssize(members) == count, InputError,
                "{}: {} of {} weight files are there ({} ...): the download is incomplete",
                folder.string(), members.size(), count, *members.begin());
  return files_of(folder, {members.begin(), members.end()});
}

// torchtune's own names; the newest epoch.
std::optional<WeightFiles> tune_files(const fs::path& folder,
                                      const std::vector<std::string>& names) {
  std::map<int, std::vector<std::string>> epochs;
  for (const std::string& name : names) {
    std::smatch match;
    if (std::regex_match(name, match, tune_name())) epochs[std::stoi(match.str(3))].push_back(name);
  }
  if (epochs.empty()) return std::nullopt;
  return files_of(folder, epochs.rbegin()->second);
}

// The only file that can hold weights.
std::optional<WeightFiles> single_file(const fs::path& folder,
                                       const std::vector<std::string>& names) {
  static constexpr std::array<std::string_view, 6> kOthers = {
      "adapter", "optimizer", "training_args", "scheduler", "rng_state", "recipe_state"};
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool other = std::any_of(kOthers.begin(), kOthers.end(), [&](std::string_view prefix) {
      return name.starts_with(prefix);
    });
    if (!other && has_extension(name, {".safetensors", ".bin", ".pt", ".pth"}))
      found.push_back(name);
  }
  if (found.empty()) return std::nullopt;
  CARAVAN_CHECK(found.size() == 1, InputError,
                "{} holds several files that may be weights ({}); name the one to convert",
                folder.string(), fmt::join(found, ", "));
  return files_of(folder, found);
}

// torchtune's "epoch_3"; the newest.
std::optional<fs::path> newest_epoch(const fs::path& folder,
                                     const std::vector<std::string>& names) {
  static constexpr std::string_view kPrefix = "epoch_";
  int newest = -1;
  for (const std::string& name : names) {
    int number = 0;
    const char* end = name.data() + name.size();
    if (!name.starts_with(kPrefix) || !fs::is_directory(folder / name)) continue;
    const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end) newest = std::max(newest, number);
  }
  if (newest < 0) return std::nullopt;
  return folder / fmt::format("{}{}", kPrefix, newest);
}

[[noreturn]] void refuse_without_weights(const fs::path& folder,
                                         const std::vector<std::string>& names) {
  CARAVAN_CHECK(!contains(names, "adapter_config.json"), InputError,
                "{} holds a LoRA adapter (adapter_config.json) and not a model; merge it into its "
                "base model first",
                folder.string());
  for (const std::string& name : names) {
    CARAVAN_CHECK(!has_extension(name, {".incomplete", ".part", ".aria2", ".crdownload"}),
                  InputError,
                  "{} is the remains of a download that did not finish; download the "
                  "model again",
                  (folder / name).string());
    CARAVAN_CHECK(!name.ends_with(".gguf"), InputError,
                  "{} is a folder with GGUF files; name the file, as {}", folder.string(),
                  (folder / name).string());
  }
  throw InputError(fmt::format(
      "{} holds no weights: expected model.safetensors or model.safetensors.index.json (Hugging "
      "Face), pytorch_model.bin, consolidated.00.pth or consolidated.pth (Meta), torchtune's "
      "files, "
      "or the name of a GGUF file",
      folder.string()));
}

WeightFiles find_in_folder(const fs::path& folder) {
  const std::vector<std::string> names = file_names(folder);
  if (contains(names, "model.safetensors")) return files_of(folder, {"model.safetensors"});
  static constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";
  static constexpr const char* kPickleIndex = "pytorch_model.bin.index.json";
  if (contains(names, kSafetensorsIndex)) return indexed_files(folder, names, kSafetensorsIndex);
  if (auto found = model_parallel_files(folder, names)) return *std::move(found);
  if (contains(names, kPickleIndex)) return indexed_files(folder, names, kPickleIndex);
  if (contains(names, "pytorch_model.bin")) return files_of(folder, {"pytorch_model.bin"});
  if (auto found = numbered_files(folder, names)) return *std::move(found);
  if (auto found = tune_files(folder, names)) return *std::move(found);
  if (auto found = single_file(folder, names)) return *std::move(found);
  if (const auto epoch = newest_epoch(folder, names)) return find_in_folder(*epoch);
  refuse_without_weights(folder, names);
}

// All members of the set that a named file belongs to.
WeightFiles find_by_file(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const std::string name = file.filename().string();
  std::vector<std::string> names = file_names(folder);
  if (is_meta_name(name)) {
    // The name tells which is meant where a folder has both.
    std::erase_if(names, [&](const std::string& other) {
      return (other == kUnnumbered) != (name == kUnnumbered);
    });
    return *model_parallel_files(folder, names);
  }
  std::smatch match;
  if (!std::regex_match(name, match, numbered_name())) return files_of(folder, {name});
  std::vector<std::string> like;
  for (const std::string& other : names) {
    if (other.starts_with(match.str(1) + "-") &&
        other.ends_with(fmt::format("-of-{}.{}", match.str(3), match.str(4))))
      like.push_back(other);
  }
  return *numbered_files(folder, like);
}

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

// Adapters and quantized models have tensors under telling names.
void refuse_by_name(const std::string& name, const std::string& path) {
  CARAVAN_CHECK(name.find(".lora_") == std::string::npos, InputError,
                "{} holds a LoRA adapter ({}) and not a model; merge it into its base model first",
                path, name);
  CARAVAN_CHECK(!has_extension(name, {".qweight", ".qzeros", ".g_idx", ".absmax", ".SCB"}),
                InputError,
                "{} holds weights quantized by GPTQ, AWQ or bitsandbytes ({}); convert the "
                "unquantized model or a GGUF of it",
                path, name);
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
    refuse_by_name(entry.name, file.path());
    CARAVAN_CHECK(entry.type.has_value(), InputError,
                  "{}: tensor \"{}\" has type {}, expected F32, F16, BF16 or F64", file.path(),
                  entry.name, entry.type_name);
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

WeightFiles find_weight_files(const fs::path& folder_or_file) {
  if (!fs::is_directory(folder_or_file)) return find_by_file(folder_or_file);
  return find_in_folder(folder_or_file);
}

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
  for (const auto& [tensor, file] : read_index(weights.index)) {
    const auto found = found_in.find(tensor);
    CARAVAN_CHECK(is_ignored(tensor) || (found != found_in.end() && found->second == file),
                  InputError, "{} says that tensor \"{}\" is in {}, but it is not there",
                  weights.index.string(), tensor, file);
  }
  return tensors;
}

}  // namespace caravan::checkpoint
