#pragma once
// How matrices are multiplied: what the operands are, and so which bits come out.

#include <string_view>

namespace caravan::ops {

/// kFloat32: float32 inputs, weights of any stored type, one FMA chain. kBFloat16: inputs rounded
/// to bf16, weights stored as bf16, chains of the tile instructions. Both in full: linear.h.
enum class Compute { kFloat32, kBFloat16 };

/// "fp32" or "bf16".
constexpr std::string_view compute_name(Compute compute) {
  return compute == Compute::kFloat32 ? "fp32" : "bf16";
}

}  // namespace caravan::ops
