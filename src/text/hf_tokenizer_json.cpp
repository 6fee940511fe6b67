#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "byte_alphabet.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer_spec.h"
#include "hf_pipeline.h"
#include "hf_space_pipeline.h"
#include "import_check.h"
#include "json_fields.h"
#include "piece_names.h"
#include "space_rules.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

using IdByName = std::unordered_map<std::string, std::int32_t>;

/// Whether a normalizer changes the text in which added tokens marked "normalized" are matched.
enum class NormalizerUse { kNone, kBeforeAddedTokens };

void check_model_options(const Json& model) {
  const std::string type = string_field(model, "type", "model").value_or("BPE");
  CARAVAN_CHECK(type == "BPE", InputError, "model: type \"{}\" is not supported, only \"BPE\"",
                type);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string value = string_field(model, affix, "model").value_or("");
    CARAVAN_CHECK(value.empty(), InputError, "model: {} \"{}\" is not supported", affix, value);
  }
  const Json* dropout = find_field(model, "dropout", "model");
  CARAVAN_CHECK(dropout == nullptr || (dropout->is_number() && dropout->get<double>() == 0.0),
                InputError, "model: BPE with dropout is not supported");
}

/// Grows `tokens` so that `id` exists.
std::string& token_slot(TokenizerSpec& spec, std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= spec.tokens.size()) spec.tokens.resize(index + 1);
  return spec.tokens[index];
}

/// Names that cannot come out of text (outside the byte alphabet, or with a plain space) stay
/// empty.
std::string token_bytes(const std::string& name, std::int32_t id, TokenizerSpec& spec) {
  if (spec.kind != TokenizerKind::kSentencePiece) return bytes_from_alphabet(name).value_or("");
  if (byte_of_piece(name)) return add_byte_token(spec, id, name, "model.vocab");
  return bytes_of_piece(name);
}

/// Fills spec.tokens and returns the ids by the spelling used in the file.
IdByName read_vocabulary(const Json& model, TokenizerSpec& spec) {
  const Json& vocabulary = need_field(model, "vocab", "model");
  CARAVAN_CHECK(vocabulary.is_object(), InputError, "model.vocab: expected an object, found {}",
                vocabulary.type_name());
  IdByName ids;
  std::map<std::int32_t, std::string_view> names;
  for (const auto& [name, value] : vocabulary.items()) {
    const std::int32_t id = id_of(value, kMaxVocabulary, fmt::format("model.vocab[\"{}\"]", name));
    const auto [other, is_new] = names.emplace(id, name);
    CARAVAN_CHECK(is_new, InputError, "model.vocab: \"{}\" and \"{}\" both have id {}",
                  other->second, name, id);
    ids.emplace(name, id);
    token_slot(spec, id) = token_bytes(name, id, spec);
  }
  CARAVAN_CHECK(!ids.empty(), InputError, "model.vocab is empty");
  return ids;
}

std::int32_t merge_operand(const IdByName& ids, const std::string& name, std::size_t index) {
  const auto found = ids.find(name);
  CARAVAN_CHECK(found != ids.end(), InputError, "model.merges[{}]: \"{}\" is not in the vocabulary",
                index, name);
  return found->second;
}

void read_merges(const Json& model, const IdByName& ids, TokenizerSpec& spec) {
  const Json& merges = need_field(model, "merges", "model");
  CARAVAN_CHECK(merges.is_array(), InputError, "model.merges: expected an array, found {}",
                merges.type_name());
  spec.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json& merge = merges[i];
    std::string left, right;
    if (merge.is_string()) {  // "left right": neither side contains a plain space
      const std::string text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      CARAVAN_CHECK(space != std::string::npos, InputError,
                    "model.merges[{}]: \"{}\" is not two tokens with a space between", i, text);
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      CARAVAN_CHECK(
          merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
          InputError, "model.merges[{}]: expected \"left right\" or [\"left\", \"right\"]", i);
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    spec.merges.emplace_back(merge_operand(ids, left, i), merge_operand(ids, right, i));
  }
}

AddedToken read_added_token(const Json& entry, const std::string& where) {
  AddedToken added;
  added.id = id_of(need_field(entry, "id", where), kMaxVocabulary, where + ".id");
  added.content = string_of(need_field(entry, "content", where), where + ".content");
  added.special = bool_field(entry, "special", false, where);
  CARAVAN_CHECK(!added.content.empty(), InputError, "{}: the content is empty", where);
  for (const char* option : {"single_word", "lstrip", "rstrip"}) {
    CARAVAN_CHECK(!bool_field(entry, option, false, where), InputError,
                  "{}: added token \"{}\" with {} = true is not supported", where, added.content,
                  option);
  }
  return added;
}

/// What is matched behind a normalizer is matched in its spelling.
void normalize_added_token(AddedToken& added, const TokenizerSpec& spec) {
  added.normalized = true;
  added.content = SpaceRules(spec).apply(added.content, SpaceRules::Segment::kFirst);
}

