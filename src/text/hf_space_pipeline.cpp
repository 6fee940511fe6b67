#include "hf_space_pipeline.h"

#include <string_view>

#include "caravan/core/error.h"
#include "known_patterns.h"
#include "piece_names.h"

namespace caravan::text {
namespace {

/// Behind U+2581 a new piece begins.
constexpr std::string_view kWordPattern = " [^ ]*";

/// `part` itself, or the parts of a Sequence (one level, as all known files have it).
std::vector<const Json*> parts_of(const Json* part, const char* list, std::string_view where) {
  if (part == nullptr) return {};
  if (type_field(*part, where) != "Sequence") return {part};
  const Json& inner =
      array_of(JsonReader(*part, where).need(list), fmt::format("{}.{}", where, list));
  std::vector<const Json*> parts;
  for (const Json& entry : inner) parts.push_back(&entry);
  return parts;
}

std::string replaced_string(const Json& part, std::string_view where) {
  const Json& pattern = JsonReader(part, where).need("pattern");
  const auto text = JsonReader(pattern, where).text("String");
  CARAVAN_CHECK(text, InputError, "{}: Replace with a Regex is not supported", where);
  return *text;
}

void read_normalizer(const Json* normalizer, SpacePipeline& pipeline) {
  for (const Json* part : parts_of(normalizer, "normalizers", "normalizer")) {
    const std::string type = type_field(*part, "normalizer");
    const auto text = [&](const char* key) {
      return JsonReader(*part, "normalizer").text(key).value_or("");
    };
    const bool before_replace = !pipeline.by_normalizer;
    if (type == "Prepend" && text("prepend") == kSpaceSymbol && before_replace &&
        pipeline.prefix == SpacePrefix::kNone) {
      pipeline.prefix = SpacePrefix::kEverySegment;
    } else if (type == "Replace" && replaced_string(*part, "normalizer") == " " &&
               text("content") == kSpaceSymbol && before_replace) {
      pipeline.by_normalizer = true;
    } else {
      throw InputError(fmt::format(
          "normalizer: \"{}\" with these settings is not supported (supported: Prepend U+2581 and "
          "then Replace \" \" by U+2581)",
          type));
    }
  }
  CARAVAN_CHECK(pipeline.by_normalizer || pipeline.prefix == SpacePrefix::kNone, InputError,
                "normalizer: Prepend without Replace is not supported");
}

SpacePrefix metaspace_prefix(const Json& part, std::string_view where) {
  // Older files have a flag; where both are given they say the same.
  const bool add_prefix = JsonReader(part, where).boolean("add_prefix_space").value_or(true);
  const std::string scheme =
      JsonReader(part, where).text("prepend_scheme").value_or(add_prefix ? "always" : "never");
  if (scheme == "never") return SpacePrefix::kNone;
  if (scheme == "first") return SpacePrefix::kFirstSegmentUnlessSpaced;
  CARAVAN_CHECK(scheme == "always", InputError,
                "{}: prepend_scheme is \"{}\", expected always, first or never", where, scheme);
  return SpacePrefix::kEverySegmentUnlessSpaced;
}

void check_replacement(const Json& part, std::string_view where) {
  const std::string symbol =
      JsonReader(part, where).text("replacement").value_or(std::string(kSpaceSymbol));
  CARAVAN_CHECK(symbol == kSpaceSymbol, InputError,
                "{}: Metaspace with the replacement \"{}\" is not supported, only U+2581", where,
                symbol);
}

void read_pre_tokenizer(const Json* pre_tokenizer, SpacePipeline& pipeline) {
  bool has_metaspace = false;
  for (const Json* part : parts_of(pre_tokenizer, "pretokenizers", "pre_tokenizer")) {
    const std::string type = type_field(*part, "pre_tokenizer");
    if (type == "Metaspace" && !has_metaspace && !pipeline.by_normalizer) {
      has_metaspace = true;
      check_replacement(*part, "pre_tokenizer");
      pipeline.prefix = metaspace_prefix(*part, "pre_tokenizer");
      if (JsonReader(*part, "pre_tokenizer").boolean("split").value_or(true)) {
        pipeline.split_patterns.emplace_back(kWordPattern);
      }
    } else if (type == "Digits") {  // sees no spaces, so that its place does not matter
      const bool single =
          JsonReader(*part, "pre_tokenizer").boolean("individual_digits").value_or(false);
      pipeline.split_patterns.emplace_back(single ? kSingleDigit : kDigitRun);
    } else {
      throw InputError(fmt::format(
          "pre_tokenizer: \"{}\" is not supported here (supported where spaces become U+2581: one "
          "Metaspace, unless a normalizer replaces them, and Digits)",
          type));
    }
  }
  CARAVAN_CHECK(has_metaspace || pipeline.by_normalizer, InputError,
                "neither the normalizer nor the pre_tokenizer replaces spaces by U+2581, as a "
                "tokenizer with byte_fallback does");
}

}  // namespace

bool is_space_pipeline(const JsonReader& model, const Json* normalizer, const Json* pre_tokenizer) {
  if (model.boolean("byte_fallback").value_or(false)) return true;
  for (const Json* part : parts_of(normalizer, "normalizers", "normalizer")) {
    const std::string type = type_field(*part, "normalizer");
    if (type == "Prepend" || type == "Replace") return true;
  }
  for (const Json* part : parts_of(pre_tokenizer, "pretokenizers", "pre_tokenizer")) {
    if (type_field(*part, "pre_tokenizer") == "Metaspace") return true;
  }
  return false;
}

SpacePipeline read_space_pipeline(const Json* normalizer, const Json* pre_tokenizer) {
  SpacePipeline pipeline;
  read_normalizer(normalizer, pipeline);
  read_pre_tokenizer(pre_tokenizer, pipeline);
  return pipeline;
}

void check_space_decoder(const Json* decoder) {
  for (const Json* part : parts_of(decoder, "decoders", "decoder")) {
    const std::string type = type_field(*part, "decoder");
    if (type == "ByteFallback" || type == "Fuse") continue;
    if (type == "Metaspace") {
      check_replacement(*part, "decoder");
      continue;
    }
    const std::string content = JsonReader(*part, "decoder").text("content").value_or("");
    const bool replaces =
        type == "Replace" && replaced_string(*part, "decoder") == kSpaceSymbol && content == " ";
    const bool strips = type == "Strip" && content == " " &&
                        JsonReader(*part, "decoder").need("start") <= 1 &&
                        JsonReader(*part, "decoder").need("stop") == 0;
    CARAVAN_CHECK(replaces || strips, InputError,
                  "decoder: \"{}\" with these settings is not supported (supported: Replace U+2581 "
                  "by a space, ByteFallback, Fuse, Strip of one space at the start, Metaspace)",
                  type);
  }
}

}  // namespace caravan::text
