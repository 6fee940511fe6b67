#include "caravan/ops/attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "caravan/core/error.h"
#include "caravan/ops/math.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::same_bits;

/// Heads, and a sequence of random queries, keys and values.
struct Problem {
  std::int64_t head_dim = 0;
  HeadMap heads;
  at::Tensor qkv;  // [positions, (H + 2K) d], as the projection makes it
  at::Tensor cosines;
  at::Tensor sines;
};

HeadMap even_map(std::int64_t queries, std::int64_t kv) {
  HeadMap map{queries, kv, {}};
  for (std::int64_t h = 0; h < queries; ++h) {
    map.kv_head_of_query.push_back(static_cast<std::int32_t>(h * kv / queries));
  }
  return map;
}

Problem make_problem(Random& random, const HeadMap& heads, std::int64_t head_dim,
                     std::int64_t length) {
  Problem problem{head_dim, heads, {}, {}, {}};
  problem.qkv =
      random_rows(random, length, (heads.local_query_heads + 2 * heads.local_kv_heads) * head_dim);
  problem.cosines = at::empty({length, head_dim / 2}, at::kFloat);
  problem.sines = at::empty({length, head_dim / 2}, at::kFloat);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(length));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> inv_freq;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    inv_freq.push_back(
        std::pow(10000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(head_dim)));
  }
  ThreadTeam team(1);
  rope_tables(Context(team, Isa::kGeneric), positions, inv_freq, problem.cosines, problem.sines);
  return problem;
}

/// How the rows of a sequence reach attention.
struct Schedule {
  std::vector<std::int64_t> chunks;  // row counts, in order
  std::vector<std::int32_t> blocks;
  std::int64_t pool_blocks = 0;
};

Schedule in_order(std::int64_t length, std::int64_t chunk) {
  Schedule schedule;
  for (std::int64_t done = 0; done < length; done += chunk) {
    schedule.chunks.push_back(std::min(chunk, length - done));
  }
  schedule.pool_blocks = ceil_div(length, KvPool::kBlockTokens);
  schedule.blocks.resize(static_cast<std::size_t>(schedule.pool_blocks));
  std::iota(schedule.blocks.begin(), schedule.blocks.end(), 0);
  return schedule;
}

/// A pool full of NaN: whatever is read without having been written shows.
KvPool poisoned_pool(const Problem& problem, std::int64_t blocks) {
  KvPool pool({2, blocks, problem.heads.local_kv_heads, problem.head_dim});
  if (problem.heads.local_kv_heads > 0) {
    std::fill_n(pool.keys(0), pool.key_block_stride() * blocks, std::nanf(""));
  }
  return pool;
}

at::Tensor run_attention(const Context& context, const Problem& problem, const Schedule& schedule) {
  const std::int64_t length = problem.qkv.size(0);
  KvPool pool = poisoned_pool(problem, schedule.pool_blocks);
  at::Tensor all = at::full({length, problem.heads.local_query_heads * problem.head_dim},
                            std::nan(""), at::kFloat);
  std::int64_t position = 0;
  for (const std::int64_t count : schedule.chunks) {
    at::Tensor rows = problem.qkv.narrow(0, position, count).clone();
    const SequenceRows sequence{0, count, position, schedule.blocks};
    rope_and_store(context, rows, problem.cosines.narrow(0, position, count),
                   problem.sines.narrow(0, position, count), problem.heads, {&sequence, 1}, pool,
                   1);
    at::Tensor out = all.narrow(0, position, count);
    attention(context, rows, problem.heads, {&sequence, 1}, pool, 1, out);
    position += count;
  }
  return all;
}

/// One head vector of a row, rotated, in double.
std::vector<double> rotated(const Problem& problem, std::int64_t row, std::int64_t head) {
  const std::int64_t d = problem.head_dim;
  const float* x = problem.qkv.const_data_ptr<float>() + row * problem.qkv.size(1) + head * d;
  std::vector<double> result(static_cast<std::size_t>(d));
  for (std::int64_t i = 0; i < d / 2; ++i) {
    const double cosine = problem.cosines.const_data_ptr<float>()[row * (d / 2) + i];
    const double sine = problem.sines.const_data_ptr<float>()[row * (d / 2) + i];
    const auto at = static_cast<std::size_t>(2 * i);
    result[at] = x[2 * i] * cosine - x[2 * i + 1] * sine;
    result[at + 1] = x[2 * i + 1] * cosine + x[2 * i] * sine;
  }
  return result;
}

