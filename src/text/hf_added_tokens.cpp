#include "hf_added_tokens.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "piece_names.h"
#include "space_rules.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kMapName = "special_tokens_map.json";

/// A file that is there, which must be an object; otherwise an empty one.
Json parse_optional(const std::string& text, std::string_view source) {
  Json file = text.empty() ? Json::object() : parse_json(text, source);
  const JsonReader is_object(file, source);
  return file;
}

/// The content of a token that is named as a string or as an object.
std::string content_of(const Json& token, const std::string& where) {
  return string_of(token.is_object() ? JsonReader(token, where).need("content") : token, where);
}

/// What special_tokens_map.json calls special.
std::vector<std::string> special_contents(const Json& special_map) {
  std::vector<std::string> contents;
  for (const auto& [key, value] : special_map.items()) {
    const std::string where = fmt::format("{}: {}", kMapName, key);
    if (value.is_null()) continue;
    if (!value.is_array()) {
      contents.push_back(content_of(value, where));
      continue;
    }
    for (const Json& entry : value) contents.push_back(content_of(entry, where));
  }
  return contents;
}

}  // namespace

std::string& token_slot(TokenizerSpec& spec, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= spec.tokens.size()) spec.tokens.resize(index + 1);
  return spec.tokens[index];
}

AddedTokenTable::AddedTokenTable(TokenizerSpec& spec, IdByName ids, Normalizer normalizer)
    : spec_(spec), ids_(std::move(ids)), normalizer_(normalizer) {
  for (const auto& [name, id] : ids_) names_.emplace(id, name);
  for (std::size_t i = 0; i < spec.added_tokens.size(); ++i) {
    places_.emplace(spec.added_tokens[i].id, i);
  }
}

std::optional<std::int32_t> AddedTokenTable::find(const std::string& name) const {
  const auto found = ids_.find(name);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void AddedTokenTable::add(AddedToken added, const std::string& where) {
  CARAVAN_CHECK(!added.content.empty(), InputError, "{}: the content is empty", where);
  const bool keeps_spaces = spec_.kind != TokenizerKind::kSentencePiece;
  const std::string bytes = keeps_spaces ? added.content : with_plain_spaces(added.content);
  const auto [known_id, new_name] = ids_.emplace(added.content, added.id);
  CARAVAN_CHECK(new_name || known_id->second == added.id, InputError,
                "{}: \"{}\" has id {} here and id {} elsewhere", where, added.content, added.id,
                known_id->second);
  const auto [known_name, new_id] = names_.emplace(added.id, added.content);
  CARAVAN_CHECK(new_id || known_name->second == added.content, InputError,
                "{}: id {} belongs to \"{}\" here and to \"{}\" elsewhere", where, added.id,
                added.content, known_name->second);
  const auto [place, is_new] = places_.emplace(added.id, spec_.added_tokens.size());
  if (is_new) {
    if (added.normalized) {  // matched in the spelling behind the normalizer
      added.content = SpaceRules(spec_).apply(added.content, SpaceRules::Segment::kFirst);
    }
    // Only what the vocabulary has as well can come out of merging.
    token_slot(spec_, added.id) = added.special || new_id ? std::string() : bytes;
    spec_.added_tokens.push_back(std::move(added));
    return;
  }
  AddedToken& known = spec_.added_tokens[place->second];
  // How it is matched stands in the file that is read last, as in the library.
  known.single_word = added.single_word;
  known.lstrip = added.lstrip;
  known.rstrip = added.rstrip;
  if (!added.special) return;
  // Special in one of the files is special: users can never type it.
  known = std::move(added);
  token_slot(spec_, known.id).clear();
}

AddedToken AddedTokenTable::known_or_new(std::int32_t id, const std::string& content) const {
  AddedToken token;
  if (const auto place = places_.find(id); place != places_.end())
    token = spec_.added_tokens[place->second];
  token.id = id;
  token.content = content;
  token.normalized = false;
  return token;
}

void AddedTokenTable::add(const Json& entry, std::int32_t id, const std::string& where) {
  AddedToken added;
  added.id = id;
  const JsonReader fields(entry, where);
  added.content = fields.need_text("content");
  added.special = fields.boolean("special").value_or(false);
  added.single_word = fields.boolean("single_word").value_or(false);
  added.lstrip = fields.boolean("lstrip").value_or(false);
  added.rstrip = fields.boolean("rstrip").value_or(false);
  added.normalized = !added.special && normalizer_ == Normalizer::kBeforeAddedTokens &&
                     fields.boolean("normalized").value_or(true);
  add(std::move(added), where);
}

void AddedTokenTable::read_list(const Json* list) {
  if (list == nullptr) return;
  array_of(*list, "added_tokens");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    const Json& entry = (*list)[i];
    const std::int32_t id =
        id_of(JsonReader(entry, where).need("id"), kMaxVocabulary, where + ".id");
    CARAVAN_CHECK(!places_.contains(id), InputError, "{}: id {} is listed twice", where, id);
    add(entry, id, where);
  }
}

