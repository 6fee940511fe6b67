#pragma once
// A parser and prompt builder over the byte tokenizer, and the request lines that tests feed them.

#include <string>

#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/request_parser.h"
#include "unit/engine/byte_tokenizer.h"

namespace caravan::test {

inline batch::ParserOptions parser_options() {
  batch::ParserOptions options;
  options.model_name = "tiny";
  options.vocab_size = kByteVocabulary;
  options.defaults.stop_ids = {kEosId};
  return options;
}

inline std::string chat_line(const std::string& id, const std::string& more_fields = {}) {
  return R"({"custom_id":")" + id +
         R"(","method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi"}])" +
         more_fields + "}}";
}

inline std::string completion_line(const std::string& id, const std::string& prompt,
                                   const std::string& more_fields = {}) {
  return R"({"custom_id":")" + id +
         R"(","method":"POST","url":"/v1/completions","body":{"prompt":)" + prompt + more_fields +
         "}}";
}

/// Tokenizer, chat layout (none, or Llama 2's, which needs no tokens of its own) and builder.
struct BuilderRig {
  explicit BuilderRig(std::int64_t context_tokens, bool add_bos = false,
                      text::ChatFormatKind kind = text::ChatFormatKind::kNone)
      : BuilderRig(context_tokens, spec(add_bos), kind) {}
  BuilderRig(std::int64_t context_tokens, text::TokenizerSpec tokenizer_spec,
             text::ChatFormatKind kind = text::ChatFormatKind::kNone)
      : tokenizer(std::move(tokenizer_spec)),
        chat_format(kind, tokenizer),
        builder(tokenizer, chat_format, context_tokens) {}

  static text::TokenizerSpec spec(bool add_bos) {
    text::TokenizerSpec spec = byte_tokenizer_spec();
    spec.bos_id = kEotId;
    spec.add_bos = add_bos;
    return spec;
  }

  text::Tokenizer tokenizer;
  text::ChatFormat chat_format;
  batch::PromptBuilder builder;
};

}  // namespace caravan::test
