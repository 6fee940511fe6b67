#pragma once
// What every operation needs besides its operands: the threads to share the work among and the
// instruction set whose kernels run. Made once per rank by `app` or a test and passed by reference.
//
// Where a device enters: operations choose by the device of their tensors, the sources of src/ops
// are the only place that does; a context then carries a stream beside the team. Who makes buffers
// (model/decoder.cpp), the cache (kv_pool.h) and weights (packed_weight.h) decides where they lie.

#include <cstdint>
#include <memory>
#include <string_view>

#include "caravan/core/thread_team.h"

namespace caravan::ops {

/// Builds of the one kernel source. All give the same bits; generic is plain C++ for any x86-64 and
/// for reference.
enum class Isa { kGeneric, kAvx2, kAvx512 };

/// "generic", "avx2", "avx512".
std::string_view isa_name(Isa isa);

/// The best build that this CPU and operating system can run.
Isa detect_isa();
bool isa_supported(Isa isa);

struct KernelTable;  // src/ops/cpu/kernel_table.h

/// Borrows the team. Operations with one context run one at a time.
class Context {
 public:
  /// @throws DeviceError if this CPU cannot run `isa`.
  Context(ThreadTeam& team, Isa isa);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  ThreadTeam& team() const { return *team_; }
  Isa isa() const { return isa_; }
  const KernelTable& kernels() const { return *kernels_; }

  /// At least `count` floats, 64-byte aligned, for the length of one operation. Grows to the
  /// largest request and stays, so that a steady loop allocates nothing; each call may move it.
  float* scratch(std::int64_t count) const;

 private:
  struct Scratch;
  ThreadTeam* team_;
  Isa isa_;
  const KernelTable* kernels_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace caravan::ops
