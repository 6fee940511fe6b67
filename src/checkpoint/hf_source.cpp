// Hugging Face folders: config.json, safetensors, tokenizer and chat template files.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/safetensors.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "json_reader.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kMaxConfigBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMaxIndexBytes = 100'000'000;

bool is_present(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

std::string read_checked(const fs::path& path, std::int64_t max_bytes) {
  io::InputFile file(path.string());
  refuse_lfs_pointer(file);
  return io::read_text_file(path.string(), max_bytes);
}

std::string read_optional(const fs::path& path, std::int64_t max_bytes) {
  return is_present(path) ? read_checked(path, max_bytes) : std::string();
}

/// Shard of each tensor, from model.safetensors.index.json.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const Json parsed = JsonReader::parse(read_checked(path, kMaxIndexBytes), path.string());
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

SourceTensor to_source_tensor(const SafetensorsEntry& entry, std::int64_t file,
                              const std::string& path) {
  CARAVAN_CHECK(entry.type.has_value(), InputError,
                "{}: tensor \"{}\" has type {}, expected F32, F16, BF16 or F64", path, entry.name,
                entry.type_name);
  return {entry.name, *entry.type, entry.shape, file, entry.offset, entry.bytes};
}

// Opens one file and appends its tensors; those that no model needs may have any type.
void add_file(Source& source, const fs::path& path, std::vector<SourceTensor>& tensors) {
  io::InputFile file(path.string());
  refuse_lfs_pointer(file);
  const auto index = static_cast<std::int64_t>(source.files.size());
  for (const SafetensorsEntry& entry : read_safetensors_header(file)) {
    if (!is_ignored_tensor(entry.name, NameStyle::kHuggingFace))
      tensors.push_back(to_source_tensor(entry, index, path.string()));
  }
  source.files.push_back(std::move(file));
}

std::vector<SourceTensor> read_shards(Source& source, const fs::path& folder,
                                      const fs::path& index) {
  const auto shards = read_index(index);
  std::set<std::string> files;
  for (const auto& [tensor, file] : shards) files.insert(file);
  std::vector<std::string> missing;
  for (const std::string& file : files) {
    if (!is_present(folder / file)) missing.push_back(file);
  }
  CARAVAN_CHECK(missing.empty(), InputError, "{}: {} of {} weight files are missing: {}",
                folder.string(), missing.size(), files.size(), fmt::join(missing, ", "));
  std::vector<SourceTensor> tensors;
  for (const std::string& file : files) add_file(source, folder / file, tensors);
  std::map<std::string, std::string> found_in;
  for (const SourceTensor& tensor : tensors) {
    const std::string file =
        fs::path(source.files[static_cast<std::size_t>(tensor.file)].path()).filename().string();
    const auto [other, is_new] = found_in.emplace(tensor.name, file);
    CARAVAN_CHECK(is_new, InputError, "{}: tensor \"{}\" is both in {} and {}", folder.string(),
                  tensor.name, other->second, file);
  }
  for (const auto& [tensor, file] : shards) {
    const auto found = found_in.find(tensor);
    CARAVAN_CHECK(is_ignored_tensor(tensor, NameStyle::kHuggingFace) ||
                      (found != found_in.end() && found->second == file),
                  InputError, "{} says that tensor \"{}\" is in {}, but it is not there",
                  index.string(), tensor, file);
  }
  return tensors;
}

[[noreturn]] void refuse_without_weights(const fs::path& folder) {
  CARAVAN_CHECK(!is_present(folder / "adapter_config.json"), InputError,
                "{} holds a LoRA adapter (adapter_config.json) and not a model; merge it into its "
                "base model first",
                folder.string());
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      throw InputError(fmt::format(
          "{} holds its weights as pickled PyTorch files ({}), which this version does not read; "
          "take the safetensors form of the model",
          folder.string(), name));
    }
    if (name.ends_with(".safetensors")) found += (found.empty() ? "" : ", ") + name;
  }
  throw InputError(fmt::format(
      "{} has neither model.safetensors nor model.safetensors.index.json{}", folder.string(),
      found.empty() ? "" : " (but " + found + "): the download is incomplete"));
}

std::vector<SourceTensor> read_weights(Source& source, const fs::path& folder) {
  if (is_present(folder / "model.safetensors")) {
    std::vector<SourceTensor> tensors;
    add_file(source, folder / "model.safetensors", tensors);
    return tensors;
  }
  const fs::path index = folder / "model.safetensors.index.json";
  if (!is_present(index)) refuse_without_weights(folder);
  return read_shards(source, folder, index);
}

void refuse_other_formats(const std::vector<SourceTensor>& tensors, const std::string& where) {
  for (const SourceTensor& tensor : tensors) {
    CARAVAN_CHECK(tensor.name != "tok_embeddings.weight", InputError,
                  "{} has the tensor names of Meta or torchtune checkpoints, which this version "
                  "does not read; take the Hugging Face form of the model",
                  where);
    CARAVAN_CHECK(
        tensor.name.find(".lora_") == std::string::npos, InputError,
        "{} holds a LoRA adapter ({}) and not a model; merge it into its base model first", where,
        tensor.name);
  }
}

