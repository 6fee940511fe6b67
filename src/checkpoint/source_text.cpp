#include "source_text.h"

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer.h"

namespace caravan::checkpoint {
namespace {

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
    // The image token has a row of its own behind the vocabulary.
    const std::int64_t rows =
        description.config.vocab_size + (description.config.vision.has_value() ? 1 : 0);
    CARAVAN_CHECK(tokenizer.vocab_size() <= rows, InputError,
                  "{}: the tokenizer has {} ids, but the model has rows for {}", where,
                  tokenizer.vocab_size(), rows);
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

void settle_text(ModelDescription& description, const SourceOptions& options,
                 const std::string& where) {
  choose_chat_format(description, options, where);
  check_tokenizer(description, options, where);
}

}  // namespace caravan::checkpoint
