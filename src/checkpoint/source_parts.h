#pragma once
// Steps that the source formats share.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/checkpoint/source.h"
#include "caravan/checkpoint/tensor_names.h"
#include "caravan/checkpoint/vision_names.h"

namespace caravan::checkpoint {

/// A folder of Hugging Face, Meta or torchtune, or a file of one that holds weights.
Source open_folder(const std::string& folder_or_file, const SourceOptions& options);
Source open_gguf(const std::string& path, const SourceOptions& options);

/// @throws InputError if the file only stands for the real one, with the advice how to get that: a
/// Git LFS pointer, a web page, an empty file.
void refuse_stand_in(io::InputFile& file);

/// The whole file, which must not be a stand-in.
/// @throws MissingInputError, IoError; InputError if it is longer than `max_bytes`.
std::string read_small_file(const std::filesystem::path& path, std::int64_t max_bytes);

/// Matches `found` with the tensors that the description wants; fills source.tensors.
/// Sets description.dtype. @throws InputError listing missing, unknown and ill-shaped tensors.
void match_tensors(Source& source, std::vector<SourceTensor> found, NameStyle style,
                   const std::string& where);
/// The same for a vision model, whose tensors are those of vision_views.
void match_tensors(Source& source, std::vector<SourceTensor> found, const VisionNames& names,
                   const std::string& where);

/// Ids of the tokens that end a text or a turn in Llama 3 models, by their texts.
std::vector<std::int32_t> end_of_text_ids(const std::vector<text::AddedToken>& tokens);
bool is_end_of_text(std::string_view token);

/// Sorted, without repetitions. @throws InputError for an id outside the vocabulary.
std::vector<std::int32_t> merge_stop_ids(const std::vector<std::vector<std::int32_t>>& lists,
                                         std::int64_t vocab_size, const std::string& where);

/// "Q4_K, Q6_K": the types of the source's matrices.
std::string matrix_types(const Source& source);

/// A name fit for output: valid UTF-8, without control characters, at most 200 bytes.
std::string presentable_name(const std::string& name);

}  // namespace caravan::checkpoint
