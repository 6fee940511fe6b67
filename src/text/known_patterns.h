#pragma once
// Split patterns of the supported tokenizer families (model-independent text, PCRE2 syntax).

#include <string_view>

namespace caravan::text {

/// Llama 3: groups of up to three digits, one leading non-letter before a word, newlines kept with
/// what ends a line.
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// GPT-2, also the built-in pattern of ByteLevel pre-tokenizers.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Qwen 2: as Llama 3 with single digits.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr std::string_view kSingleDigit = R"(\p{N})";
inline constexpr std::string_view kDigitRun = R"(\p{N}+)";

}  // namespace caravan::text
