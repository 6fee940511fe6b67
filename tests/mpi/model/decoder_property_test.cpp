// Random small architectures, requests and cuts: the plain reference's logits, and the bits of one
// rank that computes each sequence alone in one step. Every number of ranks draws others.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "caravan/core/thread_team.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "decoder_runner.h"
#include "support/reference_decoder.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

using parallel::MpiCommunicator;
using test::Runner;
using test::SmallRandom;

constexpr int kArchitectures = 16;
constexpr std::int64_t kReferenceTokens = 10;  // the reference is slow

template <typename Value, std::size_t N>
Value one_of(SmallRandom& random, const Value (&values)[N]) {
  return values[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(N)))];
}

RopeScaling random_scaling(SmallRandom& random) {
  RopeScaling scaling;
  scaling.kind =
      one_of(random, {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kLlama3});
  if (scaling.kind == RopeScalingKind::kNone) return scaling;
  scaling.factor = static_cast<double>(2 + random.below(7));
  scaling.original_max_positions = 8 + random.below(64);
  return scaling;
}

LlamaConfig random_config(SmallRandom& random) {
  LlamaConfig config;
  config.num_kv_heads = 1 + random.below(6);
  config.num_heads = config.num_kv_heads * (1 + random.below(12 / config.num_kv_heads));
  config.head_dim = one_of<std::int64_t>(random, {2, 8, 16, 24, 34, 40, 64, 80, 96, 128});
  config.hidden_size = 1 + random.below(150);
  config.ffn_size = 1 + random.below(400);
  config.vocab_size = 5 + random.below(300);
  config.num_layers = 1 + random.below(3);
  config.max_positions = 4096;
  config.rope_theta = one_of(random, {10000.0, 500000.0});
  config.rope_scaling = random_scaling(random);
  config.tied_embeddings = random.below(2) == 0;
  config.attention_bias = random.below(3) == 0;
  config.mlp_bias = random.below(3) == 0;
  return config;
}

std::string describe(const LlamaConfig& config, std::uint64_t seed) {
  return "seed " + std::to_string(seed) + ", " + to_json(config);
}

/// The group in one of the ways in which sums travel.
std::unique_ptr<MpiCommunicator> random_group(SmallRandom& random, int rank) {
  const auto best = MpiCommunicator::Exchange::kBest;
  switch (random.below(3)) {
    case 0: return std::make_unique<MpiCommunicator>(best);
    case 1: return std::make_unique<MpiCommunicator>(best, rank / 2);
    default: return std::make_unique<MpiCommunicator>(MpiCommunicator::Exchange::kMpi);
  }
}

/// Feeds all sequences in steps that no rule determines.
void feed_randomly(SmallRandom& random, Runner& runner,
                   const std::vector<std::vector<std::int32_t>>& sequences) {
  std::vector<std::int64_t> left;
  for (const auto& sequence : sequences) left.push_back(std::ssize(sequence));
  while (std::any_of(left.begin(), left.end(), [](std::int64_t count) { return count > 0; })) {
    std::vector<std::int64_t> counts;
    for (std::int64_t& count : left) {
      const std::int64_t most = std::min<std::int64_t>(count, 30);
      counts.push_back(random.below(3) == 0 ? std::min<std::int64_t>(1, most)
                                            : random.below(most + 1));
      count -= counts.back();
    }
    const bool any =
        std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count > 0; });
    if (any) runner.step(sequences, counts);
  }
}

void expect_reference(const Runner& runner, const LlamaConfig& config,
                      const test::RandomWeightSource& source,
                      const std::vector<std::int32_t>& tokens) {
  const std::vector<std::int32_t> first(
      tokens.begin(), tokens.begin() + std::min(kReferenceTokens, std::ssize(tokens)));
  const auto expected = test::ReferenceDecoder(config, source).logits(first);
  for (std::int64_t position = 0; position < std::ssize(first); ++position) {
    const auto& row = runner.logits(0, position);
    const auto& wanted = expected[static_cast<std::size_t>(position)];
    double largest = 1;
    for (const double value : wanted) largest = std::max(largest, std::fabs(value));
    for (std::size_t v = 0; v < row.size(); ++v) {
      ASSERT_NEAR(row[v], wanted[v], 1e-4 * largest) << "position " << position << ", token " << v;
    }
  }
}

void expect_same_bits(const Runner& found, std::size_t sequence, const Runner& alone,
                      std::int64_t length) {
  for (std::int64_t position = 0; position < length; ++position) {
    const auto& expected = alone.logits(0, position);
    ASSERT_EQ(0, std::memcmp(found.logits(sequence, position).data(), expected.data(),
                             sizeof(float) * expected.size()))
        << "sequence " << sequence << ", position " << position;
  }
}

TEST(DecoderProperty, AnyArchitectureOnAnyRanksInAnySteps) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < kArchitectures; ++i) {
    const auto seed = static_cast<std::uint64_t>(1000 * size + i);
    SmallRandom random(seed);  // the same on every rank
    const LlamaConfig config = random_config(random);
    SCOPED_TRACE(describe(config, seed));
    ASSERT_TRUE(config.problems().empty()) << config.problems().front();
    test::RandomWeightSource source(
        config, seed, one_of(random, {DType::kFloat32, DType::kBFloat16, DType::kFloat16}));
    std::vector<std::vector<std::int32_t>> sequences;
    for (std::uint64_t s = 0; s < 2; ++s) {
      sequences.push_back(
          test::random_tokens(1 + random.below(50), config.vocab_size, seed * 7 + s));
    }
    const auto group = random_group(random, rank);
    ThreadTeam team(static_cast<int>(1 + random.below(3)));
    const ops::Context context(team, ops::detect_isa());
    Runner runner(config, source, context, *group);
    feed_randomly(random, runner, sequences);
    if (rank != 0) continue;

    parallel::SingleCommunicator single;
    ThreadTeam one_thread(1);
    const ops::Context plain(one_thread, ops::Isa::kGeneric);
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      Runner alone(config, source, plain, single);
      alone.step({sequences[s]}, {std::ssize(sequences[s])});
      expect_same_bits(runner, s, alone, std::ssize(sequences[s]));
      if (s == 0) expect_reference(alone, config, source, sequences[s]);
    }
  }
}

}  // namespace
}  // namespace caravan::model
