#pragma once
// The tensors of a pickled PyTorch state dict, without executing anything: an allow-list of the few
// constructors that describe tensors; whatever else a pickle asks for is refused by name.
//
// Leaves out: the archive around it and the tensors' data (pth.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace caravan::checkpoint {

struct PickledTensor {
  std::string name;
  std::string storage_type;  // "BFloat16Storage"
  std::string storage_key;
  std::int64_t storage_elements = 0;
  std::int64_t offset = 0;            // elements into the storage
  std::vector<std::int64_t> shape;    // not checked
  std::vector<std::int64_t> strides;  // elements; as many as extents; not checked
};

/// Tensors in the order of the dict. A state dict that lies under "model", "module" or "state_dict"
/// of an outer dict is found; entries that are no tensors (counters, settings) are left out.
/// Time and memory are bounded by the pickle, at most 32 MiB.
/// @throws InputError with `where`: malformed, too large, a constructor that is not allowed
/// (named), or no dict of tensors.
std::vector<PickledTensor> read_pickled_tensors(std::span<const std::byte> pickle,
                                                const std::string& where);

}  // namespace caravan::checkpoint
