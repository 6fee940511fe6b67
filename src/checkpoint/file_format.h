#pragma once
// Format versions 1 and 2 of a Caravan checkpoint: names in the HDF5 file, and its description
// part.

#include <hdf5.h>

#include <string>
#include <string_view>

#include "caravan/checkpoint/model_file.h"

namespace caravan::checkpoint {

inline constexpr const char* kFormatName = "caravan";
inline constexpr const char* kWeightsGroup = "weights";
inline constexpr const char* kSplitAttribute = "split";
inline constexpr const char* kBandRowsAttribute = "band_rows";
inline constexpr const char* kChecksumAttribute = "crc32c";

/// "replicated", "query_heads", "kv_heads", "ffn_columns", "vocabulary".
std::string_view split_name(model::Split split);

/// "none", "every segment" and so on.
std::string_view space_prefix_name(text::SpacePrefix prefix);

/// Root attributes, /tokenizer and /generation. @throws IoError.
void write_description(hid_t file, const ModelDescription& description, const std::string& path);

/// Checks format and version, then reads and checks every part.
/// @throws ConfigError.
ModelDescription read_description(hid_t file, const std::string& path);

}  // namespace caravan::checkpoint
