#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "caravan/core/error.h"
#include "caravan/text/tokenizer_spec.h"
#include "import_check.h"
#include "known_patterns.h"
#include "tokenizer_limits.h"

namespace caravan::text {
namespace {

/// Offsets of Llama 3's special tokens from the number of ranks, with Llama 3.1's names; the other
/// places hold <|reserved_special_token_N|> with ascending N.
constexpr std::int64_t kBeginOfText = 0;
constexpr std::int64_t kEndOfText = 1;
constexpr std::int64_t kNumNamedPlaces = 11;  // up to <|python_tag|>
constexpr std::array<std::string_view, kNumNamedPlaces> kNames = {
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "",
    "",
    "<|finetune_right_pad_id|>",
    "",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
};

std::vector<AddedToken> llama3_special_tokens(std::int64_t num_ranks, std::int64_t vocab_size) {
  std::vector<AddedToken> result;
  int reserved = 0;
  for (std::int64_t place = 0; num_ranks + place < vocab_size; ++place) {
    std::string name(place < kNumNamedPlaces ? kNames[static_cast<std::size_t>(place)] : "");
    if (name.empty()) name = fmt::format("<|reserved_special_token_{}|>", reserved++);
    result.push_back({static_cast<std::int32_t>(num_ranks + place), std::move(name), true});
  }
  return result;
}

/// Value of a base64 digit, or -1.
int digit_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

/// Padded base64; empty when `text` is none.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  unsigned group = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int value = i + padding >= text.size() ? 0 : digit_value(text[i]);
    if (value < 0) return std::nullopt;
    group = (group << 6) | static_cast<unsigned>(value);
    if (i % 4 == 3) {
      for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(group >> shift & 0xFFU));
      group = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// One "base64 rank" line.
std::string read_rank_line(std::string_view line, std::int64_t line_number,
                           std::int64_t expected_rank) {
  const std::size_t space = line.find(' ');
  CARAVAN_CHECK(space != std::string_view::npos, InputError,
                "tiktoken file, line {}: expected \"base64 rank\"", line_number);
  const std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  CARAVAN_CHECK(bytes, InputError, "tiktoken file, line {}: the token is not base64", line_number);
  const std::string_view number = line.substr(space + 1);
  std::int64_t rank = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rank);
  CARAVAN_CHECK(error == std::errc() && end == number.data() + number.size(), InputError,
                "tiktoken file, line {}: the rank is not a number", line_number);
  CARAVAN_CHECK(rank == expected_rank, InputError,
                "tiktoken file, line {}: expected rank {}, found {}; ranks must ascend by one",
                line_number, expected_rank, rank);
  return *bytes;
}

}  // namespace

TokenizerSpec tokenizer_from_tiktoken(const std::string& file_text, std::int64_t vocab_size) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kTiktoken;
  std::string_view rest = file_text;
  for (std::int64_t line_number = 1; !rest.empty(); ++line_number) {
    const std::size_t newline = rest.find('\n');
    std::string_view line = rest.substr(0, newline);
    rest.remove_prefix(newline == std::string_view::npos ? rest.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto rank = static_cast<std::int64_t>(spec.tokens.size());
    CARAVAN_CHECK(rank < kMaxVocabulary, InputError,
                  "tiktoken file, line {}: more than {} tokens are not supported", line_number,
                  kMaxVocabulary);
    spec.tokens.push_back(read_rank_line(line, line_number, rank));
  }
  const auto num_ranks = static_cast<std::int64_t>(spec.tokens.size());
  CARAVAN_CHECK(vocab_size >= num_ranks + kNumNamedPlaces && vocab_size <= kMaxVocabulary,
                InputError,
                "tiktoken file: it has {} tokens, so the model's vocab_size must be {} to {} (with "
                "Llama 3's special tokens), but it is {}",
                num_ranks, num_ranks + kNumNamedPlaces, kMaxVocabulary, vocab_size);
  spec.added_tokens = llama3_special_tokens(num_ranks, vocab_size);
  spec.tokens.resize(static_cast<std::size_t>(vocab_size));
  spec.split_patterns = {std::string(kLlama3Pattern)};
  spec.ignore_merges = true;
  spec.bos_id = static_cast<std::int32_t>(num_ranks + kBeginOfText);
  spec.eos_id = static_cast<std::int32_t>(num_ranks + kEndOfText);
  spec.add_bos = true;
  return check_imported(std::move(spec), "the tiktoken file");
}

}  // namespace caravan::text
