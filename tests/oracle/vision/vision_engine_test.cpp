// The engine with the models and requests of tests/data/vision: greedy text as the reference
// answers it, each request alone and all in one batch, also where blocks run short.

#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"
#include "caravan/engine/engine.h"
#include "caravan/parallel/mpi_communicator.h"
#include "expected_requests.h"
#include "hf_weights.h"
#include "unit/engine/engine_rig.h"

namespace caravan {
namespace {

using test::Answers;
using test::Expected;

constexpr engine::EngineLimits kAmple{16, 64, 400, 100};

engine::Request greedy_request(std::int64_t id, const Expected& expected) {
  engine::Request request;
  request.id = id;
  request.prompt = expected.prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = std::ssize(expected.greedy);
  request.sampling.logprobs = true;
  for (const test::Picture& picture : expected.pictures) {
    const std::string_view bytes(reinterpret_cast<const char*>(picture.pixels.data()),
                                 picture.pixels.size());
    request.images.push_back({std::to_string(std::hash<std::string_view>{}(bytes)), picture.grid,
                              std::make_shared<std::vector<std::uint8_t>>(picture.pixels)});
  }
  return request;
}

class VisionEngine : public testing::TestWithParam<const char*> {
 protected:
  VisionEngine() : team_(1), context_(team_, ops::detect_isa()) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    communicator_ = parallel::make_world_communicator(size);
    const std::string folder = test::checkpoint_folder(GetParam());
    config_ = test::read_hf_config(folder);
    test::HfWeights source(folder, config_);
    decoder_ = std::make_unique<model::Decoder>(
        config_, source, context_, *communicator_,
        model::DecoderLimits{kAmple.max_step_tokens, kAmple.kv_blocks, 1, kAmple.image_blocks});
    tokenizer_ = std::make_unique<text::Tokenizer>(test::byte_tokenizer_spec(config_.vocab_size));
    expected_ = test::read_requests(GetParam());
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      requests_.push_back(greedy_request(static_cast<std::int64_t>(i), expected_[i]));
    }
  }
  bool leader() const { return communicator_->rank() == 0; }

  /// Runs requests to the end together; answers on the leader, nothing elsewhere.
  Answers run(const std::vector<engine::Request>& requests, const engine::EngineLimits& limits) {
    Answers answers;
    if (!leader()) {
      engine::Engine::follow(*decoder_, *communicator_);
      return answers;
    }
    engine::Engine leader_engine(*decoder_, *communicator_, context_, *tokenizer_, limits);
    for (const engine::Request& request : requests) {
      EXPECT_EQ(engine::Engine::refusal(request, config_, limits), "");
      leader_engine.submit(request);
    }
    while (!leader_engine.idle()) {
      for (engine::Answer& answer : leader_engine.step()) answers[answer.id] = std::move(answer);
    }
    leader_engine.stop();
    statistics_ = leader_engine.statistics();
    return answers;
  }

  ThreadTeam team_;
  ops::Context context_;
  std::unique_ptr<parallel::Communicator> communicator_;
  model::LlamaConfig config_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<Expected> expected_;
  std::vector<engine::Request> requests_;
  engine::EngineStatistics statistics_;
};

TEST_P(VisionEngine, GreedyTextIsThatOfTheReferenceAloneAndInBatches) {
  ASSERT_GE(requests_.size(), 7U);
  Answers alone;
  for (const engine::Request& request : requests_) alone.merge(run({request}, kAmple));
  for (const auto& [id, answer] : alone) {
    const Expected& expected = expected_[static_cast<std::size_t>(id)];
    ASSERT_FALSE(answer.error) << expected.id << ": " << *answer.error;
    const std::vector<std::int32_t>& found = answer.choices.at(0).token_ids;
    ASSERT_EQ(found.size(), expected.greedy.size()) << expected.id;
    for (std::size_t step = 0; step < expected.comparable_tokens(); ++step) {
      ASSERT_EQ(found[step], expected.greedy[step]) << expected.id << ", step " << step;
    }
  }
  const Answers together = run(requests_, kAmple);
  if (leader()) test::expect_same_answers(together, alone);
  // Little more than the longest text and the largest group of images, last request first.
  std::reverse(requests_.begin(), requests_.end());
  const Answers short_of_blocks = run(requests_, {16, 50, 24, 12});
  if (leader()) test::expect_same_answers(short_of_blocks, alone);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, VisionEngine, testing::Values("tiny-a", "tiny-b", "tiny-m"),
                         [](const auto& suite) { return std::string(1, suite.param[5]); });

}  // namespace
}  // namespace caravan
