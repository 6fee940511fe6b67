// A Caravan checkpoint with damaged metadata. HDF5 itself is part of what is tested: its open of a
// damaged file must fail cleanly, too.

#include "caravan/checkpoint/model_file.h"
#include "caravan/core/error.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const fuzz::MemoryFile memory(data, size);
  try {
    auto file = checkpoint::ModelFile::open(memory.path());
    for (const auto& tensor : file.tensors()) {
      fuzz::require(tensor.file_offset >= 0 && tensor.bytes >= 0 &&
                        tensor.file_offset + tensor.bytes <= file.file_bytes(),
                    "a tensor outside of the file");
    }
    file.verify_all();
  } catch (const ConfigError&) {  // the ways to refuse a file
  } catch (const IoError&) {
  }
  return 0;
}