/// softmax(q k / sqrt(d)) v over positions <= row, in double.
std::vector<double> expected_output(const Problem& problem, std::int64_t row, std::int64_t head) {
  const std::int64_t d = problem.head_dim;
  const std::int64_t num_queries = problem.heads.local_query_heads;
  const std::int64_t kv = problem.heads.kv_head_of_query[static_cast<std::size_t>(head)];
  const std::vector<double> query = rotated(problem, row, head);
  std::vector<double> scores;
  for (std::int64_t t = 0; t <= row; ++t) {
    const std::vector<double> key = rotated(problem, t, num_queries + kv);
    scores.push_back(std::inner_product(query.begin(), query.end(), key.begin(), 0.0) /
                     std::sqrt(static_cast<double>(d)));
  }
  const double greatest = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  std::vector<double> result(static_cast<std::size_t>(d));
  for (std::int64_t t = 0; t <= row; ++t) {
    const double weight = std::exp(scores[static_cast<std::size_t>(t)] - greatest);
    total += weight;
    const std::int64_t column = (num_queries + problem.heads.local_kv_heads + kv) * d;
    const float* value = problem.qkv.const_data_ptr<float>() + t * problem.qkv.size(1) + column;
    for (std::int64_t i = 0; i < d; ++i) result[static_cast<std::size_t>(i)] += weight * value[i];
  }
  for (double& value : result) value /= total;
  return result;
}

