#include "hf_pipeline.h"

#include <array>
#include <string_view>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "known_patterns.h"

namespace caravan::text {
namespace {

constexpr int kMaxNesting = 16;  // of Sequences

const Json& array_field(const Json& part, const char* key, std::string_view where) {
  return array_of(JsonReader(part, where).need(key), fmt::format("{}.{}", where, key));
}

/// Escapes what has a meaning in a pattern.
std::string literal_pattern(std::string_view text) {
  constexpr std::string_view kMeta = R"(\^$.[|()?*+{}#-])";
  std::string pattern;
  for (const char c : text) {
    if (kMeta.find(c) != std::string_view::npos) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

/// Whether ^ or $ stands outside classes: Oniguruma lets them match at every line.
bool has_line_anchor(std::string_view pattern) {
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^' || c == '$') {
      return true;
    }
  }
  return false;
}

/// tokenizer.json is written for the Oniguruma library. Known patterns mean the same to PCRE2;
/// in others, constructs that mean something else are refused.
void check_foreign_pattern(const std::string& pattern, std::string_view where) {
  for (const std::string_view known : {kLlama3Pattern, kGpt2Pattern, kQwen2Pattern, kSingleDigit}) {
    if (pattern == known) return;
  }
  for (const std::string_view different : {R"(\h)", R"(\H)", R"(\K)", R"(\G)", R"(\Z)", "&&", "(?m",
                                           "(*", R"(\A)", R"(\R)", R"(\X)"}) {
    CARAVAN_CHECK(
        pattern.find(different) == std::string::npos, InputError,
        "{}: the split pattern \"{}\" is not one that is known here, and \"{}\" in it does "
        "not mean the same in PCRE2",
        where, pattern, different);
  }
  CARAVAN_CHECK(
      !has_line_anchor(pattern), InputError,
      "{}: the split pattern \"{}\" is not one that is known here, and ^ and $ in it do not "
      "mean the same in PCRE2",
      where, pattern);
  log::warning(
      "{}: the split pattern \"{}\" is not one that was compared with the original library; it is "
      "used as it is",
      where, pattern);
}

/// Whether a Split drops what its pattern does not match, which is nothing with these patterns:
/// another way to write Isolated.
bool drops_nothing(const Json& part, const std::string& behavior, std::string_view where) {
  if (behavior != "Removed" || !JsonReader(part, where).boolean("invert").value_or(false))
    return false;
  const auto regex = JsonReader(JsonReader(part, where).need("pattern"), where).text("Regex");
  return regex == kLlama3Pattern || regex == kGpt2Pattern || regex == kQwen2Pattern;
}

std::string split_pattern_of(const Json& part, std::string_view where) {
  const std::string behavior =
      JsonReader(part, where).text("behavior").value_or("(no behavior given)");
  if (!drops_nothing(part, behavior, where)) {
    CARAVAN_CHECK(behavior == "Isolated", InputError,
                  "{}: Split with behavior \"{}\" is not supported, only \"Isolated\"", where,
                  behavior);
    CARAVAN_CHECK(!JsonReader(part, where).boolean("invert").value_or(false), InputError,
                  "{}: Split with invert = true is not supported", where);
  }
  const Json& pattern = JsonReader(part, where).need("pattern");
  if (const auto literal = JsonReader(pattern, where).text("String")) {
    CARAVAN_CHECK(!literal->empty(), InputError, "{}: Split on an empty string", where);
    return literal_pattern(*literal);
  }
  const auto regex = JsonReader(pattern, where).text("Regex");
  CARAVAN_CHECK(regex, InputError, "{}: the pattern of a Split must be a Regex or a String", where);
  check_foreign_pattern(*regex, where);
  return *regex;
}

/// Walks a pre-tokenizer and collects its patterns. Behind ByteLevel text is no longer text, so
/// that it must come last.
class PreTokenizerReader {
 public:
  void read(const Json& part, const std::string& where, int depth) {
    CARAVAN_CHECK(depth < kMaxNesting, InputError, "{}: Sequences are nested more than {} deep",
                  where, kMaxNesting);
    CARAVAN_CHECK(!byte_level_, InputError, "{}: nothing may follow ByteLevel", where);
    const std::string type = type_field(part, where);
    if (type == "Sequence") {
      const Json& parts = array_field(part, "pretokenizers", where);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        read(parts[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i), depth + 1);
      }
    } else if (type == "Split") {
      patterns_.push_back(split_pattern_of(part, where));
    } else if (type == "Digits") {
      const bool single = JsonReader(part, where).boolean("individual_digits").value_or(false);
      patterns_.emplace_back(single ? kSingleDigit : kDigitRun);
    } else if (type == "ByteLevel") {
      CARAVAN_CHECK(!JsonReader(part, where).boolean("add_prefix_space").value_or(true), InputError,
                    "{}: ByteLevel with add_prefix_space = true is not supported", where);
      if (JsonReader(part, where).boolean("use_regex").value_or(true))
        patterns_.emplace_back(kGpt2Pattern);
      byte_level_ = true;
    } else {
      throw InputError(fmt::format(
          "{}: pre-tokenizer \"{}\" is not supported here (supported in byte-level tokenizers: "
          "Sequence, Split, Digits, ByteLevel)",
          where, type));
    }
  }

