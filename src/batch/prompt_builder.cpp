#include "caravan/batch/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

// Tokens that an answer to `record` must be able to have behind its prompt.
std::int64_t least_new_tokens(const Record& record) {
  return record.max_tokens.value_or(std::max<std::int64_t>(1, record.sampling.min_tokens));
}

// "messages.0.content" of "messages[0].content: a text about it"; `fallback` where none is named.
std::string named_field(std::string_view message, std::string fallback) {
  const auto end = message.find_first_not_of(
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]");
  if (end == std::string_view::npos || end == 0 || !message.substr(end).starts_with(": ")) {
    return fallback;
  }
  std::string path;
  for (const char c : message.substr(0, end)) {
    if (c != ']') path += c == '[' ? '.' : c;
  }
  return path;
}

// What the chat layout cannot express.
RecordFault layout_fault(const InputError& error) {
  const std::string_view message = error.what();
  std::string param = named_field(message, "messages");
  if (param == "builtin_tools") param = "chat_template_kwargs.builtin_tools";
  const bool unsupported = param == "tools" || param.ends_with("builtin_tools");
  return {400, unsupported ? "unsupported_parameter" : "invalid_value", std::string(message),
          param};
}

RecordFault context_fault(const Record& record, std::string_view at_least,
                          std::int64_t prompt_tokens, std::int64_t context_tokens) {
  const bool by_least = !record.max_tokens && record.sampling.min_tokens > 1;
  return {400, "context_length_exceeded",
          fmt::format("the prompt has {}{} tokens and {} {} more{}, but the model's context has {}",
                      at_least, prompt_tokens, by_least ? "must get" : "may get",
                      least_new_tokens(record), by_least ? " (min_tokens)" : "", context_tokens),
          by_least ? "min_tokens" : "max_tokens"};
}

std::int64_t size_of(std::size_t size) { return checked_cast<std::int64_t>(size); }

// Bytes that no layout trims. Which characters beyond ASCII are white space is the layouts' affair.
std::int64_t surely_kept_bytes(std::string_view text) {
  const auto kept = [](char c) { return c > ' ' && c < 0x7f; };
  const auto first = std::find_if(text.begin(), text.end(), kept);
  const auto last = std::find_if(text.rbegin(), std::make_reverse_iterator(first), kept).base();
  return first == text.end() ? 0 : last - first;
}

// Whether each byte is a token by itself, so that every text has at least one.
bool has_every_byte(const text::Tokenizer& tokenizer) {
  std::array<bool, 256> has{};
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(static_cast<std::int32_t>(id));
    if (bytes.size() == 1) has[static_cast<unsigned char>(bytes.front())] = true;
  }
  return std::all_of(has.begin(), has.end(), [](bool here) { return here; });
}

bool has_plain_added_token(const text::TokenizerSpec& spec) {
  return std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                     [](const text::AddedToken& token) { return !token.special; });
}

}  // namespace

// Bounds of the number of tokens of the longest prompt, from bytes alone.
struct PromptBuilder::Sizes {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

PromptBuilder::PromptBuilder(const text::Tokenizer& tokenizer, const text::ChatFormat& chat_format,
                             std::int64_t context_tokens)
    : tokenizer_(&tokenizer),
      chat_format_(&chat_format),
      context_tokens_(context_tokens),
      keeps_all_text_(has_every_byte(tokenizer) && !tokenizer.spec().remove_extra_spaces),
      spaces_within_text_(tokenizer.spec().space_prefix != text::SpacePrefix::kNone &&
                          has_plain_added_token(tokenizer.spec())) {}

PromptBuilder::Sizes PromptBuilder::sizes(const Record& record) const {
  const std::int64_t longest_token =
      std::max<std::int64_t>(1, size_of(tokenizer_->max_token_bytes()));
  Sizes sizes;
  if (record.endpoint == Endpoint::kChat) {
    sizes.most = chat_format_->most_tokens(record.messages, record.chat_options);
    for (const auto& message : record.messages) {
      if (!keeps_all_text_) break;
      if (!message.tool_calls.empty()) continue;  // layouts write the call instead
      sizes.least += surely_kept_bytes(message.content) / longest_token;
    }
    return sizes;
  }
  const std::int64_t images = size_of(record.images.size());
  for (const CompletionPrompt& prompt : record.prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      const auto bytes = size_of(text->size());
      if (keeps_all_text_) sizes.least = std::max(sizes.least, bytes / longest_token);
      // The start token, and a space before the text or before each of its segments.
      sizes.most = std::max(sizes.most, bytes + 2 + images + (spaces_within_text_ ? bytes : 0));
    } else {
      const auto count = size_of(std::get<std::vector<std::int32_t>>(prompt).size()) + images;
      sizes.least = std::max(sizes.least, count);
      sizes.most = std::max(sizes.most, count);
    }
  }
  return sizes;
}

std::optional<RecordFault> PromptBuilder::endpoint_fault(const Record& record) const {
  if (record.endpoint != Endpoint::kChat || chat_format_->kind() != text::ChatFormatKind::kNone) {
    return std::nullopt;
  }
  return RecordFault{400, "unsupported_endpoint",
                     "the model has no chat format: use /v1/completions, or name one with "
                     "--chat-format",
                     "url"};
}