TEST(Attention, IsSoftmaxOverTheRotatedPastForEveryHeadSize) {
  ThreadTeam team(2);
  Random random(11);
  constexpr std::int64_t kLength = 41;
  for (const std::int64_t head_dim : {2, 6, 8, 16, 24, 64, 80, 128}) {
    const Problem problem = make_problem(random, even_map(6, 2), head_dim, kLength);
    for (const Isa isa : testing::supported_isas()) {
      const at::Tensor out = run_attention(Context(team, isa), problem, in_order(kLength, kLength));
      for (const std::int64_t row : {0, 1, 14, 15, 16, 31, 32, 40}) {
        for (std::int64_t head = 0; head < 6; ++head) {
          const std::vector<double> expected = expected_output(problem, row, head);
          for (std::int64_t i = 0; i < head_dim; ++i) {
            ASSERT_NEAR(out.const_data_ptr<float>()[(row * 6 + head) * head_dim + i],
                        expected[static_cast<std::size_t>(i)], 1e-5)
                << isa_name(isa) << ", head size " << head_dim << ", row " << row << ", head "
                << head << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(Attention, GivesTheSameBitsForEveryBuildThreadCountChunkAndBlockOrder) {
  Random random(12);
  constexpr std::int64_t kLength = 101;
  for (const HeadMap& heads : {even_map(9, 3), even_map(4, 4), even_map(13, 1), even_map(5, 2)}) {
    for (const std::int64_t head_dim : {6, 80}) {
      const Problem problem = make_problem(random, heads, head_dim, kLength);
      ThreadTeam one(1);
      const at::Tensor expected =
          run_attention(Context(one, Isa::kGeneric), problem, in_order(kLength, kLength));
      Schedule scattered = in_order(kLength, 7);
      scattered.pool_blocks = 23;
      scattered.blocks = {5, 22, 0, 11, 3, 17, 8};
      for (const int threads : {1, 2, 3}) {
        ThreadTeam team(threads);
        for (const Isa isa : testing::supported_isas()) {
          if (isa == Isa::kGeneric && threads != 2) continue;  // slow; once is enough
          const Context context(team, isa);
          for (const std::int64_t chunk : {1, 16, 33, 101}) {
            EXPECT_TRUE(
                same_bits(run_attention(context, problem, in_order(kLength, chunk)), expected))
                << isa_name(isa) << ", " << threads << " threads, chunks of " << chunk;
          }
          EXPECT_TRUE(same_bits(run_attention(context, problem, scattered), expected))
              << isa_name(isa) << ", " << threads << " threads, scattered blocks";
        }
      }
    }
  }
}

TEST(Attention, DoesNotDependOnOtherSequencesOfTheBatch) {
  Random random(13);
  ThreadTeam team(2);
  const Context context(team, detect_isa());
  const HeadMap heads = even_map(9, 3);
  const std::vector<std::int64_t> lengths{1, 40, 17, 100, 16};
  std::vector<Problem> problems;
  std::vector<at::Tensor> expected;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    problems.push_back(make_problem(random, heads, 64, length));
    expected.push_back(run_attention(context, problems.back(), in_order(length, length)));
    total += length;
  }
  at::Tensor qkv = at::empty({total, problems[0].qkv.size(1)}, at::kFloat);
  at::Tensor cosines = at::empty({total, 32}, at::kFloat);
  at::Tensor sines = at::empty({total, 32}, at::kFloat);
  std::vector<std::vector<std::int32_t>> blocks(lengths.size());
  std::vector<SequenceRows> sequences;
  std::int64_t row = 0;
  std::int32_t block = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    qkv.narrow(0, row, lengths[i]).copy_(problems[i].qkv);
    cosines.narrow(0, row, lengths[i]).copy_(problems[i].cosines);
    sines.narrow(0, row, lengths[i]).copy_(problems[i].sines);
    for (std::int64_t t = 0; t < lengths[i]; t += 16) blocks[i].push_back(block++);
    sequences.push_back({row, lengths[i], 0, blocks[i]});
    row += lengths[i];
  }
  KvPool pool = poisoned_pool(problems[0], block);
  at::Tensor out = at::empty({total, 9 * 64}, at::kFloat);
  rope_and_store(context, qkv, cosines, sines, heads, sequences, pool, 0);
  attention(context, qkv, heads, sequences, pool, 0, out);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    EXPECT_TRUE(same_bits(out.narrow(0, sequences[i].row_begin, lengths[i]), expected[i]))
        << "sequence of " << lengths[i];
  }
}

TEST(Attention, SurvivesScoresOfAnySize) {
  Random random(14);
  ThreadTeam team(1);
  Problem problem = make_problem(random, even_map(1, 1), 8, 33);
  problem.qkv.narrow(1, 0, 8).mul_(1e4);  // differences of thousands: all but one weight are zero
  for (const Isa isa : testing::supported_isas()) {
    const at::Tensor out = run_attention(Context(team, isa), problem, in_order(33, 33));
    EXPECT_TRUE(out.isfinite().all().item<bool>()) << isa_name(isa);
    EXPECT_TRUE(
        same_bits(out, run_attention(Context(team, Isa::kGeneric), problem, in_order(33, 33))));
  }
}

TEST(Attention, TakesARankWithoutHeads) {
  ThreadTeam team(2);
  const Context context(team, detect_isa());
  Random random(15);
  const Problem problem = make_problem(random, HeadMap{}, 8, 5);
  EXPECT_EQ(run_attention(context, problem, in_order(5, 5)).numel(), 0);
}

TEST(Attention, RejectsBlockTablesThatDoNotFit) {
  ThreadTeam team(1);
  const Context context(team, Isa::kGeneric);
  Random random(16);
  const Problem problem = make_problem(random, even_map(2, 1), 8, 17);
  Schedule schedule = in_order(17, 17);
  schedule.blocks.pop_back();
  EXPECT_THROW(run_attention(context, problem, schedule), InternalError);
  schedule.blocks.push_back(2);
  EXPECT_THROW(run_attention(context, problem, schedule), InternalError);
}

TEST(RopeTables, AreWithinOneUlpUpToTheLongestContext) {
  Random random(17);
  ThreadTeam team(2);
  std::vector<std::int32_t> positions{0, 1, 2, 3, 710, 355, 131071, 8388607, 16777215};
  for (int i = 0; i < 4000; ++i) {
    positions.push_back(static_cast<std::int32_t>(random() % 16777216U));
  }
  const std::vector<float> inv_freq{1.0F, 0.99F, 0.5F, 0.0316227766F, 1e-4F, 3.0689260e-7F};
  const auto rows = static_cast<std::int64_t>(positions.size());
  const auto pairs = static_cast<std::int64_t>(inv_freq.size());
  at::Tensor first_cosines;
  at::Tensor first_sines;
  for (const Isa isa : testing::supported_isas()) {
    at::Tensor cosines = at::empty({rows, pairs}, at::kFloat);
    at::Tensor sines = at::empty({rows, pairs}, at::kFloat);
    rope_tables(Context(team, isa), positions, inv_freq, cosines, sines);
    if (!first_cosines.defined()) {
      first_cosines = cosines;
      first_sines = sines;
    }
    EXPECT_TRUE(same_bits(cosines, first_cosines)) << isa_name(isa);
    EXPECT_TRUE(same_bits(sines, first_sines)) << isa_name(isa);
  }
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(positions[static_cast<std::size_t>(n)]) *
                          inv_freq[static_cast<std::size_t>(i)];
      const auto check = [&](float got, double expected) {
        const float rounded = std::fabs(static_cast<float>(expected));
        const double ulp = std::nextafter(rounded, 2.0F) - rounded;
        ASSERT_LE(std::fabs(got - expected), ulp) << "angle " << angle;
      };
      check(first_cosines.const_data_ptr<float>()[n * pairs + i],
            std::cos(static_cast<double>(angle)));
      check(first_sines.const_data_ptr<float>()[n * pairs + i],
            std::sin(static_cast<double>(angle)));
    }
  }
}

TEST(RopeAndStore, LeavesTheRestOfAHeadWhereTheTablesAreShort) {
  Random random(18);
  ThreadTeam team(1);
  const Context context(team, detect_isa());
  const HeadMap heads = even_map(1, 1);
  at::Tensor qkv = random_rows(random, 1, 24);
  const at::Tensor before = qkv.clone();
  const at::Tensor cosines = at::full({1, 2}, 0.6, at::kFloat);
  const at::Tensor sines = at::full({1, 2}, 0.8, at::kFloat);
  KvPool pool({1, 1, 1, 8});
  const std::vector<std::int32_t> blocks{0};
  const SequenceRows sequence{0, 1, 0, blocks};
  rope_and_store(context, qkv, cosines, sines, heads, {&sequence, 1}, pool, 0);
  EXPECT_TRUE(same_bits(qkv.narrow(1, 4, 4), before.narrow(1, 4, 4)));
  EXPECT_TRUE(same_bits(qkv.narrow(1, 16, 8), before.narrow(1, 16, 8)));
  for (std::int64_t i = 0; i < 8; i += 2) {
    const float real = before[0][i].item<float>();
    const float imaginary = before[0][i + 1].item<float>();
    const bool turned = i < 4;
    EXPECT_FLOAT_EQ(qkv[0][i].item<float>(), turned ? real * 0.6F - imaginary * 0.8F : real);
    EXPECT_FLOAT_EQ(qkv[0][i + 1].item<float>(),
                    turned ? imaginary * 0.6F + real * 0.8F : imaginary);
    EXPECT_EQ(pool.keys(0)[i * 16], qkv[0][8 + i].item<float>());
    EXPECT_EQ(pool.values(0)[i], before[0][16 + i].item<float>());
  }
}

TEST(KvPool, CopiesABlockInEveryLayer) {
  const KvPool::Shape shape{3, 4, 2, 6};
  KvPool pool(shape);
  EXPECT_EQ(pool.padded_head_dim(), 16);
  EXPECT_EQ(KvPool::block_bytes(shape), 3 * 2 * 16 * (6 + 16) * 4);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    std::fill_n(pool.keys(layer) + pool.key_block_stride(), 2 * 6 * 16,
                static_cast<float>(layer + 1));
    std::fill_n(pool.values(layer) + pool.value_block_stride(), 2 * 16 * 16,
                static_cast<float>(layer + 11));
  }
  pool.copy_block(1, 3);
  for (std::int64_t layer = 0; layer < 3; ++layer) {
    for (std::int64_t i = 0; i < 2 * 6 * 16; ++i) {
      ASSERT_EQ(pool.keys(layer)[3 * pool.key_block_stride() + i], static_cast<float>(layer + 1));
      ASSERT_EQ(pool.keys(layer)[2 * pool.key_block_stride() + i], 0.0F);
    }
    for (std::int64_t i = 0; i < 2 * 16 * 16; ++i) {
      ASSERT_EQ(pool.values(layer)[3 * pool.value_block_stride() + i],
                static_cast<float>(layer + 11));
    }
  }
  EXPECT_THROW(pool.copy_block(0, 4), InternalError);
}

}  // namespace
}  // namespace caravan::ops
