// Reads the fields of sentencepiece_model.proto that decide how a BPE model encodes. Everything
// that would change ids and is not built here is refused.

#include <string>
#include <string_view>
#include <unordered_set>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer_spec.h"
#include "caravan/text/utf8.h"
#include "hf_added_tokens.h"
#include "import_check.h"
#include "piece_names.h"
#include "protobuf_reader.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

/// ModelProto.SentencePiece.Type.
enum PieceType : std::uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Piece {
  std::string name;
  float score = 0;
  std::uint64_t type = kNormal;
};

struct ModelFields {
  std::vector<Piece> pieces;
  std::uint64_t model_type = 1;  // unigram
  std::string bos_piece = "<s>", eos_piece = "</s>";
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
};

Piece read_piece(std::string_view message, std::size_t id) {
  Piece piece;
  ProtobufReader reader(message, fmt::format("SentencePiece model, piece {}", id));
  while (const auto field = reader.next()) {
    if (field->number == 1) piece.name = reader.bytes(*field, "the text of a piece");
    if (field->number == 2) piece.score = reader.real(*field, "the score of a piece");
    if (field->number == 3) piece.type = reader.number(*field, "the type of a piece");
  }
  CARAVAN_CHECK(!piece.name.empty() && !find_invalid_utf8(piece.name), InputError,
                "SentencePiece model: the text of piece {} is empty or not valid UTF-8", id);
  return piece;
}

void read_trainer(std::string_view message, ModelFields& model) {
  ProtobufReader reader(message, "SentencePiece model, trainer_spec");
  while (const auto field = reader.next()) {
    if (field->number == 3) model.model_type = reader.number(*field, "model_type");
    if (field->number == 35) model.byte_fallback = reader.flag(*field, "byte_fallback");
    if (field->number == 24) {
      CARAVAN_CHECK(!reader.flag(*field, "treat_whitespace_as_suffix"), InputError,
                    "SentencePiece model: treat_whitespace_as_suffix is not supported");
    }
    if (field->number == 46) model.bos_piece = reader.bytes(*field, "bos_piece");
    if (field->number == 47) model.eos_piece = reader.bytes(*field, "eos_piece");
  }
}

void read_normalizer(std::string_view message, std::string_view where, ModelFields& model) {
  ProtobufReader reader(message, fmt::format("SentencePiece model, {}", where));
  while (const auto field = reader.next()) {
    if (field->number == 2) {
      CARAVAN_CHECK(reader.bytes(*field, "precompiled_charsmap").empty(), InputError,
                    "SentencePiece model: {} changes characters (precompiled_charsmap), which is "
                    "not supported; Llama models leave them as they are",
                    where);
    }
    if (field->number == 3) model.add_dummy_prefix = reader.flag(*field, "add_dummy_prefix");
    if (field->number == 4) {
      model.remove_extra_spaces = reader.flag(*field, "remove_extra_whitespaces");
    }
    if (field->number == 5) {
      CARAVAN_CHECK(reader.flag(*field, "escape_whitespaces"), InputError,
                    "SentencePiece model: escape_whitespaces = false is not supported");
    }
  }
}

ModelFields read_model(std::string_view bytes) {
  ModelFields model;
  ProtobufReader reader(bytes, "SentencePiece model");
  ModelFields ignored;  // what the denormalizer says of spaces has no effect
  while (const auto field = reader.next()) {
    if (field->number == 1) {
      CARAVAN_CHECK(model.pieces.size() < static_cast<std::size_t>(kMaxVocabulary), InputError,
                    "SentencePiece model: more than {} pieces are not supported", kMaxVocabulary);
      model.pieces.push_back(read_piece(reader.bytes(*field, "pieces"), model.pieces.size()));
    }
    if (field->number == 2) read_trainer(reader.bytes(*field, "trainer_spec"), model);
    if (field->number == 3) {
      read_normalizer(reader.bytes(*field, "normalizer_spec"), "normalizer_spec", model);
    }
    if (field->number == 5) {
      read_normalizer(reader.bytes(*field, "denormalizer_spec"), "denormalizer_spec", ignored);
    }
  }
  CARAVAN_CHECK(!model.pieces.empty(), InputError,
                "SentencePiece model: there are no pieces; the file is empty or of another kind");
  CARAVAN_CHECK(
      model.model_type == 2, InputError,
      "SentencePiece model: model_type is {}, only 2 (BPE) is supported; Llama models use "
      "no other",
      model.model_type);
  CARAVAN_CHECK(model.byte_fallback, InputError,
                "SentencePiece model: byte_fallback is off, which is not supported; characters "
                "without a piece would be lost");
  return model;
}

