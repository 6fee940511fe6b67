#pragma once
// ggml's quantizations in blocks of 256 elements with scales of sub-blocks, and the four-bit ones
// with a table of levels. One block to its 256 (IQ4_NL: 32) values, as the gguf package gives them.

#include <cstddef>

namespace caravan::checkpoint {

void decode_q2_k(const std::byte* block, float* x);
void decode_q3_k(const std::byte* block, float* x);
void decode_q4_k(const std::byte* block, float* x);
void decode_q5_k(const std::byte* block, float* x);
void decode_q6_k(const std::byte* block, float* x);
void decode_iq4_nl(const std::byte* block, float* x);
void decode_iq4_xs(const std::byte* block, float* x);

}  // namespace caravan::checkpoint
