#include "caravan/ops/context.h"

#include "caravan/core/error.h"
#include "caravan/ops/packed_weight.h"
#include "cpu/amx_support.h"
#include "cpu/kernel_table.h"

namespace caravan::ops {
namespace {

const KernelTable& table_of(Isa isa) {
  switch (isa) {
    case Isa::kGeneric: return kGenericKernels;
    case Isa::kAvx2: return kAvx2Kernels;
    case Isa::kAvx512:
    case Isa::kAmx: return kAvx512Kernels;
  }
  CARAVAN_ASSERT(false, "unknown instruction set {}", static_cast<int>(isa));
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric: return "generic";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

// __builtin_cpu_supports also asks whether the operating system saves the wide registers (xgetbv).
bool isa_supported(Isa isa) {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                    __builtin_cpu_supports("f16c") != 0;
  const bool avx512 =
      avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  switch (isa) {
    case Isa::kGeneric: return true;
    case Isa::kAvx2: return avx2;
    case Isa::kAvx512: return avx512;
    case Isa::kAmx: return avx512 && request_amx();
  }
  return false;
}

Isa detect_isa(Compute compute) {
  if (compute == Compute::kBFloat16 && isa_supported(Isa::kAmx)) return Isa::kAmx;
  if (isa_supported(Isa::kAvx512)) return Isa::kAvx512;
  return isa_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kGeneric;
}

struct Context::Scratch {
  at::Tensor bytes;
  std::int64_t count = 0;
};

Context::Context(ThreadTeam& team, Isa isa, Compute compute)
    : team_(&team),
      isa_(isa),
      compute_(compute),
      kernels_(&table_of(isa)),
      scratch_(std::make_unique<Scratch>()) {
  CARAVAN_CHECK(isa_supported(isa), DeviceError,
                "instruction set {} was asked for, but this CPU or operating system offers {} at "
                "most; leave the choice to the program",
                isa_name(isa), isa_name(detect_isa(compute)));
}

Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

const ProductKernels& Context::products(Compute compute) const {
  if (compute == Compute::kFloat32) return kernels_->linear;
  return isa_ == Isa::kAmx ? kAmxKernels : kernels_->linear_bf16;
}

float* Context::scratch(std::int64_t count) const {
  if (count > scratch_->count) {
    scratch_->bytes = at::Tensor();  // first give the old one back
    scratch_->bytes = allocate_huge(count * static_cast<std::int64_t>(sizeof(float)));
    scratch_->count = count;
  }
  return scratch_->count == 0 ? nullptr : static_cast<float*>(scratch_->bytes.data_ptr());
}

}  // namespace caravan::ops
