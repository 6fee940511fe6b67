// A bf16 cache: attention over it has the bits of attention over a float32 cache that holds the
// rounded keys and values, in every build and cut.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "caravan/core/error.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/full_attention.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::same_bits;

at::Tensor rounded(const at::Tensor& values) {
  at::Tensor result = values.clone();
  auto* const data = result.data_ptr<float>();
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = bf16_to_float(float_to_bf16(data[i]));
  return result;
}

const HeadMap kHeads = {5, 2, {0, 0, 0, 1, 1}};

/// Causal attention of all rows of [length, (5 + 2 + 2) d], `chunk` rows at a time. Nothing is
/// rotated, so that keys reach the cache as they are.
at::Tensor attend(const Context& context, const at::Tensor& qkv, std::int64_t head_dim, DType dtype,
                  std::int64_t chunk) {
  const std::int64_t length = qkv.size(0);
  KvPool pool({2, ceil_div(length, std::int64_t{16}), 2, head_dim, dtype});
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(pool.shape().num_blocks));
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  at::Tensor all = at::full({length, 5 * head_dim}, std::nan(""), at::kFloat);
  for (std::int64_t position = 0; position < length; position += chunk) {
    const std::int64_t count = std::min(chunk, length - position);
    at::Tensor rows = qkv.narrow(0, position, count).clone();
    const SequenceRows sequence{0, count, position, blocks};
    rope_and_store(context, rows, at::ones({count, head_dim / 2}, at::kFloat),
                   at::zeros({count, head_dim / 2}, at::kFloat), kHeads, {&sequence, 1}, pool, 1);
    at::Tensor out = all.narrow(0, position, count);
    attention(context, rows, kHeads, {&sequence, 1}, pool, 1, out);
  }
  return all;
}

TEST(Bf16Cache, AttentionIsThatOverRoundedKeysAndValues) {
  Random random(1);
  for (const std::int64_t head_dim : {8, 64, 80}) {
    const at::Tensor qkv = random_rows(random, 75, 9 * head_dim);
    at::Tensor with_rounded = qkv.clone();
    with_rounded.narrow(1, 5 * head_dim, 4 * head_dim)
        .copy_(rounded(qkv.narrow(1, 5 * head_dim, 4 * head_dim).contiguous()));
    ThreadTeam team(2);
    const at::Tensor expected =
        attend(Context(team, Isa::kGeneric), with_rounded, head_dim, DType::kFloat32, 75);
    EXPECT_FALSE(same_bits(attend(Context(team, Isa::kGeneric), qkv, head_dim, DType::kFloat32, 75),
                           expected));
    for (const Isa isa : testing::supported_isas()) {
      for (const std::int64_t chunk : {1, 7, 16, 75}) {
        EXPECT_TRUE(
            same_bits(attend(Context(team, isa), qkv, head_dim, DType::kBFloat16, chunk), expected))
            << isa_name(isa) << ", heads of " << head_dim << ", chunks of " << chunk;
      }
    }
  }
}

/// Rows that see a run of 21 keys and one of 16 with a bias.
at::Tensor attend_fully(const Context& context, const at::Tensor& queries, const at::Tensor& keys,
                        const at::Tensor& values, DType dtype, std::int64_t chunk) {
  const std::int64_t head_dim = keys.size(1) / 2;
  KvPool pool({2, 6, 2, head_dim, dtype});
  const std::vector<std::int32_t> blocks = {4, 0, 3};
  const auto store = [&](std::int64_t begin, std::int64_t count, std::int64_t first_block) {
    for (std::int64_t done = 0; done < count; done += chunk) {
      const std::int64_t rows = std::min(chunk, count - done);
      store_keys_values(
          context, keys.narrow(0, begin + done, rows), values.narrow(0, begin + done, rows),
          std::span(blocks).subspan(static_cast<std::size_t>(first_block)), done, pool, 1);
    }
  };
  // What another image left behind must not show.
  store_keys_values(context, keys.narrow(0, 0, 32).mul(1e30), values.narrow(0, 0, 32).mul(1e30),
                    blocks, 0, pool, 1);
  store(0, 21, 0);
  store(21, 16, 2);
  const std::vector<KeyRun> runs = {{21, 0.0F}, {16, std::log(2.0F)}};
  const VisibleRows range{0, queries.size(0), runs, blocks};
  at::Tensor out = at::full({queries.size(0), queries.size(1)}, std::nan(""), at::kFloat);
  full_attention(context, queries, kHeads, {&range, 1}, pool, 1, out);
  return out;
}

TEST(Bf16Cache, FullAttentionIsThatOverRoundedKeysAndValues) {
  Random random(2);
  for (const std::int64_t head_dim : {8, 64, 72}) {
    const at::Tensor queries = random_rows(random, 9, 5 * head_dim);
    const at::Tensor keys = random_rows(random, 37, 2 * head_dim);
    const at::Tensor values = random_rows(random, 37, 2 * head_dim);
    ThreadTeam team(2);
    const at::Tensor expected = attend_fully(Context(team, Isa::kGeneric), queries, rounded(keys),
                                             rounded(values), DType::kFloat32, 100);
    for (const Isa isa : testing::supported_isas()) {
      for (const std::int64_t chunk : {3, 100}) {
        EXPECT_TRUE(same_bits(
            attend_fully(Context(team, isa), queries, keys, values, DType::kBFloat16, chunk),
            expected))
            << isa_name(isa) << ", heads of " << head_dim;
      }
    }
  }
}

TEST(Bf16Cache, TakesHalfTheMemoryAndCopiesBlocks) {
  KvPool::Shape shape{3, 4, 2, 24};
  const std::int64_t bytes = KvPool::block_bytes(shape);
  shape.dtype = DType::kBFloat16;
  EXPECT_EQ(KvPool::block_bytes(shape) * 2, bytes);
  KvPool pool(shape);
  auto* const elements = static_cast<std::uint16_t*>(pool.key_data(0));
  const std::int64_t stride = pool.key_block_stride();
  EXPECT_EQ(stride * 2, KvPool::block_bytes(shape));
  std::iota(elements, elements + stride, std::uint16_t{1});
  pool.copy_block(0, 3);
  EXPECT_TRUE(std::equal(elements, elements + stride, elements + 3 * stride));
  EXPECT_THROW(pool.keys(0), InternalError);
  shape.dtype = DType::kInt8;
  EXPECT_THROW(KvPool{shape}, InternalError);
}

}  // namespace
}  // namespace caravan::ops
