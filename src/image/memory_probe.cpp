#include "memory_probe.h"

#include <sys/mman.h>

#include <new>

#include "caravan/core/checked_cast.h"

namespace caravan::image {

// The kernel is asked: a compiler may leave out an allocation whose memory nobody uses.
void require_memory(std::int64_t bytes) {
  const auto size = checked_cast<std::size_t>(bytes);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::munmap(memory, size);
}

}  // namespace caravan::image
