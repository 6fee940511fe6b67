// Decoder steps with images: the same bits for every number of ranks and threads, chunking and
// batch; rows that see no image are those of a text model. (Values: tests/oracle/vision.)

#include <gtest/gtest.h>
#include <mpi.h>

#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"
#include "caravan/model/stored_parts.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "support/expect_error.h"
#include "support/image_rig.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

using test::ImageRig;

std::unique_ptr<parallel::Communicator> world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return parallel::make_world_communicator(size);
}

std::vector<std::uint8_t> random_pixels(const VisionConfig& vision, const TileGrid& grid,
                                        std::uint64_t seed) {
  test::SmallRandom random(seed);
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(grid.num_tiles() * 3 * vision.tile_size * vision.tile_size));
  for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random.below(256));
  return pixels;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocab,
                                        std::uint64_t seed) {
  test::SmallRandom random(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<std::int32_t>(random.below(vocab)));
  }
  return tokens;
}

/// Text, text with two adjacent images and one later, text that starts with a shared image.
std::vector<ImageRig::Sequence> sequences(const LlamaConfig& config) {
  std::vector<ImageRig::Sequence> all(3);
  all[0].tokens = random_tokens(19, config.vocab_size, 1);
  all[1].tokens = random_tokens(26, config.vocab_size, 2);
  for (const std::size_t marker : {3, 4, 17}) {
    all[1].tokens[marker] = static_cast<std::int32_t>(config.vocab_size);
  }
  all[1].intervals = {{0, 3, 17}, {1, 4, 17}, {2, 17, -1}};
  all[2].tokens = random_tokens(14, config.vocab_size, 3);
  all[2].tokens[0] = static_cast<std::int32_t>(config.vocab_size);
  all[2].intervals = {{1, 0, -1}};
  return all;
}

void encode_images(ImageRig& rig, const LlamaConfig& config, std::int64_t units) {
  const std::vector<TileGrid> grids = {{1, 2}, {1, 1}, {2, 2}};
  for (std::size_t i = 0; i < grids.size(); ++i) {
    rig.encode(grids[i], random_pixels(*config.vision, grids[i], 40 + i), units);
  }
}

/// Logits of all tokens, each sequence alone in one step.
std::vector<ImageRig::Sequence> run_alone(ImageRig& rig, const LlamaConfig& config) {
  auto all = sequences(config);
  for (auto& sequence : all) rig.step({{&sequence, std::ssize(sequence.tokens)}});
  return all;
}

/// All together, in uneven chunks.
std::vector<ImageRig::Sequence> run_together(ImageRig& rig, const LlamaConfig& config) {
  auto all = sequences(config);
  rig.step({{&all[1], 4}, {&all[0], 7}});
  rig.step({{&all[0], 1}, {&all[2], 1}, {&all[1], 15}});
  rig.step({{&all[2], 12}, {&all[1], 1}});
  rig.step({{&all[1], 6}, {&all[2], 1}, {&all[0], 11}});
  return all;
}

void expect_same_logits(const std::vector<ImageRig::Sequence>& got,
                        const std::vector<ImageRig::Sequence>& expected, const char* what) {
  for (std::size_t s = 0; s < expected.size(); ++s) {
    ASSERT_EQ(got[s].logits.size(), expected[s].tokens.size()) << what;
    for (std::size_t i = 0; i < expected[s].logits.size(); ++i) {
      EXPECT_EQ(got[s].logits[i], expected[s].logits[i])
          << what << ", sequence " << s << ", token " << i;
    }
  }
}

TEST(ImageLayers, GiveTheSameBitsForRanksThreadsChunksAndBatches) {
  const auto comm = world();
  const LlamaConfig config = test::uneven_vision_config();
  test::RandomWeightSource source(config, 51, DType::kBFloat16);
  ThreadTeam one(1);
  ThreadTeam two(2);
  const ops::Context plain(one, ops::Isa::kGeneric);
  const ops::Context best(two, ops::detect_isa());
  parallel::SingleCommunicator single;
  ImageRig lone(config, source, plain, single);
  encode_images(lone, config, 1);
  const auto expected = run_alone(lone, config);
  ImageRig rig(config, source, best, *comm);
  encode_images(rig, config, 3);
  const auto alone = run_alone(rig, config);
  const auto together = run_together(rig, config);
  if (comm->rank() != 0) return;
  expect_same_logits(alone, expected, "alone");
  expect_same_logits(together, expected, "together");
  // The images are seen: without them the text is another one.
  auto blind = sequences(config);
  blind[1].intervals.clear();
  lone.step({{&blind[1], 26}});
  EXPECT_EQ(blind[1].logits[2], expected[1].logits[2]);
  EXPECT_NE(blind[1].logits[3], expected[1].logits[3]);
}

