#include "text_files.h"

#include <algorithm>
#include <system_error>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kMaxTokenizerBytes = std::int64_t{64} << 20;

// A tiktoken file is text, "base64 rank" a line; SentencePiece's is a protobuf message.
bool is_tiktoken(const std::string& content) {
  const std::string line = content.substr(0, content.find('\n'));
  const std::size_t space = line.find(' ');
  return space != std::string::npos && space > 0 && space + 1 < line.size() && line.size() < 1024 &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '\r'; });
}

std::string read_optional(const fs::path& path) {
  return path.empty() ? std::string() : read_small_file(path, kMaxConfigBytes);
}

text::TokenizerSideFiles side_files(const fs::path& place) {
  return {read_optional(find_file({place}, "tokenizer_config.json")),
          read_optional(find_file({place}, "added_tokens.json")),
          read_optional(find_file({place}, "special_tokens_map.json"))};
}

// chat_template in tokenizer_config.json is a text, or a list of named ones. A list without a
// default is given as it is, for what is no template is refused unless a format is chosen.
std::string configured_template(const fs::path& path) {
  const Json parsed = parse_json(read_small_file(path, kMaxConfigBytes), path.string());
  const JsonReader config(parsed, path.string());
  const Json* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (!value->is_array()) return config.text("chat_template").value_or("");
  for (const Json& entry : *value) {
    const JsonReader named(entry, config.where() + ", \"chat_template\"");
    if (named.text("name") == "default") return named.text("template").value_or("");
  }
  return value->empty() ? std::string() : value->dump();
}

}  // namespace

fs::path find_file(const std::vector<fs::path>& places, const std::string& name) {
  for (const fs::path& place : places) {
    std::error_code failure;
    if (fs::exists(place / name, failure)) return place / name;
  }
  return {};
}

text::TokenizerSpec read_tokenizer(const std::vector<fs::path>& places, std::int64_t vocab_size) {
  for (const fs::path& place : places) {
    for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
      if (const fs::path path = find_file({place}, name); !path.empty())
        return read_tokenizer_file(path, vocab_size);
    }
  }
  throw InputError(
      fmt::format("{} has no tokenizer: expected tokenizer.json or tokenizer.model; --tokenizer "
                  "FILE takes it from elsewhere",
                  places.front().string()));
}

text::TokenizerSpec read_tokenizer_file(const fs::path& path, std::int64_t vocab_size) {
  const std::string content = read_small_file(path, kMaxTokenizerBytes);
  const fs::path place = path.parent_path();
  try {
    if (path.extension() == ".json")
      return text::tokenizer_from_hf_json(content, side_files(place));
    return is_tiktoken(content) ? text::tokenizer_from_tiktoken(content, vocab_size)
                                : text::tokenizer_from_sentencepiece(content, side_files(place));
  } catch (const text::SideFileError& error) {
    throw InputError((place / error.what()).string());
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

void take_named_tokenizer(ModelDescription& description, const fs::path& file_or_folder) {
  std::error_code failure;
  const bool is_folder = fs::is_directory(file_or_folder, failure);
  const std::int64_t vocab_size = description.config.vocab_size;
  description.tokenizer = is_folder ? read_tokenizer({file_or_folder}, vocab_size)
                                    : read_tokenizer_file(file_or_folder, vocab_size);
  if (description.chat_template.empty()) {
    description.chat_template =
        read_chat_template({is_folder ? file_or_folder : file_or_folder.parent_path()});
  }
}

std::string read_chat_template(const std::vector<fs::path>& places) {
  for (const fs::path& place : places) {
    if (const fs::path jinja = find_file({place}, "chat_template.jinja"); !jinja.empty()) {
      std::error_code failure;
      if (fs::is_empty(jinja, failure)) return {};  // a model without chats, and no failed download
      return read_small_file(jinja, kMaxConfigBytes);
    }
    for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
      if (const fs::path json = find_file({place}, name); !json.empty())
        return configured_template(json);
    }
  }
  return {};
}

}  // namespace caravan::checkpoint