  std::vector<std::string> take() {
    CARAVAN_CHECK(byte_level_, InputError,
                  "pre_tokenizer: expected ByteLevel or Metaspace in it, found neither");
    return std::move(patterns_);
  }

 private:
  std::vector<std::string> patterns_;
  bool byte_level_ = false;
};

/// The single-text template: at most one special token, in front of the text.
std::optional<std::string> template_prefix(const Json& part, std::string_view where) {
  std::optional<std::string> prefix;
  bool text_seen = false;
  for (const Json& item : array_field(part, "single", where)) {
    if (JsonReader(item, where).find("Sequence") != nullptr) {
      CARAVAN_CHECK(!text_seen, InputError, "{}: the template repeats the text", where);
      text_seen = true;
      continue;
    }
    const Json& token = JsonReader(item, where).need("SpecialToken");
    const std::string content = string_of(JsonReader(token, where).need("id"), where);
    CARAVAN_CHECK(!text_seen, InputError,
                  "{}: a template that puts \"{}\" behind the text is not "
                  "supported",
                  where, content);
    CARAVAN_CHECK(
        !prefix, InputError,
        "{}: a template that puts more than one token before the text (\"{}\", \"{}\") is "
        "not supported",
        where, *prefix, content);
    prefix = content;
  }
  CARAVAN_CHECK(text_seen, InputError, "{}: the template leaves the text out", where);
  return prefix;
}

std::optional<std::string> prefix_token(const Json& part, const std::string& where, int depth) {
  CARAVAN_CHECK(depth < kMaxNesting, InputError, "{}: Sequences are nested more than {} deep",
                where, kMaxNesting);
  const std::string type = type_field(part, where);
  if (type == "ByteLevel") return std::nullopt;  // only moves offsets
  if (type == "TemplateProcessing") return template_prefix(part, where);
  CARAVAN_CHECK(type == "Sequence", InputError,
                "{}: post-processor \"{}\" is not supported (supported: Sequence, ByteLevel, "
                "TemplateProcessing)",
                where, type);
  std::optional<std::string> prefix;
  for (const Json& inner : array_field(part, "processors", where)) {
    const auto found = prefix_token(inner, where + ".processors", depth + 1);
    CARAVAN_CHECK(!found || !prefix, InputError,
                  "{}: two templates put tokens before the text (\"{}\", \"{}\")", where, *prefix,
                  *found);
    if (found) prefix = found;
  }
  return prefix;
}

void check_decoder_part(const Json& decoder, int depth) {
  const std::string type = type_field(decoder, "decoder");
  if (type == "ByteLevel" || type == "Fuse") return;
  CARAVAN_CHECK(type == "Sequence" && depth < kMaxNesting, InputError,
                "decoder: \"{}\" is not supported (supported: ByteLevel)", type);
  for (const Json& inner : array_field(decoder, "decoders", "decoder")) {
    check_decoder_part(inner, depth + 1);
  }
}

}  // namespace

void check_normalizer(const Json* normalizer) {
  if (normalizer == nullptr) return;
  const std::string type = type_field(*normalizer, "normalizer");
  const bool empty_sequence =
      type == "Sequence" && array_field(*normalizer, "normalizers", "normalizer").empty();
  CARAVAN_CHECK(empty_sequence, InputError,
                "normalizer: \"{}\" is not supported; byte-level Llama tokenizers have none", type);
}

std::vector<std::string> split_patterns_of(const Json* pre_tokenizer) {
  CARAVAN_CHECK(pre_tokenizer != nullptr, InputError,
                "pre_tokenizer: there is none, and no normalizer that replaces spaces: neither a "
                "byte-level tokenizer nor one of Llama 2's kind");
  PreTokenizerReader reader;
  reader.read(*pre_tokenizer, "pre_tokenizer", 0);
  return reader.take();
}

void check_decoder(const Json* decoder) {
  if (decoder != nullptr) check_decoder_part(*decoder, 0);
}

std::optional<std::string> prefix_token_of(const Json* post_processor) {
  if (post_processor == nullptr) return std::nullopt;
  return prefix_token(*post_processor, "post_processor", 0);
}

}  // namespace caravan::text