TEST(ImageLayers, LeaveTextAsATextModelHasIt) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = test::uneven_vision_config();
  LlamaConfig text = config;
  text.vision.reset();
  test::RandomWeightSource source(config, 52);
  test::RandomWeightSource text_source(text, 52);
  ImageRig rig(config, source, context, *comm);
  encode_images(rig, config, 100);
  auto all = sequences(config);
  rig.step({{&all[1], 20}, {&all[0], 19}});
  Decoder decoder(text, text_source, context, *comm, ImageRig::limits());
  StepPlan plan;
  plan.tokens = all[0].tokens;
  for (std::int32_t i = 0; i < 19; ++i) plan.positions.push_back(i);
  plan.blocks = {0, 1};
  plan.segments = {{0, 19, 0, 0, 2}};
  plan.logit_rows = plan.positions;
  decoder.forward(plan);
  decoder.logits([&](std::int64_t index, std::span<const float> row) {
    EXPECT_EQ(all[0].logits[static_cast<std::size_t>(index)],
              std::vector<float>(row.begin(), row.end()))
        << "token " << index;
  });
}

TEST(ImageLayers, RefuseAPlanThatDoesNotFit) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = test::uneven_vision_config();
  test::RandomWeightSource source(config, 53);
  Decoder decoder(config, source, context, *comm, ImageRig::limits());
  StepPlan plan;
  plan.tokens = {1, 2};
  plan.positions = {0, 1};
  plan.blocks = {0};
  plan.segments = {{0, 2, 0, 0, 1}};
  plan.seen_tokens = {17};
  plan.seen_blocks = {4, 5};
  const auto refused = [&](const StepPlan::ImageRows& rows, const char* words) {
    StepPlan wrong = plan;
    wrong.image_rows = {rows};
    test::expect_error<InternalError>([&] { decoder.forward(wrong); }, words);
  };
  refused({1, 2, 0, 1, 0, 2}, "rows [1, 3) that see images, of 2");
  refused({1, 1, 0, 2, 0, 2}, "the images that row 1 sees do not fit the plan");
  refused({1, 1, 0, 1, 0, 1}, "have 2 blocks, 1 are given");
  StepPlan beyond = plan;
  beyond.image_work = {{0, 1, 1, 1, 0, 5, 0, 0}};
  test::expect_error<InternalError>([&] { decoder.forward(beyond); },
                                    "units [0, 1) of an image do not fit the plan");
  StepPlan unknown = plan;
  unknown.tokens[1] = static_cast<std::int32_t>(config.vocab_size + 8);
  test::expect_error<InternalError>([&] { decoder.forward(unknown); }, "token id 339");

  LlamaConfig text = config;
  text.vision.reset();
  test::RandomWeightSource text_source(text, 53);
  Decoder blind(text, text_source, context, *comm, ImageRig::limits());
  StepPlan work = plan;
  work.image_work = {{0, 1, 1, 1, 0, 0, 0, 0}};
  test::expect_error<InternalError>([&] { blind.forward(work); }, "the model reads none");
}

TEST(ImageLayers, HoldTheBytesThatThePlanExpects) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = test::uneven_vision_config();
  const ShardShape shape = shard_shape(config, comm->rank(), comm->size());
  test::RandomWeightSource source(config, 54, DType::kBFloat16);
  std::int64_t read = 0;
  const Decoder decoder(config, source, context, *comm, ImageRig::limits(),
                        [&](std::int64_t bytes) { read += bytes; });
  EXPECT_EQ(read, shard_weight_bytes(config, shape, DType::kBFloat16));
  EXPECT_EQ(image_block_bytes(config, shape),
            2 * shape.local_num_kv_heads() * 16 * (8 + 16) * 4);  // layers, heads, keys and values
  LlamaConfig text = config;
  text.vision.reset();
  EXPECT_EQ(image_block_bytes(text, shape), 0);
  EXPECT_GT(activation_bytes(config, shape, ImageRig::limits()),
            activation_bytes(text, shape, ImageRig::limits()) +
                encoder_activation_bytes(config, shape, 1));
}

}  // namespace
}  // namespace caravan::model
