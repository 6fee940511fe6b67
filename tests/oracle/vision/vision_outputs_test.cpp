// Models with vision against stored outputs of the reference (tests/data/vision): states of the
// encoder and the decoder, image tokens, logits, greedy continuations; alone and all in one batch.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"
#include "caravan/parallel/mpi_communicator.h"
#include "expected_requests.h"
#include "hf_weights.h"
#include "support/image_rig.h"

namespace caravan {
namespace {

using test::Expected;
using test::HfTensor;
using test::ImageRig;
using test::Picture;

constexpr float kTolerance = 2e-4F;

void expect_near(const float* got, const float* expected, std::int64_t count,
                 const std::string& what) {
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_NEAR(got[i], expected[i], kTolerance) << what << ", element " << i;
  }
}

class VisionOutputs : public testing::TestWithParam<const char*> {
 protected:
  VisionOutputs() : team_(1), context_(team_, ops::detect_isa()) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    communicator_ = parallel::make_world_communicator(size);
    const std::string model = GetParam();
    const std::string folder = test::checkpoint_folder(model);
    config_ = test::read_hf_config(folder);
    test::HfWeights source(folder, config_);
    rig_ = std::make_unique<ImageRig>(config_, source, context_, *communicator_);
    requests_ = test::read_requests(model);
    EXPECT_GE(requests_.size(), 7U);
  }
  const model::VisionConfig& vision() const { return *config_.vision; }
  model::VisionEncoder& encoder() { return rig_->decoder().encoder(); }
  bool leader() const { return communicator_->rank() == 0; }

  const Expected& traced() const {
    const auto found =
        std::find_if(requests_.begin(), requests_.end(),
                     [](const Expected& request) { return request.id == "02-image-first"; });
    return *found;
  }
  ImageRig::Sequence begin(const Expected& request) {
    ImageRig::Sequence sequence;
    sequence.tokens = request.prompt;
    sequence.intervals = request.intervals;
    for (std::size_t i = 0; i < request.pictures.size(); ++i) {
      const Picture& picture = request.pictures[i];
      sequence.intervals[i].image = rig_->encode(picture.grid, picture.pixels, 7);
    }
    return sequence;
  }
  void prefill(ImageRig::Sequence& sequence) {
    while (sequence.done < std::ssize(sequence.tokens)) {
      rig_->step(
          {{&sequence, std::min<std::int64_t>(64, std::ssize(sequence.tokens) - sequence.done)}});
    }
  }

  ThreadTeam team_;
  ops::Context context_;
  std::unique_ptr<parallel::Communicator> communicator_;
  model::LlamaConfig config_;
  std::unique_ptr<ImageRig> rig_;
  std::vector<Expected> requests_;
};

TEST_P(VisionOutputs, EncoderStatesAreThoseOfTheReference) {
  const Expected& request = traced();
  const Picture& picture = request.pictures.at(0);
  const std::int64_t tiles = picture.grid.num_tiles();
  const std::int64_t tokens = vision().tile_tokens();
  int compared = 0;
  encoder().set_probe([&](std::string_view stage, const at::Tensor& rows) {
    const auto found =
        request.tensors.find("trace.vision." + std::string(stage == "norm_pre"    ? "ln_pre"
                                                           : stage == "norm_post" ? "ln_post"
                                                                                  : stage));
    if (found == request.tensors.end()) return;
    ++compared;
    const std::int64_t width = rows.size(1);
    const std::int64_t padded = found->second.shape.size() == 3 ? 96 / 4 : found->second.shape[2];
    for (std::int64_t row = 0; row < rows.size(0); ++row) {
      const bool padding = row >= (tiles + 1) * tokens;
      const std::int64_t tile = padding ? row - (tiles + 1) * tokens : row / tokens;
      const std::int64_t token = padding ? tokens : row % tokens;
      if (token >= padded) continue;  // the stage comes before the padding
      expect_near(rows.const_data_ptr<float>() + row * width,
                  found->second.values.data() + (tile * padded + token) * width, width,
                  std::string(stage) + ", row " + std::to_string(row));
    }
  });
  encoder().embed(picture.grid, picture.pixels);
  for (std::int64_t layer = 0; layer < encoder().num_layers(); ++layer) encoder().run_layer(layer);
  encoder().set_probe({});
  EXPECT_GE(compared, 7);
}

