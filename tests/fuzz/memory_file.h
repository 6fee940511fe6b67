#pragma once
// Bytes of a fuzzer as a file that readers open by its name, in memory only.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "caravan/io/input_file.h"

namespace caravan::fuzz {

class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size)
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    std::size_t done = 0;
    while (descriptor_ && done < size) {
      const ssize_t count = ::write(descriptor_.get(), data + done, size - done);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    if (done != size) throw std::runtime_error("the file in memory cannot be written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_.get()); }

 private:
  io::FileDescriptor descriptor_;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace caravan::fuzz
