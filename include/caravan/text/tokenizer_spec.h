#pragma once
// A tokenizer as plain data: what a checkpoint stores and every source format is turned into.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caravan/core/error.h"

namespace caravan::text {

enum class TokenizerKind {
  kTiktoken,  // merges any adjacent pair whose concatenation is a token, lowest id first (Llama 3
              // tokenizer.model)
  kBpe,       // merges listed pairs only, in list order (tokenizer.json, GGUF "gpt2")
  kSentencePiece,  // merges characters, and not only within words; a character without a token
                   // becomes one token per byte (Llama 2)
};

/// kSentencePiece: where a space is put before text. A segment is the text between two added
/// tokens.
enum class SpacePrefix {
  kNone,
  kEverySegment,              // SentencePiece, GGUF, older tokenizer.json
  kEverySegmentUnlessSpaced,  // not before a segment that begins with a space
  kFirstSegmentUnlessSpaced,  // the same, and only where the input begins
};

/// A token that is matched as a whole before anything else (where control tokens are allowed).
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = true;       // special: never produced from user text, not shown in decoded text
  bool normalized = false;   // kSentencePiece: matched in the text behind its space prefix
  bool single_word = false;  // matched only where no word goes on at either end
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and that behind it
  bool operator==(const AddedToken&) const = default;
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kBpe;
  /// Raw bytes of each token by id (byte-level alphabets undone, U+2581 written as the space that
  /// it stands for); unused ids are empty.
  std::vector<std::string> tokens;
  /// kBpe, and kSentencePiece without scores: pairs of ids in merge order. The result of a merge is
  /// the token whose bytes are the concatenation.
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  /// kSentencePiece without merges, by id: any adjacent pair whose concatenation is a token merges,
  /// the highest score first.
  std::vector<float> scores;
  /// kSentencePiece, by byte: ids of the tokens that spell characters without a token. They never
  /// merge.
  std::vector<std::int32_t> byte_ids;
  SpacePrefix space_prefix = SpacePrefix::kNone;
  /// kSentencePiece: spaces at both ends of a segment are dropped, runs of them become one.
  bool remove_extra_spaces = false;
  std::vector<AddedToken> added_tokens;
  /// PCRE2 patterns (UTF mode), applied one after the other to the pieces left by the one before;
  /// text that a pattern does not match stays as its own piece.
  std::vector<std::string> split_patterns;
  /// A piece that is a token as a whole is emitted without merging.
  bool ignore_merges = false;
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  /// kBpe: stands for bytes that have no token, unless it is special.
  std::optional<std::int32_t> unknown_id;
  /// Raw prompts start with bos_id.
  bool add_bos = false;
  bool operator==(const TokenizerSpec&) const = default;

  /// Every fault (the first 50 of them, and how many more): ids out of range, merges of unknown
  /// tokens, patterns that do not compile, tokens with equal bytes, sizes beyond all reason, for
  /// kTiktoken single bytes without a token, and fields of another kind.
  std::vector<std::string> problems() const;
};

/// Texts of the files beside a tokenizer file in a Hugging Face folder; "" where there is none.
struct TokenizerSideFiles {
  std::string tokenizer_config;    // tokenizer_config.json: BOS, EOS, added_tokens_decoder
  std::string added_tokens;        // added_tokens.json, unless added_tokens_decoder is there
  std::string special_tokens_map;  // special_tokens_map.json: BOS and EOS that the first leaves out
};

/// A fault of a side file. The message begins with its name.
class SideFileError : public InputError {
  using InputError::InputError;
};

/// From the text of a Hugging Face tokenizer.json, byte-level or of Llama 2's kind. Added tokens of
/// the side files join those of the file.
/// @throws InputError naming the part that is not supported (model type, pre-tokenizer ...),
/// malformed, or in contradiction to another; SideFileError for those of the side files.
TokenizerSpec tokenizer_from_hf_json(const std::string& tokenizer_json,
                                     const TokenizerSideFiles& side_files);

/// The same with tokenizer_config.json alone ("" if none).
inline TokenizerSpec tokenizer_from_hf_json(const std::string& tokenizer_json,
                                            const std::string& tokenizer_config_json) {
  return tokenizer_from_hf_json(tokenizer_json, TokenizerSideFiles{tokenizer_config_json, {}, {}});
}

/// From a tiktoken file (Llama 3 tokenizer.model) with Llama 3's pattern and special tokens.
/// `vocab_size` is the model's (specials fill the ids from the number of lines up to it; Llama 3.1
/// names for the first of them).
/// @throws InputError naming the line.
TokenizerSpec tokenizer_from_tiktoken(const std::string& file_text, std::int64_t vocab_size);

/// From a SentencePiece model of type BPE (Llama 2 tokenizer.model, a protobuf message). Added
/// tokens of the side files follow its pieces.
/// @throws InputError naming the field that is malformed or not supported.
TokenizerSpec tokenizer_from_sentencepiece(const std::string& bytes,
                                           const TokenizerSideFiles& side_files = {});

/// Fields of GGUF's tokenizer.ggml.* that matter here.
struct GgufTokenizer {
  std::string model;  // "gpt2", "llama"
  std::string pre;    // "llama-bpe", "smollm", ...
  std::vector<std::string> tokens;
  std::vector<std::int32_t>
      token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; or empty
  std::vector<std::string> merges;  // "left right"
  std::vector<float> scores;        // "llama" kind
  std::optional<std::int32_t> bos_id, eos_id, unknown_id;
  std::optional<bool> add_bos;
  std::optional<bool> add_space_prefix;  // "llama" kind
};
/// @throws InputError naming an unknown kind or pre-tokenizer.
TokenizerSpec tokenizer_from_gguf(const GgufTokenizer& source);

}  // namespace caravan::text
