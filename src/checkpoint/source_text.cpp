#include "source_text.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer.h"
#include "source_parts.h"

namespace caravan::checkpoint {
namespace {

constexpr std::size_t kMaxListed = 8;

/// The formats whose control tokens the tokenizer has.
std::string possible_formats(const text::Tokenizer& tokenizer) {
  std::vector<std::string_view> names;
  for (const text::ChatFormatKind kind : text::chat_format_kinds()) {
    try {
      if (kind == text::ChatFormatKind::kNone) continue;
      const text::ChatFormat format(kind, tokenizer);
      names.push_back(text::chat_format_name(kind));
    } catch (const ConfigError&) {  // not this one
    }
  }
  return fmt::format("{}", fmt::join(names, "|"));
}

void choose_chat_format(ModelDescription& description, const SourceOptions& options,
                        const std::string& where) {
  const auto recognised =
      text::recognise_chat_template(description.chat_template, description.tokenizer);
  CARAVAN_CHECK(recognised.has_value() || options.chat_format.has_value(), InputError,
                "{} has a chat template that belongs to no known format; choose one with "
                "--chat-format {}",
                where, text::chat_format_names());
  description.chat_format = options.chat_format ? *options.chat_format : recognised->kind;
  if (recognised && recognised->kind == description.chat_format)
    description.chat_default_system = recognised->default_system;
}

void check_tokenizer(const ModelDescription& description, const SourceOptions& options,
                     const std::string& where) {
  try {
    const text::Tokenizer tokenizer(description.tokenizer);
    if (description.chat_template.empty() && !options.chat_format) {
      // Its name would be a guess: what is tuned for chats is often laid out in another way.
      log::warning(
          "{} has no chat template, and is stored without a chat format: completions only. If it "
          "is a chat model, choose its format with --chat-format, now or for a run (its tokenizer "
          "allows {})",
          where, possible_formats(tokenizer));
    }
    if (description.chat_format != text::ChatFormatKind::kNone) {
      const text::ChatFormat format(description.chat_format, tokenizer,
                                    description.chat_default_system);
      if (options.chat_format && format.leaves_out_bos()) {
        log::warning("{}: {}", where, text::missing_bos_warning(description.chat_format));
      }
    }
  } catch (const ConfigError& error) {  // here it is the source that is at fault
    throw InputError(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace

void fit_tokenizer(text::TokenizerSpec& tokenizer, std::int64_t rows, const std::string& where) {
  if (std::ssize(tokenizer.tokens) <= rows) return;
  const auto has_row = [rows](std::int32_t id) { return id < rows; };
  std::map<std::int32_t, std::string> dropped;
  for (const text::AddedToken& added : tokenizer.added_tokens) {
    if (!has_row(added.id)) dropped.emplace(added.id, added.content);
  }
  for (auto id = checked_cast<std::int32_t>(rows); id < std::ssize(tokenizer.tokens); ++id) {
    const std::string& token = tokenizer.tokens[static_cast<std::size_t>(id)];
    CARAVAN_CHECK(
        token.empty() || dropped.contains(id), InputError,
        "{}: the tokenizer has {} ids and \"{}\" at id {}, but the model has rows for {}: "
        "it is the tokenizer of another model; take that of this one",
        where, tokenizer.tokens.size(), presentable_name(token), id, rows);
  }
  CARAVAN_CHECK(!tokenizer.add_bos || has_row(tokenizer.bos_id.value()), InputError,
                "{}: prompts begin with BOS (id {}), but the model has rows for {}: it is the "
                "tokenizer of another model; take that of this one",
                where, *tokenizer.bos_id, rows);
  for (auto* id : {&tokenizer.bos_id, &tokenizer.eos_id, &tokenizer.unknown_id}) {
    if (*id && !has_row(**id)) id->reset();
  }
  std::erase_if(tokenizer.added_tokens,
                [&](const text::AddedToken& added) { return !has_row(added.id); });
  tokenizer.tokens.resize(static_cast<std::size_t>(rows));
  if (!tokenizer.scores.empty()) tokenizer.scores.resize(tokenizer.tokens.size());
  if (dropped.empty()) return;
  std::vector<std::string> listed;
  for (const auto& [id, content] : dropped) {
    if (listed.size() == kMaxListed) break;
    listed.push_back(fmt::format("\"{}\" (id {})", presentable_name(content), id));
  }
  log::warning(
      "{}: {} token(s) of the tokenizer have no row in the model's {}, and are left out: {}{}",
      where, dropped.size(), rows, fmt::join(listed, ", "),
      dropped.size() > listed.size() ? " ..." : "");
}

void settle_text(ModelDescription& description, const SourceOptions& options,
                 const std::string& where) {
  choose_chat_format(description, options, where);
  check_tokenizer(description, options, where);
}

}  // namespace caravan::checkpoint
