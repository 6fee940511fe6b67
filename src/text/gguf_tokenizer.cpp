#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "byte_alphabet.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer_spec.h"
#include "import_check.h"
#include "known_patterns.h"
#include "piece_names.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

/// tokenizer.ggml.token_type (GGUF specification, "ggml" tokenizer).
enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// What tokenizer.ggml.pre stands for.
struct PreTokenizer {
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file says nothing
};

using NamedPreTokenizer = std::pair<std::vector<std::string_view>, PreTokenizer>;

/// The names that llama.cpp has for pre-tokenizers (llama-vocab.cpp), where models of the Llama
/// architecture use them or others' tokenizers are of the same kind.
std::vector<NamedPreTokenizer> known_pre_tokenizers() {
  const std::string llama3(kLlama3Pattern), gpt2(kGpt2Pattern), digit(kSingleDigit);
  return {
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "midm-2.0"}, {{llama3}, true, true}},
      {{"smaug-bpe", "dbrx"}, {{llama3}}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {{digit, gpt2}}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum", "trillion"}, {{gpt2}}},
      {{"qwen2", "deepseek-r1-qwen", "megrez", "kormo"}, {{std::string(kQwen2Pattern)}}},
      {{"seed-coder"}, {{std::string(kSeedCoderPattern)}}},
      {{"tekken"}, {{std::string(kTekkenPattern)}, true, true}},
      {{"deepseek-coder"},
       {{"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", std::string(kDeepSeekScripts), digit}}},
      {{"poro-chat", "bloom"}, {{std::string(kBloomPattern)}}},
      {{"viking"}, {{std::string(kBloomPattern), digit}}},
      {{"", "default"},
       {{R"([\p{P}\$\+<=>\^~\|]+)", gpt2, std::string(kDigitRun), "[0-9][0-9][0-9]"}}},
  };
}

PreTokenizer pre_tokenizer_named(const std::string& name) {
  if (name.empty() || name == "default") {
    log::warning(
        "the GGUF file does not name its pre-tokenizer (tokenizer.ggml.pre); text may be split "
        "otherwise than in training");
  }
  std::vector<std::string_view> supported;
  for (const auto& [names, pre_tokenizer] : known_pre_tokenizers()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return pre_tokenizer;
    std::copy_if(names.begin(), names.end(), std::back_inserter(supported),
                 [](std::string_view known) { return !known.empty(); });
  }
  throw InputError(fmt::format("tokenizer.ggml.pre \"{}\" is not supported (supported: {})", name,
                               fmt::join(supported, ", ")));
}

void check_source(const GgufTokenizer& source) {
  CARAVAN_CHECK(source.model == "gpt2" || source.model == "llama", InputError,
                "tokenizer.ggml.model \"{}\" is not supported (supported: gpt2, llama)",
                source.model);
  CARAVAN_CHECK(!source.tokens.empty(), InputError, "tokenizer.ggml.tokens is missing or empty");
  CARAVAN_CHECK(source.tokens.size() <= static_cast<std::size_t>(kMaxVocabulary), InputError,
                "tokenizer.ggml.tokens has {} entries; at most {} are supported",
                source.tokens.size(), kMaxVocabulary);
  CARAVAN_CHECK(source.token_types.empty() || source.token_types.size() == source.tokens.size(),
                InputError, "tokenizer.ggml.token_type has {} entries for {} tokens",
                source.token_types.size(), source.tokens.size());
  CARAVAN_CHECK(source.model != "llama" || source.scores.size() == source.tokens.size(), InputError,
                "tokenizer.ggml.scores has {} entries for {} tokens", source.scores.size(),
                source.tokens.size());
}

/// Type of a token; without types only the named ids tell which tokens are control tokens.
std::int32_t type_of(const GgufTokenizer& source, std::size_t index) {
  if (!source.token_types.empty()) return source.token_types[index];
  const auto id = static_cast<std::int32_t>(index);
  if (id == source.bos_id || id == source.eos_id) return kControl;
  if (source.model != "llama") return kNormal;
  if (id == source.unknown_id) return kUnknown;
  return byte_of_piece(source.tokens[index]) ? kByte : kNormal;
}

