// The pickle of a state dict, without the archive around it.

#include <span>

#include "caravan/checkpoint/pickle.h"
#include "caravan/core/error.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    for (const auto& tensor : checkpoint::read_pickled_tensors(bytes, "input"))
      fuzz::require(tensor.shape.size() == tensor.strides.size(), "a tensor of odd strides");
  } catch (const InputError&) {  // the only way to refuse a pickle
  }
  return 0;
}
