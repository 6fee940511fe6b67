// Operations whose numbers are subnormal, called by a thread that flushes those to zero: the same
// bits as from a thread that does not.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cmath>
#include <functional>
#include <map>

#include "caravan/core/standard_floats.h"
#include "caravan/ops/attention.h"
#include "caravan/ops/elementwise.h"
#include "caravan/ops/linear.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::random_weight;
using testing::same_bits;

constexpr unsigned kFlush = 0x8040;  // results to zero, subnormal operands are zero

/// This thread flushes while it lives.
class Flushing {
 public:
  Flushing() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlush); }
  ~Flushing() { _mm_setcsr(before_); }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  unsigned before_;
};

at::Tensor small_rows(std::int64_t rows, std::int64_t columns) {
  const StandardFloats floats;
  Random random(5);
  at::Tensor x = random_rows(random, rows, columns).contiguous();
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] *= 0x1p-130F;
  return x;
}

PackedWeight table(DType dtype) {
  Random random(6);
  return random_weight(random, 40, 64, dtype).packed;
}

at::Tensor multiplied(const Context& context) {
  at::Tensor y = at::empty({30, 40}, at::kFloat);
  linear(context, small_rows(30, 64), table(DType::kBFloat16), {}, y);
  return y;
}

at::Tensor multiplied_in_slices(const Context& context) {
  const SliceLayout layout{{{0, 20}, {20, 41}, {41, 64}}, 0, SliceTree(3).cover({0, 3})};
  at::Tensor y = at::empty({1, 30, 40}, at::kFloat);
  linear_sliced(context, small_rows(30, 64), table(DType::kFloat32), layout, y);
  return y.view({30, 40});
}

at::Tensor normalised(const Context& context) {
  at::Tensor y = at::empty({30, 64}, at::kFloat);
  rms_norm(context, small_rows(30, 64), at::full({64}, 1.0F, at::kFloat), 1e-5F, y);
  return y;
}

at::Tensor activated(const Context& context) {
  at::Tensor gate_up = small_rows(30, 64);
  gate_up.narrow(1, 0, 32).fill_(1.5F);
  at::Tensor y = at::empty({30, 32}, at::kFloat);
  swiglu(context, gate_up, y);
  return y;
}

at::Tensor biased(const Context& context) {
  at::Tensor y = small_rows(30, 64);
  add_bias(context, small_rows(1, 64).view({64}), y);
  return y;
}

at::Tensor looked_up(const Context& context) {
  const at::Tensor rows = small_rows(40, 64);
  PackedWeight weight(40, 64, DType::kFloat32);
  weight.set_output_rows(0, 40, rows.const_data_ptr());
  const std::vector<std::int32_t> tokens = {3, 39, 0};
  at::Tensor x = at::empty({3, 64}, at::kFloat);
  embedding(context, tokens, weight, {0, 40}, x);
  return x;
}

at::Tensor best(const Context& context) {
  std::vector<ArgMax> found(30);
  argmax(context, small_rows(30, 64), found);
  at::Tensor y = at::empty({30, 1}, at::kFloat);
  for (std::size_t n = 0; n < 30; ++n) y.data_ptr<float>()[n] = static_cast<float>(found[n].index);
  return y;
}

at::Tensor attended(const Context& context) {
  KvPool pool({1, 2, 1, 32});
  const HeadMap heads{2, 1, {0, 0}};
  const std::vector<std::int32_t> blocks = {1, 0};
  const std::vector<SequenceRows> sequences = {{0, 20, 0, blocks}};
  at::Tensor qkv = small_rows(20, 4 * 32);
  rope_and_store(context, qkv, at::full({20, 16}, 0.8F, at::kFloat),
                 at::full({20, 16}, 0.6F, at::kFloat), heads, sequences, pool, 0);
  at::Tensor out = at::empty({20, 64}, at::kFloat);
  attention(context, qkv, heads, sequences, pool, 0, out);
  return out;
}

const std::map<std::string, std::function<at::Tensor(const Context&)>> kOperations = {
    {"linear", multiplied},   {"linear_sliced", multiplied_in_slices},
    {"rms_norm", normalised}, {"swiglu", activated},
    {"add_bias", biased},     {"embedding", looked_up},
    {"argmax", best},         {"attention", attended},
};

bool any_nonzero(const at::Tensor& x) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (std::fpclassify(x.const_data_ptr<float>()[i]) != FP_ZERO) return true;
  }
  return false;
}

TEST(Subnormals, AreKeptWhereTheCallerFlushesThem) {
  for (const auto& [name, operation] : kOperations) {
    for (const Isa isa : testing::supported_isas()) {
      ThreadTeam team(2);
      const at::Tensor expected = operation(Context(team, isa)).contiguous();
      ASSERT_TRUE(any_nonzero(expected)) << name;
      at::Tensor found;
      {
        const at::Tensor small = small_rows(30, 64);
        const Flushing flushing;
        volatile float factor = 1.0F;
        ASSERT_EQ(small.const_data_ptr<float>()[0] * factor, 0.0F) << "nothing flushes here";
        ThreadTeam flushing_team(2);  // its threads inherit the state of this one
        found = operation(Context(flushing_team, isa)).contiguous();
        EXPECT_EQ(_mm_getcsr() & kFlush, kFlush) << name << " changed the caller's state";
      }
      EXPECT_TRUE(same_bits(found, expected)) << name << ", " << isa_name(isa);
    }
  }
}

TEST(StandardFloats, SetsBackWhatItFound) {
  const Flushing flushing;
  {
    const StandardFloats floats;
    EXPECT_EQ(_mm_getcsr() & kFlush, 0U);
    const StandardFloats within;
    EXPECT_EQ(_mm_getcsr() & kFlush, 0U);
  }
  EXPECT_EQ(_mm_getcsr() & kFlush, kFlush);
}

}  // namespace
}  // namespace caravan::ops