TEST_P(VisionOutputs, ImageTokensAreThoseOfTheReference) {
  const std::int64_t tokens = vision().tile_tokens();
  const std::int64_t features = vision().feature_size();
  for (const Expected& request : requests_) {
    for (std::size_t i = 0; i < request.pictures.size(); ++i) {
      const Picture& picture = request.pictures[i];
      const std::string name = "image" + std::to_string(i);
      const HfTensor& some = request.tensors.at(name + ".features_tok0_1_last");
      encoder().set_probe([&](std::string_view stage, const at::Tensor& rows) {
        if (stage != "features") return;
        for (std::int64_t tile = 0; tile < picture.grid.num_tiles(); ++tile) {
          const std::int64_t stored[3] = {0, 1, tokens - 1};
          for (std::int64_t k = 0; k < 3; ++k) {
            expect_near(rows.const_data_ptr<float>() + (tile * tokens + stored[k]) * features,
                        some.values.data() + (tile * 3 + k) * features, features,
                        request.id + ", features of " + name);
          }
        }
      });
      encoder().embed(picture.grid, picture.pixels);
      for (std::int64_t layer = 0; layer < encoder().num_layers(); ++layer) {
        encoder().run_layer(layer);
      }
      encoder().set_probe({});
      ASSERT_EQ(encoder().num_pieces(), 1);
      const at::Tensor projected = encoder().project(0);
      expect_near(projected.const_data_ptr<float>(),
                  request.tensors.at(name + ".projected").values.data(), projected.numel(),
                  request.id + ", projected " + name);
    }
  }
}

TEST_P(VisionOutputs, DecoderStatesAreThoseOfTheReference) {
  const Expected& request = traced();
  ImageRig::Sequence sequence = begin(request);
  int compared = 0;
  rig_->decoder().set_probe([&](std::int64_t layer, const at::Tensor& x) {
    const std::string stage = layer == -1                   ? "embed"
                              : layer == config_.num_layers ? "norm"
                              : layer < 0                   ? "cross." + std::to_string(-2 - layer)
                                                            : "self." + std::to_string(layer);
    const auto found = request.tensors.find("trace.text." + stage);
    if (found == request.tensors.end()) return;
    ++compared;
    expect_near(x.const_data_ptr<float>(), found->second.values.data(), x.numel(), stage);
  });
  prefill(sequence);
  rig_->decoder().set_probe({});
  EXPECT_GE(compared, 6);
}

TEST_P(VisionOutputs, LogitsAndGreedyTextAreThoseOfTheReference) {
  for (const Expected& request : requests_) {
    ImageRig::Sequence sequence = begin(request);
    prefill(sequence);
    if (leader()) {
      const auto& last = request.tensors.at("logits_last").values;
      expect_near(sequence.logits.back().data(), last.data(), std::ssize(last),
                  request.id + ", logits of the last token");
      const auto all = request.tensors.find("logits_all");
      for (std::size_t i = 0; all != request.tensors.end() && i < sequence.logits.size(); ++i) {
        const auto vocab = static_cast<std::size_t>(config_.vocab_size);
        expect_near(sequence.logits[i].data(), all->second.values.data() + i * vocab,
                    config_.vocab_size, request.id + ", logits of token " + std::to_string(i));
      }
    }
    for (std::size_t step = 0; step < request.comparable_tokens(); ++step) {
      if (leader()) {
        const auto& row = sequence.logits.back();
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        ASSERT_EQ(best, request.greedy[step]) << request.id << ", step " << step;
      }
      sequence.tokens.push_back(request.greedy[step]);
      rig_->step({{&sequence, 1}});
    }
  }
}

TEST_P(VisionOutputs, ABatchOfAllGivesTheSameBits) {
  std::vector<ImageRig::Sequence> alone;
  std::vector<ImageRig::Sequence> together;
  for (const Expected& request : requests_) {
    alone.push_back(begin(request));
    prefill(alone.back());
  }
  for (const Expected& request : requests_) together.push_back(begin(request));
  for (bool more = true; more;) {
    std::vector<ImageRig::Chunk> chunks;
    for (std::size_t i = together.size(); i-- > 0;) {
      const std::int64_t left = std::ssize(together[i].tokens) - together[i].done;
      const std::int64_t most = 1 + static_cast<std::int64_t>(i) % 5;
      if (left > 0) chunks.push_back({&together[i], std::min(left, most)});
    }
    more = !chunks.empty();
    if (more) rig_->step(chunks);
  }
  for (std::size_t i = 0; leader() && i < alone.size(); ++i) {
    EXPECT_EQ(together[i].logits, alone[i].logits) << requests_[i].id;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, VisionOutputs, testing::Values("tiny-a", "tiny-b", "tiny-m"),
                         [](const auto& suite) { return std::string(1, suite.param[5]); });

}  // namespace
}  // namespace caravan
