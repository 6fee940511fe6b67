#pragma once
// The header of a safetensors file: names, types and places of its tensors, all checked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/checkpoint/element_type.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

struct SafetensorsEntry {
  std::string name;
  std::string type_name;  // as written: "BF16", "I64"
  std::optional<ElementType>
      type;  // empty for types that no weight of ours has (integers, bool ...)
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // bytes from the start of the file
  std::int64_t bytes = 0;
};

/// Entries in the order of the header. Time and memory are bounded by the header, at most 100 MB.
/// @throws InputError with file and tensor: no safetensors file, malformed or oversized header,
/// duplicate names, sizes that do not fit the shape, overlapping or truncated data.
std::vector<SafetensorsEntry> read_safetensors_header(io::InputFile& file);

}  // namespace caravan::checkpoint
