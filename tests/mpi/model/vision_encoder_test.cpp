// The image encoder against a plain reference that computes every row, and the same bits for every
// number of ranks and threads.

#include "caravan/model/vision_encoder.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>

#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "support/expect_error.h"
#include "support/reference_encoder.h"
#include "support/tiny_model.h"

namespace caravan::model {
namespace {

std::unique_ptr<parallel::Communicator> world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return parallel::make_world_communicator(size);
}

std::vector<std::uint8_t> random_pixels(const VisionConfig& vision, const TileGrid& grid) {
  test::SmallRandom random(static_cast<std::uint64_t>(100 * grid.down + grid.across));
  std::vector<std::uint8_t> pixels(
      static_cast<std::size_t>(grid.num_tiles() * 3 * vision.tile_size * vision.tile_size));
  for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random.below(256));
  return pixels;
}

std::vector<float> encode(VisionEncoder& encoder, const VisionConfig& vision,
                          const TileGrid& grid) {
  const auto pixels = random_pixels(vision, grid);
  encoder.embed(grid, pixels);
  for (std::int64_t layer = 0; layer < encoder.num_layers(); ++layer) encoder.run_layer(layer);
  std::vector<float> tokens;
  for (std::int64_t piece = 0; piece < encoder.num_pieces(); ++piece) {
    const at::Tensor rows = encoder.project(piece);
    tokens.insert(tokens.end(), rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel());
  }
  return tokens;
}

/// The uneven model, one whose tiles need no padding and which saves nothing, and one with more
/// tokens than the encoder takes at a time.
LlamaConfig variant(int number) {
  LlamaConfig config = test::uneven_vision_config();
  VisionConfig& vision = *config.vision;
  if (number == 1) {
    vision.patch_size = 1;
    vision.tile_size = 1;  // 2 tokens, padded to 8
    vision.saved_layers = {};
    vision.num_global_layers = 0;
  } else if (number == 2) {
    vision.patch_size = 1;
    vision.tile_size = 14;  // 197 tokens: four tiles are 788
    vision.num_local_layers = 1;
    vision.num_global_layers = 1;
    vision.saved_layers = {0};
    vision.width = 24;
    vision.num_heads = 3;
    vision.ffn_size = 70;
  }
  return config;
}

TEST(VisionEncoder, AgreesWithThePlainReference) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  for (const int number : {0, 1, 2}) {
    const LlamaConfig config = variant(number);
    test::RandomWeightSource source(config, 31, number == 0 ? DType::kBFloat16 : DType::kFloat32);
    VisionEncoder encoder(config, source, context, *comm);
    const std::vector<TileGrid> grids =
        number == 2 ? std::vector<TileGrid>{{1, 3}}
                    : std::vector<TileGrid>{{1, 1}, {1, 4}, {2, 1}, {2, 2}, {3, 1}};
    for (const TileGrid& grid : grids) {
      const auto got = encode(encoder, *config.vision, grid);
      EXPECT_EQ(std::ssize(got), grid.num_tiles() * config.vision->tile_tokens() * 72);
      if (comm->rank() != 0) continue;
      const auto expected =
          test::ReferenceEncoder(config, source).encode(grid, random_pixels(*config.vision, grid));
      for (std::size_t row = 0; row < expected.size(); ++row) {
        for (std::size_t c = 0; c < expected[row].size(); ++c) {
          ASSERT_NEAR(got[row * 72 + c], expected[row][c], 1e-4)
              << "variant " << number << ", grid " << grid.down << " x " << grid.across
              << ", token " << row << ", column " << c;
        }
      }
    }
  }
}

TEST(VisionEncoder, GivesTheBitsOfOneRankAndOneThread) {
  const auto comm = world();
  for (const int number : {0, 2}) {
    const LlamaConfig config = variant(number);
    test::RandomWeightSource source(config, 32, DType::kBFloat16);
    ThreadTeam one(1);
    ThreadTeam two(2);
    const ops::Context plain(one, ops::Isa::kGeneric);
    const ops::Context best(two, ops::detect_isa());
    parallel::SingleCommunicator single;
    VisionEncoder alone(config, source, plain, single);
    VisionEncoder shared(config, source, best, *comm);
    for (const TileGrid& grid : {TileGrid{1, 1}, TileGrid{3, 1}, TileGrid{2, 2}}) {
      if (number == 2 && grid.num_tiles() > 1) continue;
      const auto expected = encode(alone, *config.vision, grid);
      const auto got = encode(shared, *config.vision, grid);
      ASSERT_EQ(got.size(), expected.size());
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << "variant " << number << ", grid " << grid.down << " x " << grid.across;
    }
  }
}

TEST(VisionEncoder, CountsItsUnitsAndRefusesThemOutOfOrder) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = variant(2);
  test::RandomWeightSource source(config, 33);
  VisionEncoder encoder(config, source, context, *comm);
  const TileGrid grid{1, 3};
  EXPECT_EQ(num_image_units(*config.vision, grid), 1 + 2 + 2);  // 591 tokens
  const auto pixels = random_pixels(*config.vision, grid);
  test::expect_error<InternalError>([&] { encoder.run_layer(0); }, "encoder layer 0 of 2");
  encoder.embed(grid, pixels);
  EXPECT_EQ(encoder.num_pieces(), 2);
  test::expect_error<InternalError>([&] { encoder.run_layer(1); }, "the image is at layer 0");
  test::expect_error<InternalError>([&] { encoder.project(0); }, "after 0 of 2 encoder layers");
  test::expect_error<InternalError>([&] { encoder.embed({2, 3}, pixels); }, "grid of 2 x 3 tiles");
  test::expect_error<InternalError>(
      [&] {
        encoder.embed({1, 2}, pixels);
      },
      "2 tiles of 14 x 14 have 1176");
}

TEST(VisionEncoder, HoldsTheBytesThatThePlanExpects) {
  const auto comm = world();
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const LlamaConfig config = test::uneven_vision_config();
  test::RandomWeightSource source(config, 34, DType::kBFloat16);
  std::int64_t read = 0;
  VisionEncoder encoder(config, source, context, *comm, [&](std::int64_t bytes) { read += bytes; });
  std::int64_t expected = 0;
  const ShardShape shape = shard_shape(config, comm->rank(), comm->size());
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (!spec.name.starts_with("vision.")) continue;
    expected += shape.rows_of(spec, config).size() * spec.columns * (spec.is_vector ? 4 : 2);
  }
  EXPECT_EQ(read, expected);
  EXPECT_GT(encoder_activation_bytes(config, shape, 1), 0);
}

}  // namespace
}  // namespace caravan::model