/// Adds the added tokens to `spec` and to `ids`.
void read_added_tokens(const Json& file, NormalizerUse normalizer, TokenizerSpec& spec,
                       IdByName& ids) {
  const Json* list = find_field(file, "added_tokens", "tokenizer.json");
  if (list == nullptr) return;
  CARAVAN_CHECK(list->is_array(), InputError, "added_tokens: expected an array, found {}",
                list->type_name());
  std::map<std::int32_t, std::string> names;
  for (const auto& [name, id] : ids) names.emplace(id, name);
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken added = read_added_token((*list)[i], where);
    const auto [known_id, new_name] = ids.emplace(added.content, added.id);
    CARAVAN_CHECK(new_name || known_id->second == added.id, InputError,
                  "{}: \"{}\" has id {} here and id {} elsewhere in the file", where, added.content,
                  added.id, known_id->second);
    const auto [known_name, new_id] = names.emplace(added.id, added.content);
    CARAVAN_CHECK(new_id || known_name->second == added.content, InputError,
                  "{}: id {} belongs to \"{}\" here and to \"{}\" elsewhere in the file", where,
                  added.id, added.content, known_name->second);
    const bool keeps_spaces = spec.kind != TokenizerKind::kSentencePiece;
    token_slot(spec, added.id) = added.special  ? std::string()
                                 : keeps_spaces ? added.content
                                                : with_plain_spaces(added.content);
    const bool normalized = bool_field((*list)[i], "normalized", !added.special, where);
    if (normalizer == NormalizerUse::kBeforeAddedTokens && normalized && !added.special) {
      normalize_added_token(added, spec);
    }
    spec.added_tokens.push_back(std::move(added));
  }
}

/// Id of a token that tokenizer_config.json names, as a string or as an object with "content".
std::optional<std::int32_t> configured_id(const Json& config, const char* key,
                                          const IdByName& ids) {
  const Json* field = find_field(config, key, "tokenizer_config.json");
  if (field == nullptr) return std::nullopt;
  const std::string where = fmt::format("tokenizer_config.json: {}", key);
  const std::string content =
      string_of(field->is_object() ? need_field(*field, "content", where) : *field, where);
  const auto found = ids.find(content);
  if (found != ids.end()) return found->second;
  log::warning("{} \"{}\" is not in tokenizer.json; it is ignored", where, content);
  return std::nullopt;
}

void read_config(const std::string& text, const IdByName& ids, TokenizerSpec& spec) {
  const Json config = parse_json(text, "tokenizer_config.json");
  if (const auto bos = configured_id(config, "bos_token", ids); bos && !spec.add_bos) {
    spec.bos_id = bos;  // a template's own token stays
  }
  spec.eos_id = configured_id(config, "eos_token", ids);
  // The Llama tokenizer classes rebuild the template from this flag; others ignore it.
  const std::string type =
      string_field(config, "tokenizer_class", "tokenizer_config.json").value_or("");
  if (type.starts_with("LlamaTokenizer")) {
    spec.add_bos = bool_field(config, "add_bos_token", spec.add_bos, "tokenizer_config.json");
  }
}

}  // namespace

TokenizerSpec tokenizer_from_hf_json(const std::string& tokenizer_json,
                                     const std::string& tokenizer_config_json) {
  const Json file = parse_json(tokenizer_json, "tokenizer.json");
  const auto part = [&](const char* key) { return find_field(file, key, "tokenizer.json"); };
  const Json& model = need_field(file, "model", "tokenizer.json");
  check_model_options(model);
  TokenizerSpec spec;
  auto normalizer = NormalizerUse::kNone;
  if (is_space_pipeline(model, part("normalizer"), part("pre_tokenizer"))) {
    SpacePipeline pipeline = read_space_pipeline(part("normalizer"), part("pre_tokenizer"));
    check_space_decoder(part("decoder"));
    spec.kind = TokenizerKind::kSentencePiece;
    spec.split_patterns = std::move(pipeline.split_patterns);
    spec.space_prefix = pipeline.prefix;
    if (pipeline.by_normalizer) normalizer = NormalizerUse::kBeforeAddedTokens;
  } else {
    check_normalizer(part("normalizer"));
    check_decoder(part("decoder"));
    spec.kind = TokenizerKind::kBpe;
    spec.split_patterns = split_patterns_of(part("pre_tokenizer"));
  }
  spec.ignore_merges = bool_field(model, "ignore_merges", false, "model");
  IdByName ids = read_vocabulary(model, spec);
  read_merges(model, ids, spec);
  read_added_tokens(file, normalizer, spec, ids);

  if (const auto unknown = string_field(model, "unk_token", "model"); unknown) {
    if (const auto found = ids.find(*unknown); found != ids.end()) spec.unknown_id = found->second;
  }
  if (const auto prefix = prefix_token_of(part("post_processor")); prefix) {
    const auto found = ids.find(*prefix);
    CARAVAN_CHECK(found != ids.end(), InputError, "post_processor: \"{}\" is not in the vocabulary",
                  *prefix);
    spec.bos_id = found->second;
    spec.add_bos = true;
  }
  if (!tokenizer_config_json.empty()) read_config(tokenizer_config_json, ids, spec);
  return check_imported(std::move(spec), "tokenizer.json");
}

}  // namespace caravan::text
