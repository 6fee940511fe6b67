#pragma once
// The tokenizer and chat template files that lie beside a model's weights.

#include <filesystem>
#include <string>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/text/tokenizer_spec.h"

namespace caravan::checkpoint {

inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{4} << 20;

/// The first of `places` that has the file; empty if none has.
std::filesystem::path find_file(const std::vector<std::filesystem::path>& places,
                                const std::string& name);

/// tokenizer.json or tokenizer.model (tiktoken or SentencePiece) of the first place that has one.
/// @param vocab_size  rows of the embedding
/// @throws InputError naming the file.
text::TokenizerSpec read_tokenizer(const std::vector<std::filesystem::path>& places,
                                   std::int64_t vocab_size);

/// A tokenizer file of either form, with the files beside it. @throws as read_tokenizer.
text::TokenizerSpec read_tokenizer_file(const std::filesystem::path& path, std::int64_t vocab_size);

/// Sets the tokenizer from a file or folder that the user names, and the chat template from beside
/// it where the source has none.
void take_named_tokenizer(ModelDescription& description,
                          const std::filesystem::path& file_or_folder);

/// chat_template.jinja, chat_template.json or the template in tokenizer_config.json; empty if there
/// is none. @throws InputError naming the file.
std::string read_chat_template(const std::vector<std::filesystem::path>& places);

}  // namespace caravan::checkpoint