void AddedTokenTable::read_decoder(const Json& decoder) {
  const std::string list = fmt::format("{}: added_tokens_decoder", kConfigName);
  CARAVAN_CHECK(decoder.is_object(), InputError, "{} must be an object, found {}", list,
                json_kind(decoder));
  std::map<std::int32_t, const Json*> entries;  // by id, not by the text of the id
  for (const auto& [key, entry] : decoder.items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    CARAVAN_CHECK(
        error == std::errc() && end == key.data() + key.size() && id >= 0 && id < kMaxVocabulary,
        InputError, "{}: expected an id from 0 to {}, found \"{}\"", list, kMaxVocabulary - 1, key);
    CARAVAN_CHECK(entries.emplace(id, &entry).second, InputError, "{}: id {} is listed twice", list,
                  id);
  }
  for (const auto& [id, entry] : entries) add(*entry, id, fmt::format("{}[\"{}\"]", list, id));
}

void AddedTokenTable::read_added_tokens(const std::string& text, const Json& special_map) {
  const Json file = parse_optional(text, "added_tokens.json");
  const std::vector<std::string> special = special_contents(special_map);
  for (const auto& [content, value] : file.items()) {
    const std::string where = fmt::format("added_tokens.json: \"{}\"", content);
    AddedToken added = known_or_new(id_of(value, kMaxVocabulary, where), content);
    added.special = std::find(special.begin(), special.end(), content) != special.end();
    add(std::move(added), where);
  }
}

void AddedTokenTable::mark_special(const Json& special_map) {
  for (const std::string& content : special_contents(special_map)) {
    const auto id = find(content);
    if (!id || !places_.contains(*id)) continue;
    AddedToken marked = known_or_new(*id, content);
    marked.special = true;
    add(std::move(marked), kMapName);
  }
}

void AddedTokenTable::read_named_ids(const Json& config, const Json& special_map) {
  const auto named_id = [&](const char* key) -> std::optional<std::int32_t> {
    const char* source = kConfigName;
    const Json* field = JsonReader(config, source).find(key);
    if (field == nullptr) {
      source = kMapName;
      field = JsonReader(special_map, source).find(key);
    }
    if (field == nullptr) return std::nullopt;
    const std::string where = fmt::format("{}: {}", source, key);
    const std::string content = content_of(*field, where);
    const auto id = find(content);
    if (!id) log::warning("{} \"{}\" is not in the vocabulary; it is ignored", where, content);
    return id;
  };
  if (const auto bos = named_id("bos_token"); bos && !spec_.add_bos) {
    spec_.bos_id = bos;  // a template's own token stays
  }
  if (const auto eos = named_id("eos_token")) spec_.eos_id = eos;
  // The Llama tokenizer classes rebuild the template from this flag; others ignore it.
  const std::string type = JsonReader(config, kConfigName).text("tokenizer_class").value_or("");
  if (type.starts_with("LlamaTokenizer") || type.starts_with("CodeLlamaTokenizer")) {
    spec_.add_bos =
        JsonReader(config, kConfigName).boolean("add_bos_token").value_or(spec_.add_bos);
    if (JsonReader(config, kConfigName).boolean("add_eos_token").value_or(false)) {
      log::warning(
          "{}: add_eos_token is true, which is for training: prompts go on, and are not ended by "
          "EOS",
          kConfigName);
    }
  }
}

void AddedTokenTable::read_side_files(const TokenizerSideFiles& files) try {
  const Json config = parse_optional(files.tokenizer_config, kConfigName);
  const Json special_map = parse_optional(files.special_tokens_map, kMapName);
  if (const Json* decoder = JsonReader(config, kConfigName).find("added_tokens_decoder")) {
    read_decoder(*decoder);
  } else {
    read_added_tokens(files.added_tokens, special_map);
  }
  mark_special(special_map);
  read_named_ids(config, special_map);
} catch (const InputError& error) {
  throw SideFileError(error.what());
}

}  // namespace caravan::text