/// Unused pieces take part in merging and are taken apart again at the end. No Llama model has one
/// that can be reached, so that such a model is refused instead.
void check_unused(const std::vector<Piece>& pieces) {
  std::unordered_set<std::string_view> merging;
  for (const Piece& piece : pieces) {
    if (piece.type == kNormal || piece.type == kUserDefined || piece.type == kUnused) {
      merging.insert(piece.name);
    }
  }
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].type != kUnused) continue;
    const std::string_view name = pieces[id].name;
    for (std::size_t cut = 1; cut < name.size(); ++cut) {
      CARAVAN_CHECK(!merging.contains(name.substr(0, cut)) || !merging.contains(name.substr(cut)),
                    InputError,
                    "SentencePiece model: piece {} (\"{}\") is unused and can be merged from "
                    "others, which is "
                    "not supported",
                    id, name);
    }
  }
}

void add_piece(const Piece& piece, TokenizerSpec& spec) {
  const auto id = static_cast<std::int32_t>(spec.tokens.size());
  std::string bytes;
  switch (piece.type) {
    case kNormal: bytes = bytes_of_piece(piece.name); break;
    case kUserDefined:
      bytes = bytes_of_piece(piece.name);
      // Matched in the text as the pieces spell it, behind the space prefix.
      if (!bytes.empty()) spec.added_tokens.push_back({id, bytes, false, true});
      break;
    case kUnknown:
    case kControl: spec.added_tokens.push_back({id, piece.name, true}); break;
    case kUnused: break;
    case kByte: bytes = add_byte_token(spec, id, piece.name, "SentencePiece model"); break;
    default:
      throw InputError(fmt::format("SentencePiece model: piece {} has type {}, expected 1 to 6", id,
                                   piece.type));
  }
  if (piece.type == kUnknown && !spec.unknown_id) spec.unknown_id = id;
  spec.tokens.push_back(std::move(bytes));
  spec.scores.push_back(piece.score);
}

std::optional<std::int32_t> control_id(const ModelFields& model, std::string_view name) {
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type == kControl && piece.name == name) return static_cast<std::int32_t>(id);
  }
  return std::nullopt;
}

// Classes of Hugging Face's library can place spaces otherwise than the model file says, and than
// Meta's code does. Where a model is meant so, its tokenizer.json says it as well.
void warn_of_other_spaces(const std::string& tokenizer_config) {
  if (tokenizer_config.empty()) return;
  constexpr const char* kWhere = "tokenizer_config.json";
  const Json config = parse_json(tokenizer_config, kWhere);
  for (const char* setting : {"legacy", "add_prefix_space"}) {
    if (JsonReader(config, kWhere).boolean(setting).value_or(true)) continue;
    log::warning(
        "{}: {} = false is not followed: spaces go before text as tokenizer.model says; convert "
        "with a tokenizer.json (--tokenizer) if the model was trained otherwise",
        kWhere, setting);
  }
}

}  // namespace

TokenizerSpec tokenizer_from_sentencepiece(const std::string& bytes,
                                           const TokenizerSideFiles& side_files) {
  const ModelFields model = read_model(bytes);
  check_unused(model.pieces);
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  IdByName ids;
  for (const Piece& piece : model.pieces) {
    ids.emplace(piece.name, static_cast<std::int32_t>(spec.tokens.size()));
    add_piece(piece, spec);
  }
  spec.space_prefix = model.add_dummy_prefix ? SpacePrefix::kEverySegment : SpacePrefix::kNone;
  spec.remove_extra_spaces = model.remove_extra_spaces;
  spec.bos_id = control_id(model, model.bos_piece);
  spec.eos_id = control_id(model, model.eos_piece);
  spec.add_bos = spec.bos_id.has_value();
  AddedTokenTable(spec, std::move(ids)).read_side_files(side_files);
  warn_of_other_spaces(side_files.tokenizer_config);
  spec.scores.resize(spec.tokens.size());
  return check_imported(std::move(spec), "the SentencePiece model");
}

}  // namespace caravan::text
