// Importers of tokenizers, and what is built from files that they accept. The first byte chooses
// the importer: '0' tokenizer.json (side files behind zero bytes), '1' tiktoken, '2' SentencePiece,
// '3' GGUF fields, a line each, '4' a chat template.

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/chat_format.h"
#include "caravan/text/detokenizer.h"
#include "caravan/text/tokenizer.h"

namespace {

using namespace caravan;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Encodes and decodes with an accepted tokenizer.
void use(const text::TokenizerSpec& spec) {
  const text::Tokenizer tokenizer(spec);
  const std::string input =
      "Hello  world, it's 2024!\n\n  <s>[INST] \xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80 "
      "ab\xE2\x96\x81 " +
      std::string(100, 'a');
  std::vector<std::int32_t> ids;
  try {
    ids = tokenizer.encode(input);
  } catch (const InputError&) {  // a split pattern that backtracks beyond its limit
    return;
  }
  text::Detokenizer detokenizer(tokenizer, false, text::DecodedText::kBegins);
  for (const std::int32_t id : ids) {
    require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
    require(!tokenizer.is_special(id), "a control token from plain text");
    detokenizer.push(id);
  }
  detokenizer.finish();
  if (spec.kind == text::TokenizerKind::kTiktoken) {
    require(tokenizer.decode_bytes(ids) == input, "decoding does not give the text back");
  }
}

std::string next_part(std::string& rest) {
  const std::size_t end = std::min(rest.find('\0'), rest.size());
  std::string part = rest.substr(0, end);
  rest.erase(0, end + 1);
  return part;
}

text::TokenizerSpec from_json(std::string bytes) {
  const std::string file = next_part(bytes);
  text::TokenizerSideFiles side;
  side.tokenizer_config = next_part(bytes);
  side.added_tokens = next_part(bytes);
  side.special_tokens_map = bytes;
  return text::tokenizer_from_hf_json(file, side);
}

/// Lines "model NAME", "pre NAME", "token TYPE SCORE NAME", "merge LEFT RIGHT", "id NAME VALUE".
text::TokenizerSpec from_gguf(const std::string& bytes) {
  text::GgufTokenizer source;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "model") words >> source.model;
    if (key == "pre") words >> source.pre;
    if (key == "merge") source.merges.push_back(line.substr(std::min<std::size_t>(6, line.size())));
    if (key == "token") {
      std::int32_t type = 0;
      float score = 0;
      std::string name;
      words >> type >> score >> name;
      source.tokens.push_back(name);
      source.token_types.push_back(type);
      source.scores.push_back(score);
    }
    if (key == "id") {
      std::string name;
      std::int32_t value = 0;
      words >> name >> value;
      if (name == "bos") source.bos_id = value;
      if (name == "eos") source.eos_id = value;
      if (name == "unknown") source.unknown_id = value;
    }
  }
  return text::tokenizer_from_gguf(source);
}

/// The tokens that chat templates look for.
text::TokenizerSpec with_control_tokens() {
  text::TokenizerSpec spec;
  for (const char* content : {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                              "<|eot_id|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>",
                              "<|python_tag|>", "<|eom_id|>", "<|user|>", "<|assistant|>"}) {
    const auto id = static_cast<std::int32_t>(spec.tokens.size());
    spec.tokens.emplace_back();
    spec.added_tokens.push_back({id, content, true});
  }
  spec.bos_id = 0;
  spec.add_bos = true;
  return spec;
}

void import(char kind, const std::string& bytes) {
  switch (kind) {
    case '0': use(from_json(bytes)); break;
    case '1': {
      const auto lines = std::count(bytes.begin(), bytes.end(), '\n');
      use(text::tokenizer_from_tiktoken(bytes, lines + 16));
      break;
    }
    case '2': use(text::tokenizer_from_sentencepiece(bytes)); break;
    case '3': use(from_gguf(bytes)); break;
    case '4': text::recognise_chat_template(bytes, with_control_tokens()); break;
    default: break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Warnings about strange files would be all that is seen.
  static const bool quiet = [] {
    log::configure(log::Level::kError, 0, 1);
    return true;
  }();
  if (size == 0 || !quiet) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    import(bytes.front(), bytes.substr(1));
  } catch (const InputError&) {  // the only way to refuse a file
  }
  return 0;
}
