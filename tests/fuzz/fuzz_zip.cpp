// A torch.save archive: the zip directory, and tensors where it has some.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "caravan/checkpoint/pth.h"
#include "caravan/checkpoint/source_tensor.h"
#include "caravan/checkpoint/zip_checksums.h"
#include "caravan/checkpoint/zip_directory.h"
#include "caravan/core/error.h"
#include "memory_file.h"

namespace {

using namespace caravan;

// A row of each matrix must be readable: neither outside of the file nor larger than it.
void use(io::InputFile& file, const checkpoint::PthEntry& entry) {
  if (!entry.type || entry.shape.size() != 2) return;
  checkpoint::SourceTensor tensor = {entry.name, *entry.type, entry.shape, 0, entry.offset};
  tensor.strides = entry.strides;
  const std::int64_t columns = std::min<std::int64_t>(entry.shape[1], 1000);
  std::vector<float> row(static_cast<std::size_t>(columns));
  const std::int64_t last = entry.shape[0] - 1;
  checkpoint::read_rectangle(file, tensor, {last, last + 1},
                             {entry.shape[1] - columns, entry.shape[1]}, row.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile memory(data, size);
  io::InputFile file(memory.path());
  try {
    const std::vector<checkpoint::ZipEntry> entries = checkpoint::read_zip_directory(file);
    for (const auto& entry : entries) {
      fuzz::require(
          entry.offset > 0 && entry.bytes >= 0 && entry.offset + entry.bytes <= file.size(),
          "an entry outside of the file");
    }
    checkpoint::ZipChecksums checksums("the archive", entries);
    file.observe([&](std::int64_t offset, std::span<const std::byte> bytes) {
      checksums.see(offset, bytes);
    });
    for (const auto& entry : checkpoint::read_pth(file)) use(file, entry);
    checksums.finish(file);
  } catch (const InputError&) {  // the only way to refuse a file
  }
  return 0;
}
