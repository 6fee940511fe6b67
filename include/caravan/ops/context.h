#pragma once
// What every operation needs besides its operands: the threads to share the work among and the
// instruction set whose kernels run. Made once per rank by `app` or a test and passed by reference.
//
// Where a device enters: src/ops alone knows one. A context then carries a stream beside the team;
// buffers are made by it (buffers.h), operations compute where it does, and the cache (kv_pool.h)
// and weights (packed_weight.h) lie there.

#include <cstdint>
#include <memory>
#include <string_view>

#include "caravan/core/thread_team.h"
#include "caravan/ops/compute.h"

namespace caravan::ops {

/// Builds of the one kernel source. All give the same bits; generic is plain C++ for any x86-64 and
/// for reference. kAmx is kAvx512 with tile instructions for the products of bf16 computing.
enum class Isa { kGeneric, kAvx2, kAvx512, kAmx };

/// "generic", "avx2", "avx512", "amx".
std::string_view isa_name(Isa isa);

/// The best build for `compute` that this CPU and operating system can run.
Isa detect_isa(Compute compute = Compute::kFloat32);
/// Also asks the system to let this process use tile registers, if `isa` has them.
bool isa_supported(Isa isa);

struct KernelTable;  // src/ops/cpu/kernel_table.h
struct ProductKernels;

/// Borrows the team. Operations with one context run one at a time.
class Context {
 public:
  /// @throws DeviceError if this CPU cannot run `isa`.
  Context(ThreadTeam& team, Isa isa, Compute compute = Compute::kFloat32);
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  ThreadTeam& team() const { return *team_; }
  Isa isa() const { return isa_; }
  /// How the matrices are to be multiplied that are loaded for this context; products go by their
  /// weight (PackedWeight::compute).
  Compute compute() const { return compute_; }
  const KernelTable& kernels() const { return *kernels_; }
  const ProductKernels& products(Compute compute) const;

  /// At least `count` floats, 64-byte aligned, for the length of one operation. Grows to the
  /// largest request and stays, so that a steady loop allocates nothing; each call may move it.
  float* scratch(std::int64_t count) const;

 private:
  struct Scratch;
  ThreadTeam* team_;
  Isa isa_;
  Compute compute_;
  const KernelTable* kernels_;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace caravan::ops
