// The container of a GGUF file, and the values of its tensors.

#include <vector>

#include "caravan/checkpoint/gguf.h"
#include "caravan/core/error.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const fuzz::MemoryFile memory(data, size);
  io::InputFile file(memory.path());
  try {
    const auto gguf = checkpoint::GgufFile::read(file);
    for (const auto& tensor : gguf.tensors()) {
      fuzz::require(
          tensor.offset >= 0 && tensor.bytes > 0 && tensor.offset + tensor.bytes <= file.size(),
          "a tensor outside of the file");
      const std::int64_t columns = tensor.shape.back();
      std::vector<float> row(static_cast<std::size_t>(columns));
      if (tensor.shape.size() <= 2)
        checkpoint::read_rectangle(file, tensor, {0, 1}, {0, columns}, row.data());
    }
  } catch (const InputError&) {  // the only way to refuse a file
  }
  return 0;
}
