#include "caravan/batch/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

// Control tokens, role names and fixed texts that a chat layout adds to each message, generously.
constexpr std::int64_t kLayoutTokensPerMessage = 16;
constexpr std::int64_t kLayoutTokensPerChat = 96;

RecordFault context_fault(std::int64_t prompt_tokens, bool at_least, std::int64_t max_tokens,
                          std::int64_t context_tokens) {
  return {
      400, "context_length_exceeded",
      fmt::format("the prompt has {}{} tokens and may get {} more, but the model's context has {}",
                  at_least ? "at least " : "", prompt_tokens, max_tokens, context_tokens),
      "max_tokens"};
}

std::int64_t size_of(std::size_t size) { return checked_cast<std::int64_t>(size); }

std::int64_t trimmed_bytes(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const auto first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? 0 : size_of(text.find_last_not_of(kBlanks) - first + 1);
}

bool has_empty_prompt(const Record& record) {
  return std::any_of(
      record.prompts.begin(), record.prompts.end(), [](const CompletionPrompt& prompt) {
        return std::visit([](const auto& content) { return content.empty(); }, prompt);
      });
}

}  // namespace

// Bounds of the number of prompt tokens of the longest prompt, from bytes alone.
struct PromptBuilder::Sizes {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

PromptBuilder::PromptBuilder(const text::Tokenizer& tokenizer, const text::ChatFormat& chat_format,
                             std::int64_t context_tokens)
    : tokenizer_(&tokenizer), chat_format_(&chat_format), context_tokens_(context_tokens) {}

PromptBuilder::Sizes PromptBuilder::sizes(const Record& record) const {
  const std::int64_t longest_token =
      std::max<std::int64_t>(1, size_of(tokenizer_->max_token_bytes()));
  Sizes sizes;
  if (record.endpoint == Endpoint::kChat) {
    sizes.most = kLayoutTokensPerChat + size_of(chat_format_->default_system().size()) +
                 size_of(record.chat_options.date.size());
    for (const auto& message : record.messages) {
      // Layouts may trim contents, so blanks at the ends do not count for the lower bound.
      sizes.least += trimmed_bytes(message.content) / longest_token;
      sizes.most += size_of(message.content.size()) + kLayoutTokensPerMessage;
    }
    return sizes;
  }
  for (const CompletionPrompt& prompt : record.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      sizes.least = std::max(sizes.least, size_of(text->size()) / longest_token);
      sizes.most = std::max(sizes.most, size_of(text->size()) + 1);
    } else {
      const auto count = size_of(std::get<std::vector<std::int32_t>>(prompt).size());
      sizes.least = std::max(sizes.least, count);
      sizes.most = std::max(sizes.most, count);
    }
  }
  return sizes;
}

std::optional<RecordFault> PromptBuilder::early_fault(const Record& record,
                                                      const Sizes& sizes) const {
  if (record.endpoint == Endpoint::kChat && chat_format_->kind() == text::ChatFormatKind::kNone) {
    return RecordFault{400, "unsupported_endpoint",
                       "the model has no chat format: use /v1/completions, or name one with "
                       "--chat-format",
                       "url"};
  }
  const std::int64_t wanted = record.max_tokens.value_or(1);
  if (sizes.least + wanted > context_tokens_) {
    return context_fault(sizes.least, true, wanted, context_tokens_);
  }
  return std::nullopt;
}

std::vector<std::int32_t> PromptBuilder::completion_ids(const Record& record,
                                                        const CompletionPrompt& prompt) const {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) return *ids;
  std::vector<std::int32_t> ids;
  const auto& spec = tokenizer_->spec();
  if (record.add_special_tokens && spec.add_bos && spec.bos_id) ids.push_back(*spec.bos_id);
  const auto text_ids = tokenizer_->encode(std::get<std::string>(prompt));
  ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  return ids;
}

BuiltPrompts PromptBuilder::build(const Record& record) const {
  if (auto fault = early_fault(record, sizes(record))) return *fault;
  std::vector<TokenizedPrompt> built;
  if (record.endpoint == Endpoint::kChat) {
    try {
      built.push_back({chat_format_->render(record.messages, record.chat_options), 0});
    } catch (const InputError& error) {  // the layout cannot express these messages
      return RecordFault{400, "invalid_value", error.what(), "messages"};
    }
  } else {
    for (const CompletionPrompt& prompt : record.prompts) {
      built.push_back({completion_ids(record, prompt), 0});
    }
  }
  for (std::size_t i = 0; i < built.size(); ++i) {
    TokenizedPrompt& prompt = built[i];
    const auto count = size_of(prompt.ids.size());
    if (count == 0) {
      return RecordFault{400, "empty_prompt",
                         "the prompt is empty and the model adds no start token",
                         built.size() > 1 ? fmt::format("prompt.{}", i) : "prompt"};
    }
    const std::int64_t wanted = record.max_tokens.value_or(1);
    if (count + wanted > context_tokens_) {
      return context_fault(count, false, wanted, context_tokens_);
    }
    prompt.max_tokens = record.max_tokens.value_or(context_tokens_ - count);
  }
  return built;
}

std::optional<RecordFault> PromptBuilder::check(const Record& record) const {
  const Sizes bounds = sizes(record);
  if (auto fault = early_fault(record, bounds)) return fault;
  const bool surely_fits = bounds.most + record.max_tokens.value_or(1) <= context_tokens_;
  if (surely_fits && !has_empty_prompt(record)) return std::nullopt;
  BuiltPrompts built = build(record);
  if (auto* fault = std::get_if<RecordFault>(&built)) return *fault;
  return std::nullopt;
}

std::int64_t PromptBuilder::worst_case_tokens(const Record& record) const {
  if (!record.max_tokens) return context_tokens_;
  return std::min(context_tokens_, sizes(record).most + *record.max_tokens);
}

}  // namespace caravan::batch
