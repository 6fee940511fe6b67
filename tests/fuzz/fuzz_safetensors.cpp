// The header of a safetensors file.

#include "caravan/checkpoint/safetensors.h"
#include "caravan/core/error.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const fuzz::MemoryFile memory(data, size);
  io::InputFile file(memory.path());
  try {
    for (const auto& entry : checkpoint::read_safetensors_header(file)) {
      fuzz::require(
          entry.offset >= 8 && entry.bytes >= 0 && entry.offset + entry.bytes <= file.size(),
          "a tensor outside of the file");
    }
  } catch (const InputError&) {  // the only way to refuse a file
  }
  return 0;
}
