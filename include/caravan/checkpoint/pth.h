#pragma once
// PyTorch's torch.save archives (.pth, .pt, .bin): names, types and places of the tensors, all
// checked.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/checkpoint/element_type.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

struct PthEntry {
  std::string name;
  std::string type_name;            // as pickled: "BFloat16Storage"
  std::optional<ElementType> type;  // empty for types that no weight of ours has
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements; empty: row-major without gaps
  std::int64_t offset = 0;            // bytes from the start of the file
};

/// Tensors in the order of the state dict; several may share bytes.
/// @throws InputError with file and tensor: as read_zip_directory and read_pickled_tensors; data of
/// a big-endian machine; storages that are missing or of another size; tensors outside of theirs.
std::vector<PthEntry> read_pth(io::InputFile& file);

}  // namespace caravan::checkpoint
