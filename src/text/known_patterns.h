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

/// Seed-Coder: as Qwen 2, and newlines never go with what ends a line.
inline constexpr std::string_view kSeedCoderPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Tekken (Mistral NeMo): words end where a capital follows small letters.
inline constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Bloom, Poro, Viking: everything but white space and the punctuation of sentences.
inline constexpr std::string_view kBloomPattern =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";

/// Runs of Chinese, Japanese and Korean, as DeepSeek's tokenizers have them.
inline constexpr std::string_view kDeepSeekScripts = R"([\x{800}-\x{9fa5}\x{ac00}-\x{d7ff}]+)";

inline constexpr std::string_view kSingleDigit = R"(\p{N})";
inline constexpr std::string_view kDigitRun = R"(\p{N}+)";

}  // namespace caravan::text
