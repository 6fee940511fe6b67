#include <map>
#include <string>
#include <string_view>

#include "byte_alphabet.h"
#include "caravan/core/error.h"
#include "caravan/text/tokenizer_spec.h"
#include "hf_added_tokens.h"
#include "hf_pipeline.h"
#include "hf_space_pipeline.h"
#include "import_check.h"
#include "json_fields.h"
#include "piece_names.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

void check_model_options(const JsonReader& model) {
  const std::string type = model.text("type").value_or("BPE");
  CARAVAN_CHECK(type == "BPE", InputError, "model: type \"{}\" is not supported, only \"BPE\"",
                type);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string value = model.text(affix).value_or("");
    CARAVAN_CHECK(value.empty(), InputError, "model: {} \"{}\" is not supported", affix, value);
  }
  const Json* dropout = model.find("dropout");
  CARAVAN_CHECK(dropout == nullptr || (dropout->is_number() && dropout->get<double>() == 0.0),
                InputError, "model: BPE with dropout is not supported");
}

/// Names that cannot come out of text (outside the byte alphabet, or with a plain space) stay
/// empty.
std::string token_bytes(const std::string& name, std::int32_t id, TokenizerSpec& spec) {
  if (spec.kind != TokenizerKind::kSentencePiece) return bytes_from_alphabet(name).value_or("");
  if (byte_of_piece(name)) return add_byte_token(spec, id, name, "model.vocab");
  return bytes_of_piece(name);
}

/// Fills spec.tokens and returns the ids by the spelling used in the file.
IdByName read_vocabulary(const JsonReader& model, TokenizerSpec& spec) {
  const Json& vocabulary = model.need("vocab");
  CARAVAN_CHECK(vocabulary.is_object(), InputError, "model.vocab must be an object, found {}",
                json_kind(vocabulary));
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

void read_merges(const JsonReader& model, const IdByName& ids, TokenizerSpec& spec) {
  const Json& merges = array_of(model.need("merges"), "model.merges");
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

}  // namespace

TokenizerSpec tokenizer_from_hf_json(const std::string& tokenizer_json,
                                     const TokenizerSideFiles& side_files) {
  const Json parsed = parse_json(tokenizer_json, "");
  const JsonReader file(parsed, "the file");
  const auto part = [&](const char* key) { return file.find(key); };
  const JsonReader model(file.need("model"), "model");
  check_model_options(model);
  TokenizerSpec spec;
  auto normalizer = AddedTokenTable::Normalizer::kNone;
  if (is_space_pipeline(model, part("normalizer"), part("pre_tokenizer"))) {
    SpacePipeline pipeline = read_space_pipeline(part("normalizer"), part("pre_tokenizer"));
    check_space_decoder(part("decoder"));
    CARAVAN_CHECK(model.boolean("byte_fallback").value_or(false), InputError,
                  "model: byte_fallback is off, which is not supported where spaces become U+2581; "
                  "characters without a piece would be lost");
    spec.kind = TokenizerKind::kSentencePiece;
    spec.split_patterns = std::move(pipeline.split_patterns);
    spec.space_prefix = pipeline.prefix;
    if (pipeline.by_normalizer) normalizer = AddedTokenTable::Normalizer::kBeforeAddedTokens;
  } else {
    check_normalizer(part("normalizer"));
    check_decoder(part("decoder"));
    spec.kind = TokenizerKind::kBpe;
    spec.split_patterns = split_patterns_of(part("pre_tokenizer"));
  }
  spec.ignore_merges = model.boolean("ignore_merges").value_or(false);
  IdByName ids = read_vocabulary(model, spec);
  read_merges(model, ids, spec);
  AddedTokenTable added(spec, std::move(ids), normalizer);
  added.read_list(part("added_tokens"));

  if (const auto unknown = model.text("unk_token")) {
    spec.unknown_id = added.find(*unknown);
  }
  if (const auto prefix = prefix_token_of(part("post_processor"))) {
    spec.bos_id = added.find(*prefix);
    CARAVAN_CHECK(spec.bos_id, InputError, "post_processor: \"{}\" is not in the vocabulary",
                  *prefix);
    spec.add_bos = true;
  }
  added.read_side_files(side_files);
  return check_imported(std::move(spec), "tokenizer.json");
}

}  // namespace caravan::text