/// Bytes of an ordinary token; byte tokens are noted in `spec`.
std::string bytes_of_token(const GgufTokenizer& source, std::int32_t id, std::int32_t type,
                           TokenizerSpec& spec) {
  const std::string& name = source.tokens[static_cast<std::size_t>(id)];
  if (source.model != "llama") return bytes_from_alphabet(name).value_or("");
  if (type == kByte) return add_byte_token(spec, id, name, "tokenizer.ggml.tokens");
  return bytes_of_piece(name);
}

void add_tokens(const GgufTokenizer& source, TokenizerSpec& spec) {
  for (std::size_t i = 0; i < source.tokens.size(); ++i) {
    const std::string& name = source.tokens[i];
    const auto id = static_cast<std::int32_t>(i);
    const std::int32_t type = type_of(source, i);
    std::string bytes;
    switch (type) {
      case kNormal:
      case kByte: bytes = bytes_of_token(source, id, type, spec); break;
      case kUnknown:
      case kControl:
        if (!name.empty()) spec.added_tokens.push_back({id, name, true});
        break;
      case kUserDefined:
        bytes = source.model == "llama" ? with_plain_spaces(name) : name;
        if (!name.empty()) spec.added_tokens.push_back({id, name, false});
        break;
      case kUnused: break;
      default:
        throw InputError(
            fmt::format("tokenizer.ggml.token_type[{}] is {}; expected 1 to 6", i, type));
    }
    spec.tokens.push_back(std::move(bytes));
  }
}

void add_merges(const GgufTokenizer& source, TokenizerSpec& spec) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t i = 0; i < source.tokens.size(); ++i) {
    ids.emplace(source.tokens[i], static_cast<std::int32_t>(i));
  }
  spec.merges.reserve(source.merges.size());
  for (std::size_t i = 0; i < source.merges.size(); ++i) {
    const std::string_view merge = source.merges[i];
    const std::size_t space = merge.find(' ', 1);
    CARAVAN_CHECK(space != std::string_view::npos, InputError,
                  "tokenizer.ggml.merges[{}]: \"{}\" is not two tokens with a space between", i,
                  merge);
    const auto operand = [&](std::string_view name) {
      const auto found = ids.find(name);
      CARAVAN_CHECK(found != ids.end(), InputError,
                    "tokenizer.ggml.merges[{}]: \"{}\" is not in the vocabulary", i, name);
      return found->second;
    };
    spec.merges.emplace_back(operand(merge.substr(0, space)), operand(merge.substr(space + 1)));
  }
}

TokenizerSpec from_byte_level(const GgufTokenizer& source) {
  PreTokenizer pre = pre_tokenizer_named(source.pre);
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kBpe;
  add_tokens(source, spec);
  add_merges(source, spec);
  spec.split_patterns = std::move(pre.patterns);
  spec.ignore_merges = pre.ignore_merges;
  spec.bos_id = source.bos_id;
  spec.eos_id = source.eos_id;
  spec.unknown_id = source.unknown_id;
  spec.add_bos = source.add_bos.value_or(pre.add_bos && source.bos_id.has_value());
  return spec;
}

/// Ids and flags that the file leaves out have the values of Llama 2.
TokenizerSpec from_sentencepiece(GgufTokenizer source) {
  const auto default_id = [&](std::optional<std::int32_t>& id, std::int32_t value) {
    if (!id && static_cast<std::size_t>(value) < source.tokens.size()) id = value;
  };
  default_id(source.unknown_id, 0);
  default_id(source.bos_id, 1);
  default_id(source.eos_id, 2);
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  add_tokens(source, spec);
  spec.scores = std::move(source.scores);
  spec.space_prefix =
      source.add_space_prefix.value_or(true) ? SpacePrefix::kEverySegment : SpacePrefix::kNone;
  spec.bos_id = source.bos_id;
  spec.eos_id = source.eos_id;
  spec.unknown_id = source.unknown_id;
  spec.add_bos = source.add_bos.value_or(source.bos_id.has_value());
  return spec;
}

}  // namespace

TokenizerSpec tokenizer_from_gguf(const GgufTokenizer& source) {
  check_source(source);
  TokenizerSpec spec =
      source.model == "llama" ? from_sentencepiece(source) : from_byte_level(source);
  return check_imported(std::move(spec), "the GGUF file");
}

}  // namespace caravan::text
