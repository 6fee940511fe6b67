// The decoder against a plain reference, and the same bits for every number of ranks, chunking and
// batch.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>

#include "caravan/core/thread_team.h"
#include "caravan/model/decoder.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "decoder_runner.h"
#include "support/rank_groups.h"
#include "support/reference_decoder.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

using test::random_tokens;
using test::Runner;

std::unique_ptr<parallel::Communicator> world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return parallel::make_world_communicator(size);
}

LlamaConfig variant(int number) {
  LlamaConfig config = test::uneven_config();
  if (number == 1) {  // multi-head, untied, biases, wide heads
    config.num_heads = 4;
    config.num_kv_heads = 4;
    config.head_dim = 24;
    config.tied_embeddings = false;
    config.attention_bias = true;
    config.mlp_bias = true;
    config.ffn_size = 64;
  } else if (number ==
             2) {  // two heads on one KV head, scaling, head width that is no multiple of 4
    config.num_heads = 2;
    config.num_kv_heads = 1;
    config.head_dim = 6;
    config.rope_scaling = {RopeScalingKind::kLlama3, 8, 1, 4, 16};
  }
  return config;
}

TEST(Decoder, AgreesWithThePlainReference) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  for (const int number : {0, 1, 2}) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const LlamaConfig config = variant(number);
      test::RandomWeightSource source(config, 17, dtype);
      const auto tokens = random_tokens(21, config.vocab_size, 5);
      Runner runner(config, source, context, *comm);
      runner.step({tokens}, {21});
      if (comm->rank() != 0) continue;
      const auto expected = test::ReferenceDecoder(config, source).logits(tokens);
      for (std::int64_t position = 0; position < 21; ++position) {
        const auto& row = runner.logits(0, position);
        for (std::size_t v = 0; v < row.size(); ++v) {
          ASSERT_NEAR(row[v], expected[static_cast<std::size_t>(position)][v], 2e-4)
              << "variant " << number << ", position " << position << ", token " << v;
        }
      }
    }
  }
}

TEST(Decoder, GivesTheBitsOfOneRankOneThreadOneStep) {
  const auto comm = world();
  for (const int number : {0, 1, 2}) {
    const LlamaConfig config = variant(number);
    test::RandomWeightSource source(config, 23, DType::kBFloat16);
    const std::vector<std::vector<std::int32_t>> sequences = {
        random_tokens(37, config.vocab_size, 1), random_tokens(20, config.vocab_size, 2),
        random_tokens(5, config.vocab_size, 3)};

    // Alone, on one rank with one thread and the plain kernels: every rank computes this by itself.
    parallel::SingleCommunicator single;
    ThreadTeam one_thread(1);
    const ops::Context plain(one_thread, ops::Isa::kGeneric);
    std::vector<std::unique_ptr<Runner>> alone;
    for (const auto& sequence : sequences) {
      alone.push_back(std::make_unique<Runner>(config, source, plain, single));
      alone.back()->step({sequence}, {std::ssize(sequence)});
    }

    ThreadTeam two_threads(2);
    for (const auto isa : {ops::Isa::kGeneric, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
      if (!ops::isa_supported(isa)) continue;
      const ops::Context context(two_threads, isa);
      Runner mixed(config, source, context, *comm);
      mixed.step(sequences, {1, 20, 0});
      mixed.step(sequences, {16, 0, 2});
      mixed.step(sequences, {3, 0, 3});
      for (int i = 0; i < 17; ++i) mixed.step(sequences, {1, 0, 0});
      if (comm->rank() != 0) continue;
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        for (std::int64_t position = 0; position < std::ssize(sequences[s]); ++position) {
          const auto& expected = alone[s]->logits(0, position);
          const auto& found = mixed.logits(s, position);
          ASSERT_EQ(0, std::memcmp(found.data(), expected.data(), 4 * expected.size()))
              << "variant " << number << ", isa " << ops::isa_name(isa) << ", sequence " << s
              << ", position " << position;
        }
      }
    }
  }
}

TEST(Decoder, GivesTheSameBitsHoweverSumsTravel) {
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  for (const int number : {0, 1}) {
    const LlamaConfig config = variant(number);
    test::RandomWeightSource source(config, 37, DType::kBFloat16);
    const auto tokens = random_tokens(19, config.vocab_size, 4);
    parallel::SingleCommunicator single;
    Runner alone(config, source, context, single);
    alone.step({tokens}, {19});
    test::for_each_group([&](parallel::MpiCommunicator& group) {
      Runner runner(config, source, context, group);
      runner.step({tokens}, {17});
      runner.step({tokens}, {1});
      runner.step({tokens}, {1});
      if (group.rank() != 0) return;
      for (std::int64_t position = 0; position < 19; ++position) {
        const auto& expected = alone.logits(0, position);
        ASSERT_EQ(
            0, std::memcmp(runner.logits(0, position).data(), expected.data(), 4 * expected.size()))
            << "variant " << number << ", position " << position;
      }
    });
  }
}

TEST(Decoder, ArgmaxIsTheLargestLogitOnEveryRank) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = variant(0);
  test::RandomWeightSource source(config, 29);
  Decoder decoder(config, source, context, *comm, {64, 8});
  const auto tokens = random_tokens(12, config.vocab_size, 9);
  StepPlan plan;
  plan.tokens = tokens;
  for (std::int32_t i = 0; i < 12; ++i) plan.positions.push_back(i);
  plan.segments = {{0, 12, 0, 0, 1}};
  plan.blocks = {5};
  plan.argmax_rows = {3, 11, 7};
  decoder.forward(plan);
  const auto best = decoder.argmax();
  plan.logit_rows = plan.argmax_rows;
  plan.argmax_rows.clear();
  decoder.forward(plan);
  std::vector<ops::ArgMax> expected;
  decoder.logits([&](std::int64_t, std::span<const float> row) {
    const auto top = std::max_element(row.begin(), row.end());
    expected.push_back({*top, static_cast<std::int32_t>(top - row.begin())});
  });
  ASSERT_EQ(best.size(), 3U);
  if (comm->rank() != 0) return;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(best[i].index, expected[i].index);
    EXPECT_EQ(best[i].value, expected[i].value);
  }
}

TEST(Decoder, ReadsOnlyItsOwnRows) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = variant(0);
  test::RandomWeightSource source(config, 31);
  const Decoder decoder(config, source, context, *comm, {16, 4});
  std::int64_t expected = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    expected += decoder.shape().rows_of(spec, config).size();
  }
  EXPECT_EQ(source.rows_read(), expected);
}

TEST(Decoder, RefusesAPlanThatDoesNotFit) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = variant(0);
  test::RandomWeightSource source(config, 31);
  Decoder decoder(config, source, context, *comm, {4, 2});
  StepPlan plan;
  plan.tokens = {1, 2};
  plan.positions = {0, 1};
  plan.segments = {{0, 2, 0, 0, 1}};
  plan.blocks = {2};  // only blocks 0 and 1 exist
  EXPECT_THROW(decoder.forward(plan), InternalError);
  plan.blocks = {1};
  plan.segments = {{0, 1, 0, 0, 1}};  // one row is left over
  EXPECT_THROW(decoder.forward(plan), InternalError);
}

}  // namespace
}  // namespace caravan::model
