#include "weight_files.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/log.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxIndexBytes = std::int64_t{16} << 20;
constexpr std::size_t kMaxShares = 16;  // model-parallel files of the largest release
constexpr const char* kUnnumbered = "consolidated.pth";
constexpr const char* kOriginal = "original";

// Members of a numbered set: "model-00001-of-00004.safetensors".
std::regex numbered_name() {
  return std::regex(R"((.+)-(\d{5})-of-(\d{5})\.(safetensors|bin|pt))");
}
// torchtune: kind, part (only hf_model), epoch and extension, as "hf_model_0001_2.pt".
std::regex tune_name() {
  return std::regex(
      R"((torchtune_model|meta_model|hf_model)(?:_(\d{4}))?_(\d{1,6})\.(pt|bin|safetensors))");
}
// Names in which models are published.
std::regex published_name() {
  return std::regex(
      R"((model|pytorch_model|consolidated)(-\d{5}-of-\d{5})?\.(safetensors|bin|pth))");
}
// torchtune: a folder for each time that it saved the model.
std::regex training_folder() { return std::regex(R"((epoch|step)_(\d{1,9}))"); }

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

WeightFiles indexed_files(const fs::path& folder, const std::vector<std::string>& names,
                          const std::string& index) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : read_weight_index(folder / index)) files.insert(file);
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

// torchtune's own names: the newest epoch of each kind.
std::vector<WeightFiles> tune_files(const fs::path& folder, const std::vector<std::string>& names) {
  std::map<std::string, std::map<int, std::vector<std::string>>> kinds;
  for (const std::string& name : names) {
    std::smatch match;
    if (std::regex_match(name, match, tune_name()))
      kinds[match.str(1)][std::stoi(match.str(3))].push_back(name);
  }
  std::vector<WeightFiles> found;
  for (const auto& [kind, epochs] : kinds) {
    found.push_back(files_of(folder, epochs.rbegin()->second));
    found.back().from_training = true;
  }
  return found;
}

/// Files that may hold weights, by their names.
std::vector<std::string> weight_like(const std::vector<std::string>& names) {
  static constexpr std::array<std::string_view, 5> kOthers = {
      "optimizer", "training_args", "scheduler", "rng_state", "recipe_state"};
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const bool other = std::any_of(kOthers.begin(), kOthers.end(), [&](std::string_view prefix) {
      return name.starts_with(prefix);
    });
    if (!other && has_extension(name, {".safetensors", ".bin", ".pt", ".pth"}))
      found.push_back(name);
  }
  return found;
}

// The only file that can hold weights.
std::optional<WeightFiles> single_file(const fs::path& folder,
                                       const std::vector<std::string>& names) {
  std::vector<std::string> found = weight_like(names);
  std::erase_if(found, [](const std::string& name) { return name.starts_with("adapter"); });
  if (found.empty()) return std::nullopt;
  CARAVAN_CHECK(found.size() == 1, InputError,
                "{} holds several files that may be weights ({}); name the one to convert",
                folder.string(), fmt::join(found, ", "));
  return files_of(folder, found);
}

// "epoch_3" and "step_200": the newest of each kind.
std::vector<fs::path> newest_training_folders(const fs::path& folder,
                                              const std::vector<std::string>& names) {
  std::map<std::string, std::pair<int, std::string>> newest;
  for (const std::string& name : names) {
    std::smatch match;
    if (!std::regex_match(name, match, training_folder()) || !fs::is_directory(folder / name))
      continue;
    const std::pair<int, std::string> entry = {std::stoi(match.str(2)), name};
    const auto known = newest.emplace(match.str(1), entry).first;
    known->second = std::max(known->second, entry);
  }
  std::vector<fs::path> found;
  for (const auto& [kind, entry] : newest) found.push_back(folder / entry.second);
  return found;
}

/// Folders in `folder` that look like models.
std::vector<std::string> model_folders(const fs::path& folder,
                                       const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (fs::exists(folder / name / "config.json") || fs::exists(folder / name / "params.json"))
      found.push_back(name);
  }
  return found;
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
  if (const auto folders = model_folders(folder, names); !folders.empty()) {
    throw InputError(fmt::format("{} holds no weights, but folders of models ({}); name one, as {}",
                                 folder.string(), fmt::join(folders, ", "),
                                 (folder / folders.back()).string()));
  }
  throw InputError(fmt::format(
      "{} holds no weights: expected model.safetensors or model.safetensors.index.json (Hugging "
      "Face), pytorch_model.bin, consolidated.00.pth or consolidated.pth (Meta), torchtune's "
      "files, "
      "or the name of a GGUF file",
      folder.string()));
}