std::optional<RecordFault> PromptBuilder::early_fault(const Record& record,
                                                      const Sizes& sizes) const {
  if (sizes.least + least_new_tokens(record) > context_tokens_) {
    return context_fault(record, "at least ", sizes.least, context_tokens_);
  }
  // With nothing but stop tokens in the vocabulary, none may follow before min_tokens.
  const auto& stop_ids = record.sampling.stop_ids;
  if (record.sampling.min_tokens > 0 && std::ssize(stop_ids) >= tokenizer_->vocab_size()) {
    const std::set<std::int32_t> distinct(stop_ids.begin(), stop_ids.end());
    if (std::ssize(distinct) >= tokenizer_->vocab_size()) {
      return RecordFault{400, "invalid_value",
                         "stop_token_ids has every token, so that min_tokens cannot be kept",
                         "stop_token_ids"};
    }
  }
  return std::nullopt;
}

bool PromptBuilder::may_be_empty(const Record& record) const {
  if (!record.images.empty()) return false;
  return std::any_of(record.prompts.begin(), record.prompts.end(), [&](const auto& prompt) {
    const auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) return std::get<std::vector<std::int32_t>>(prompt).empty();
    return text->empty() || !keeps_all_text_;
  });
}

std::vector<std::int32_t> PromptBuilder::completion_ids(const Record& record,
                                                        const CompletionPrompt& prompt) const {
  if (const auto* ids = std::get_if<std::vector<std::int32_t>>(&prompt)) {
    std::vector<std::int32_t> shown = *ids;
    for (std::size_t i = 0; i < record.image_offsets.size(); ++i) {
      // Those before it are there already.
      shown.insert(shown.begin() + size_of(record.image_offsets[i] + i), *chat_format_->image_id());
    }
    return shown;
  }
  return text_ids(record, std::get<std::string>(prompt));
}

std::vector<std::int32_t> PromptBuilder::text_ids(const Record& record,
                                                  std::string_view text) const {
  const auto& spec = tokenizer_->spec();
  const std::vector<std::size_t>& offsets = record.image_offsets;
  std::vector<std::int32_t> ids;
  std::size_t image = 0;
  std::size_t done = 0;  // bytes
  bool add_bos = record.add_special_tokens && spec.add_bos && spec.bos_id;
  // Prompts with images are also written with the start token, which then stands where it is
  // written: the processor of Hugging Face has images in front of it.
  const std::string_view bos =
      !offsets.empty() && spec.bos_id ? tokenizer_->token_bytes(*spec.bos_id, true) : "";
  const auto first_behind =
      std::find_if(offsets.begin(), offsets.end(), [](std::size_t offset) { return offset > 0; });
  const bool starts_whole = first_behind == offsets.end() || *first_behind >= bos.size();
  if (!bos.empty() && text.starts_with(bos) && starts_whole) {
    image = static_cast<std::size_t>(first_behind - offsets.begin());
    ids.assign(image, *chat_format_->image_id());
    done = bos.size();
    add_bos = true;
  }
  if (add_bos) ids.push_back(*spec.bos_id);
  const auto add_text = [&](std::size_t end) {
    if (end == done && !offsets.empty()) return;
    const auto part = tokenizer_->encode(text.substr(done, end - done));
    ids.insert(ids.end(), part.begin(), part.end());
    done = end;
  };
  for (; image < offsets.size(); ++image) {
    add_text(offsets[image]);
    ids.push_back(*chat_format_->image_id());
  }
  add_text(text.size());
  return ids;
}

BuiltPrompts PromptBuilder::build(const Record& record) const {
  std::vector<TokenizedPrompt> built;
  try {
    if (auto fault = endpoint_fault(record)) return *fault;
    if (auto fault = early_fault(record, sizes(record))) return *fault;
    if (record.endpoint == Endpoint::kChat) {
      built.push_back({chat_format_->render(record.messages, record.chat_options), 0});
    }
  } catch (const InputError& error) {
    return layout_fault(error);
  }
  for (const CompletionPrompt& prompt : record.prompts) {
    built.push_back({completion_ids(record, prompt), 0});
  }
  for (std::size_t i = 0; i < built.size(); ++i) {
    TokenizedPrompt& prompt = built[i];
    const auto count = size_of(prompt.ids.size());
    if (count == 0) {
      return RecordFault{400, "empty_prompt",
                         "the prompt is empty and the model adds no start token",
                         built.size() > 1 ? fmt::format("prompt.{}", i) : "prompt"};
    }
    if (count + least_new_tokens(record) > context_tokens_) {
      return context_fault(record, "", count, context_tokens_);
    }
    prompt.max_tokens = record.max_tokens.value_or(context_tokens_ - count);
  }
  return built;
}

std::optional<RecordFault> PromptBuilder::check(const Record& record) const {
  try {
    if (auto fault = endpoint_fault(record)) return fault;
    const Sizes bounds = sizes(record);
    if (auto fault = early_fault(record, bounds)) return fault;
    const bool fits = bounds.most + least_new_tokens(record) <= context_tokens_;
    if (fits && !may_be_empty(record)) return std::nullopt;
  } catch (const InputError& error) {
    return layout_fault(error);
  }
  BuiltPrompts built = build(record);
  if (auto* fault = std::get_if<RecordFault>(&built)) return *fault;
  return std::nullopt;
}

std::int64_t PromptBuilder::worst_case_tokens(const Record& record) const {
  if (!record.max_tokens) return context_tokens_;
  return std::min(context_tokens_, sizes(record).most + *record.max_tokens);
}

}  // namespace caravan::batch
