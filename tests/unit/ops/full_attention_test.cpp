#include "caravan/ops/full_attention.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/reference_ops.h"

namespace caravan::ops {
namespace {

using testing::Random;
using testing::random_rows;
using testing::same_bits;

constexpr std::int64_t kLanes = KvPool::kBlockTokens;

/// Runs of random keys and values, and rows that see some of them.
struct Problem {
  std::int64_t head_dim = 0;
  HeadMap heads;
  std::vector<at::Tensor> keys;  // of each run, [tokens, K d]
  std::vector<at::Tensor> values;
  at::Tensor queries;  // [N, H d]
  struct Rows {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::vector<std::size_t> runs;  // in the order in which they are seen
    std::vector<float> biases;
  };
  std::vector<Rows> ranges;
};

Problem make_problem(Random& random, std::int64_t head_dim, HeadMap heads) {
  Problem problem{head_dim, std::move(heads), {}, {}, {}, {}};
  for (const std::int64_t tokens : {17, 1, 32, 40}) {
    const std::int64_t width = problem.heads.local_kv_heads * head_dim;
    problem.keys.push_back(random_rows(random, tokens, width, 3));
    problem.values.push_back(random_rows(random, tokens, width, 1));
  }
  problem.queries = random_rows(random, 29, problem.heads.local_query_heads * head_dim, 5);
  problem.ranges = {{0, 3, {0}, {0}},
                    {3, 11, {0, 1, 3}, {0, std::log(3.0F), 0}},
                    {14, 1, {2}, {std::log(2.0F)}},
                    {20, 9, {2, 1, 0, 3}, {0, 0, std::log(7.0F), 0}}};
  return problem;
}

/// How the same problem is put into the pool and cut.
struct Placement {
  std::int64_t store_chunk = 1000;
  std::int64_t row_chunk = 1000;
  std::int64_t first_block = 0;
  std::int64_t block_step = 1;  // coprime to the 23 blocks of the pool
};

at::Tensor run(const Context& context, const Problem& problem, const Placement& placement) {
  KvPool pool({2, 23, problem.heads.local_kv_heads, problem.head_dim});
  std::fill_n(pool.keys(0), pool.key_block_stride() * 23, std::nanf(""));
  std::vector<std::vector<std::int32_t>> blocks(problem.keys.size());
  std::int64_t next = placement.first_block;
  for (std::size_t run = 0; run < problem.keys.size(); ++run) {
    const std::int64_t tokens = problem.keys[run].size(0);
    for (std::int64_t block = 0; block < ceil_div(tokens, kLanes); ++block) {
      blocks[run].push_back(static_cast<std::int32_t>(next % 23));
      next += placement.block_step;
    }
    for (std::int64_t begin = 0; begin < tokens; begin += placement.store_chunk) {
      const std::int64_t count = std::min(placement.store_chunk, tokens - begin);
      store_keys_values(context, problem.keys[run].narrow(0, begin, count),
                        problem.values[run].narrow(0, begin, count), blocks[run], begin, pool, 1);
    }
  }
  std::vector<std::vector<KeyRun>> runs;
  std::vector<std::vector<std::int32_t>> tables;
  for (const Problem::Rows& rows : problem.ranges) {
    runs.emplace_back();
    tables.emplace_back();
    for (std::size_t i = 0; i < rows.runs.size(); ++i) {
      const std::size_t run = rows.runs[i];
      runs.back().push_back({static_cast<std::int32_t>(problem.keys[run].size(0)), rows.biases[i]});
      tables.back().insert(tables.back().end(), blocks[run].begin(), blocks[run].end());
    }
  }
  std::vector<VisibleRows> ranges;
  for (std::size_t i = 0; i < problem.ranges.size(); ++i) {
    const Problem::Rows& rows = problem.ranges[i];
    for (std::int64_t begin = 0; begin < rows.count; begin += placement.row_chunk) {
      ranges.push_back({rows.begin + begin, std::min(placement.row_chunk, rows.count - begin),
                        runs[i], tables[i]});
    }
  }
  at::Tensor out =
      at::full({problem.queries.size(0), problem.heads.local_query_heads * problem.head_dim}, -7.0F,
               at::kFloat);
  full_attention(context, problem.queries, problem.heads, ranges, pool, 1, out);
  return out;
}

/// softmax(q k / sqrt(d)) v where a key of a run with bias b counts exp(b) times, in double.
std::vector<double> expected(const Problem& problem, const Problem::Rows& rows, std::int64_t n,
                             std::int64_t head) {
  const std::int64_t d = problem.head_dim;
  const std::int64_t kv = problem.heads.kv_head_of_query[static_cast<std::size_t>(head)];
  const float* const query =
      problem.queries.const_data_ptr<float>() + n * problem.queries.stride(0) + head * d;
  std::vector<double> result(static_cast<std::size_t>(d));
  double total = 0;
  for (std::size_t i = 0; i < rows.runs.size(); ++i) {
    const at::Tensor& keys = problem.keys[rows.runs[i]];
    const at::Tensor& values = problem.values[rows.runs[i]];
    for (std::int64_t t = 0; t < keys.size(0); ++t) {
      const float* const key = keys.const_data_ptr<float>() + t * keys.stride(0) + kv * d;
      const float* const value = values.const_data_ptr<float>() + t * values.stride(0) + kv * d;
      const double score = testing::dot(query, key, d) / std::sqrt(static_cast<double>(d));
      const double weight = std::exp(score) * std::exp(static_cast<double>(rows.biases[i]));
      total += weight;
      for (std::int64_t e = 0; e < d; ++e) {
        result[static_cast<std::size_t>(e)] += weight * static_cast<double>(value[e]);
      }
    }
  }
  for (double& value : result) value /= total;
  return result;
}

HeadMap grouped(std::int64_t queries, std::int64_t kv) {
  HeadMap map{queries, kv, {}};
  for (std::int64_t h = 0; h < queries; ++h) {
    map.kv_head_of_query.push_back(static_cast<std::int32_t>(h * kv / queries));
  }
  return map;
}

TEST(FullAttention, IsSoftmaxOverTheVisibleRuns) {
  ThreadTeam team(2);
  Random random(41);
  for (const std::int64_t head_dim : {2, 12, 16, 20, 80, 128}) {
    const Problem problem = make_problem(random, head_dim, grouped(4, 2));
    for (const Isa isa : testing::supported_isas()) {
      const at::Tensor out = run(Context(team, isa), problem, {});
      const auto* const got = out.const_data_ptr<float>();
      std::vector<bool> seeing(static_cast<std::size_t>(out.size(0)));
      for (const Problem::Rows& rows : problem.ranges) {
        for (std::int64_t n = rows.begin; n < rows.begin + rows.count; ++n) {
          seeing[static_cast<std::size_t>(n)] = true;
          for (std::int64_t head = 0; head < 4; ++head) {
            const std::vector<double> want = expected(problem, rows, n, head);
            for (std::int64_t e = 0; e < head_dim; ++e) {
              ASSERT_NEAR(got[(n * 4 + head) * head_dim + e], want[static_cast<std::size_t>(e)],
                          1e-5)
                  << isa_name(isa) << ", head size " << head_dim << ", row " << n << ", head "
                  << head << ", element " << e;
            }
          }
        }
      }
      for (std::int64_t n = 0; n < out.size(0); ++n) {
        if (seeing[static_cast<std::size_t>(n)]) continue;
        EXPECT_EQ(got[n * 4 * head_dim], -7.0F) << n;
      }
    }
  }
}

TEST(FullAttention, GivesTheSameBitsForEveryBuildThreadCountCutAndPlacement) {
  Random random(42);
  for (const HeadMap& heads : {grouped(9, 3), grouped(13, 1), grouped(5, 5)}) {
    for (const std::int64_t head_dim : {6, 80}) {
      const Problem problem = make_problem(random, head_dim, heads);
      ThreadTeam one(1);
      const at::Tensor reference = run(Context(one, Isa::kGeneric), problem, {});
      for (const int threads : {1, 3}) {
        ThreadTeam team(threads);
        for (const Isa isa : testing::supported_isas()) {
          for (const Placement& placement :
               {Placement{}, Placement{7, 1, 11, 5}, Placement{16, 4, 3, 22}}) {
            EXPECT_TRUE(same_bits(run(Context(team, isa), problem, placement), reference))
                << isa_name(isa) << ", " << threads << " threads, rows in chunks of "
                << placement.row_chunk;
          }
        }
      }
    }
  }
}

TEST(FullAttention, CountsARunLikeItsKeysRepeated) {
  Random random(43);
  ThreadTeam team(1);
  Problem repeated = make_problem(random, 20, grouped(2, 2));
  Problem counted = repeated;
  repeated.ranges = {{0, 29, {0, 2, 2, 2}, {0, 0, 0, 0}}};
  counted.ranges = {{0, 29, {0, 2}, {0, std::log(3.0F)}}};
  const Context context(team, detect_isa());
  const at::Tensor difference = run(context, repeated, {}).sub(run(context, counted, {}));
  EXPECT_LT(difference.abs().max().item<float>(), 2e-6F);
}

TEST(FullAttention, RefusesWhatDoesNotFit) {
  ThreadTeam team(1);
  const Context context(team, Isa::kGeneric);
  const HeadMap heads = grouped(1, 1);
  KvPool pool({1, 3, 1, 4});
  const at::Tensor queries = at::full({5, 4}, 1.0F, at::kFloat);
  at::Tensor out = at::full({5, 4}, 0.0F, at::kFloat);
  const auto refused = [&](const VisibleRows& range, const char* words) {
    test::expect_error<InternalError>(
        [&] {
          full_attention(context, queries, heads, {&range, 1}, pool, 0, out);
        },
        words);
  };
  const std::vector<KeyRun> runs{{17, 0}, {16, 0}};
  const std::vector<KeyRun> nothing{{0, 0}};
  const std::vector<std::int32_t> blocks{0, 1, 2};
  const std::vector<std::int32_t> beyond{0, 1, 3};
  refused({3, 3, runs, blocks}, "rows [3, 6) of a batch of 5");
  refused({0, 1, {}, blocks}, "see no keys");
  refused({0, 1, nothing, blocks}, "a run of 0 keys");
  refused({0, 1, runs, std::span(blocks).first(2)}, "the runs need 3 blocks, 2 are given");
  refused({0, 1, runs, beyond}, "block 3 of a pool of 3");
  test::expect_error<InternalError>(
      [&] {
        store_keys_values(context, queries, queries, std::span(blocks).first(1), 12, pool, 0);
      },
      "tokens [12, 17) need more than the 1 blocks given");
}

}  // namespace
}  // namespace caravan::ops