// A tiktoken file is text, "base64 rank" a line; SentencePiece's is a protobuf message.
bool is_tiktoken(const std::string& content) {
  const std::string line = content.substr(0, content.find('\n'));
  const std::size_t space = line.find(' ');
  return space != std::string::npos && space > 0 && space + 1 < line.size() && line.size() < 1024 &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

text::TokenizerSpec read_tokenizer(const fs::path& folder, const std::string& tokenizer_config,
                                   std::int64_t vocab_size) {
  const fs::path json = folder / "tokenizer.json";
  const fs::path model = folder / "tokenizer.model";
  if (!is_present(json) && !is_present(model)) {
    throw InputError(fmt::format("{} has no tokenizer: expected tokenizer.json or tokenizer.model",
                                 folder.string()));
  }
  const fs::path& path = is_present(json) ? json : model;
  const std::string content = read_checked(path, kMaxTokenizerBytes);
  try {
    if (is_present(json)) return text::tokenizer_from_hf_json(content, tokenizer_config);
    CARAVAN_CHECK(is_tiktoken(content), InputError,
                  "it is a SentencePiece model (Llama 2), which this version does not read");
    return text::tokenizer_from_tiktoken(content, vocab_size);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

// chat_template in tokenizer_config.json is a text, or a list of named ones.
std::string configured_template(const JsonReader& config) {
  const Json* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (!value->is_array()) return config.text("chat_template").value_or("");
  for (const Json& entry : *value) {
    const JsonReader named(entry, config.where() + ", \"chat_template\"");
    if (named.text("name") == "default") return named.text("template").value_or("");
  }
  return {};
}

std::string read_chat_template(const fs::path& folder, const std::string& tokenizer_config) {
  if (is_present(folder / "chat_template.jinja"))
    return read_checked(folder / "chat_template.jinja", kMaxConfigBytes);
  const fs::path json = folder / "chat_template.json";
  if (is_present(json)) {
    const Json parsed = JsonReader::parse(read_checked(json, kMaxConfigBytes), json.string());
    return configured_template(JsonReader(parsed, json.string()));
  }
  if (tokenizer_config.empty()) return {};
  const std::string where = (folder / "tokenizer_config.json").string();
  const Json parsed = JsonReader::parse(tokenizer_config, where);
  return configured_template(JsonReader(parsed, where));
}

std::string folder_name(const fs::path& folder) {
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  return absolute.has_filename() ? absolute.filename().string()
                                 : absolute.parent_path().filename().string();
}

}  // namespace

Source open_hugging_face(const std::string& path, const SourceOptions& options) {
  const fs::path folder(path);
  const HfConfig parsed = parse_hf_config(read_checked(folder / "config.json", kMaxConfigBytes),
                                          (folder / "config.json").string());
  Source source;
  source.head_order = HeadOrder::kHalfSplit;
  ModelDescription& description = source.description;
  description.config = parsed.config;
  std::vector<SourceTensor> tensors = read_weights(source, folder);
  refuse_other_formats(tensors, path);
  const bool has_head = std::any_of(tensors.begin(), tensors.end(), [](const SourceTensor& tensor) {
    return tensor.name == source_tensor_name("text.head", NameStyle::kHuggingFace);
  });
  if (!has_head && !description.config.tied_embeddings) {
    log::warning("{} has no lm_head.weight: the embedding serves as head", path);
    description.config.tied_embeddings = true;
  }
  match_tensors(source, std::move(tensors), NameStyle::kHuggingFace, path);

  const std::string tokenizer_config =
      read_optional(folder / "tokenizer_config.json", kMaxConfigBytes);
  description.name = presentable_name(options.name.value_or(folder_name(folder)));
  description.source = fmt::format("Hugging Face folder {}, {} weight file(s)",
                                   presentable_name(folder_name(folder)), source.files.size());
  description.tokenizer = read_tokenizer(folder, tokenizer_config, description.config.vocab_size);
  description.chat_template = read_chat_template(folder, tokenizer_config);
  const fs::path generation = folder / "generation_config.json";
  if (is_present(generation)) {
    description.generation =
        parse_generation_config(read_checked(generation, kMaxConfigBytes), generation.string());
  }
  std::vector<std::vector<std::int32_t>> stops = {description.generation.stop_ids, parsed.stop_ids};
  if (description.tokenizer.eos_id) stops.push_back({*description.tokenizer.eos_id});
  description.generation.stop_ids = merge_stop_ids(stops, description.config.vocab_size, path);
  choose_chat_format(description, options, path);
  check_tokenizer(description, path);
  return source;
}

}  // namespace caravan::checkpoint
