#include "amx_support.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace caravan::ops {
namespace {

/// Intel SDM, CPUID leaf 7, subleaf 0.
bool cpu_has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1U << 22;
  constexpr unsigned kTile = 1U << 24;
  return (d & kBf16) != 0 && (d & kTile) != 0;
}

/// Whether the system saves the tile registers and their shapes: bits 17 and 18 of XCR0.
bool system_saves_tiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kOsXsave = 1U << 27;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return false;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr std::uint32_t kTileState = 3U << 17;
  return (low & kTileState) == kTileState;
}

/// Linux, Documentation/arch/x86/xstate.rst: for all threads of the process; again is harmless.
bool system_permits_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool request_amx() { return cpu_has_amx() && system_saves_tiles() && system_permits_tiles(); }

}  // namespace caravan::ops