// The forms in which a model is published. Where there are several, they are the same model.
std::optional<WeightFiles> published_files(const fs::path& folder,
                                           const std::vector<std::string>& names) {
  static constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";
  static constexpr const char* kPickleIndex = "pytorch_model.bin.index.json";
  if (contains(names, "model.safetensors")) return files_of(folder, {"model.safetensors"});
  if (contains(names, kSafetensorsIndex)) return indexed_files(folder, names, kSafetensorsIndex);
  if (auto found = model_parallel_files(folder, names)) return found;
  if (contains(names, kPickleIndex)) return indexed_files(folder, names, kPickleIndex);
  if (contains(names, "pytorch_model.bin")) return files_of(folder, {"pytorch_model.bin"});
  return std::nullopt;
}

bool is_published_name(const std::string& name) {
  return is_meta_name(name) || std::regex_match(name, published_name());
}

std::vector<std::string> others_than(const WeightFiles& published,
                                     const std::vector<std::string>& names) {
  std::vector<std::string> others;
  std::copy_if(names.begin(), names.end(), std::back_inserter(others), [&](const auto& name) {
    const fs::path file = published.folder / name;
    return !is_published_name(name) &&
           std::find(published.files.begin(), published.files.end(), file) == published.files.end();
  });
  return others;
}

// A base model may lie beside what was made of it: only the user knows which is meant.
void refuse_several(const fs::path& folder, const std::vector<WeightFiles>& found) {
  if (found.size() < 2) return;
  std::vector<std::string> listed;
  for (const WeightFiles& weights : found)
    listed.push_back(weights.files.front().lexically_relative(folder).string());
  throw InputError(fmt::format("{} holds more than one model ({}); name the one to convert",
                               folder.string(), fmt::join(listed, ", ")));
}

WeightFiles find_in_folder(const fs::path& folder) {
  const std::vector<std::string> names = file_names(folder);
  std::vector<WeightFiles> found;
  std::vector<std::string> others = names;
  if (auto published = published_files(folder, names)) {
    others = others_than(*published, names);
    found.push_back(*std::move(published));
  }
  const bool is_published = !found.empty();
  if (auto numbered = numbered_files(folder, others)) found.push_back(*std::move(numbered));
  for (WeightFiles& tuned : tune_files(folder, others)) found.push_back(std::move(tuned));
  if (found.empty()) {
    if (auto single = single_file(folder, others)) found.push_back(*std::move(single));
  }
  for (const fs::path& trained : newest_training_folders(folder, names)) {
    found.push_back(find_in_folder(trained));
    found.back().from_training = true;
  }
  // Meta's form beside the Hugging Face one, which may not have been fetched.
  if (!is_published && contains(names, kOriginal) && fs::is_directory(folder / kOriginal))
    found.push_back(find_in_folder(folder / kOriginal));
  refuse_several(folder, found);
  if (found.empty()) refuse_without_weights(folder, names);
  if (const auto left = weight_like(others); is_published && !left.empty())
    log::warning("{} also holds {}, which is not converted", folder.string(),
                 fmt::join(left, ", "));
  return found.front();
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
  if (std::regex_match(name, match, tune_name())) {
    std::erase_if(names, [&](const std::string& other) {
      std::smatch of_other;
      return !std::regex_match(other, of_other, tune_name()) || of_other.str(1) != match.str(1) ||
             of_other.str(3) != match.str(3) || of_other.str(4) != match.str(4);
    });
    return tune_files(folder, names).front();
  }
  if (!std::regex_match(name, match, numbered_name())) return files_of(folder, {name});
  std::vector<std::string> like;
  for (const std::string& other : names) {
    if (other.starts_with(match.str(1) + "-") &&
        other.ends_with(fmt::format("-of-{}.{}", match.str(3), match.str(4))))
      like.push_back(other);
  }
  return *numbered_files(folder, like);
}

}  // namespace

bool is_part_of_model(const std::string& folder_name) {
  return folder_name == kOriginal || std::regex_match(folder_name, training_folder());
}

WeightFiles find_weight_files(const fs::path& folder_or_file) {
  if (!fs::is_directory(folder_or_file)) return find_by_file(folder_or_file);
  return find_in_folder(folder_or_file);
}

std::map<std::string, std::string> read_weight_index(const fs::path& path) {
  const Json parsed = parse_json(read_small_file(path, kMaxIndexBytes), path.string());
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

}  // namespace caravan::checkpoint
