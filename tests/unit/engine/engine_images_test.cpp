// Requests with images in continuous batching: the same answers as alone, to the last bit, whatever
// runs beside them and however the work is cut.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "caravan/core/error.h"
#include "caravan/parallel/single_communicator.h"
#include "image_requests.h"
#include "support/expect_error.h"

namespace caravan::engine {
namespace {

using test::Answers;
using test::EngineSetup;
using test::expect_same_answers;
using test::image_requests;
using test::make_request;
using test::vision_setup;

class EngineImages : public testing::Test {
 protected:
  test::RunResult run(const EngineSetup& setup, const std::vector<Request>& requests) {
    return test::run_engine(communicator_, source_, setup, requests);
  }
  Answers run_alone(const std::vector<Request>& requests) {
    return test::run_alone(communicator_, source_, vision_setup(), requests);
  }

  parallel::SingleCommunicator communicator_;
  test::RandomWeightSource source_{test::uneven_vision_config(), 42};
};

void shuffle(std::vector<Request>& requests, std::uint64_t seed) {
  test::SmallRandom random(seed);
  for (std::size_t i = requests.size(); i > 1; --i) {
    std::swap(requests[i - 1],
              requests[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  }
}

TEST_F(EngineImages, GiveTheSameBitsAloneBatchedShuffledAndChunked) {
  std::vector<Request> requests = image_requests();
  const Answers alone = run_alone(requests);
  {
    SCOPED_TRACE("batched");
    const auto result = run(vision_setup(), requests);
    expect_same_answers(result.answers, alone);
    EXPECT_GT(result.statistics.images_reused, 4);
    EXPECT_EQ(result.statistics.image_put_backs, 0);
  }
  for (const std::int64_t step_tokens : {1, 5, 30}) {
    SCOPED_TRACE("max_step_tokens " + std::to_string(step_tokens));
    EngineSetup setup = vision_setup();
    setup.limits.max_step_tokens = step_tokens;
    expect_same_answers(run(setup, requests).answers, alone);
  }
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("shuffled");
    shuffle(requests, seed);
    EngineSetup setup = vision_setup();
    setup.limits.max_sequences = 1 + 2 * static_cast<std::int64_t>(seed);
    expect_same_answers(run(setup, requests).answers, alone);
  }
}

TEST_F(EngineImages, GiveTheSameBitsWithPutBacks) {
  std::vector<Request> requests = image_requests();
  // The oldest asks for the whole pool when younger ones have taken what it left.
  requests.insert(requests.begin(), make_request(1, 40, requests[0].sampling));
  test::show_images(requests.front(), {{1, 0}, {30, 3}, {31, 7}});
  const Answers alone = run_alone(requests);
  std::int64_t put_backs = 0;
  std::int64_t image_put_backs = 0;
  std::int64_t encoded = 0;
  // 10 image blocks: just the largest group.
  for (const auto& [blocks, image_blocks, step_tokens] :
       {std::array<std::int64_t, 3>{6, 40, 24}, {400, 10, 7}, {400, 11, 24}, {9, 10, 7}}) {
    SCOPED_TRACE("blocks " + std::to_string(blocks) + ", " + std::to_string(image_blocks));
    EngineSetup setup = vision_setup();
    setup.limits.kv_blocks = blocks;
    setup.limits.image_blocks = image_blocks;
    setup.limits.max_step_tokens = step_tokens;
    const auto result = run(setup, requests);
    put_backs += result.statistics.put_backs;
    image_put_backs += result.statistics.image_put_backs;
    encoded = std::max(encoded, result.statistics.images_encoded);
    expect_same_answers(result.answers, alone);
  }
  EXPECT_GT(put_backs, 2);
  EXPECT_GT(image_put_backs, 2);
  EXPECT_GT(encoded, 12) << "images were meant to be encoded again";
}

TEST_F(EngineImages, GiveTheSameBitsWithAndWithoutSharedPrefixes) {
  const std::vector<Request> requests = test::alike_image_requests();
  EngineSetup apart = vision_setup();
  apart.limits.prefix_sharing = false;
  const Answers alone = test::run_alone(communicator_, source_, apart, requests);
  std::int64_t put_backs = 0;
  for (const auto& [blocks, image_blocks, step_tokens] :
       {std::array<std::int64_t, 3>{400, 40, 512}, {400, 10, 24}, {9, 40, 24}, {7, 10, 7}}) {
    SCOPED_TRACE("blocks " + std::to_string(blocks) + ", " + std::to_string(image_blocks));
    EngineSetup setup = vision_setup();
    setup.limits.kv_blocks = blocks;
    setup.limits.image_blocks = image_blocks;
    setup.limits.max_step_tokens = step_tokens;
    const auto result = run(setup, requests);
    expect_same_answers(result.answers, alone);
    EXPECT_GT(result.statistics.reused_tokens, 16);
    put_backs += result.statistics.put_backs;
  }
  EXPECT_GT(put_backs, 2);
}

TEST_F(EngineImages, GiveTheSameBitsWithAndWithoutGuesses) {
  std::vector<Request> requests = image_requests();
  for (Request& request : requests) {
    request.sampling.max_tokens += 30;
    request.sampling.logit_bias = {{65, 30.0}, {66, 30.0}};
  }
  EngineSetup plain = vision_setup();
  plain.limits.max_drafts = 0;
  const Answers expected = run(plain, requests).answers;
  for (const std::int64_t sequences : {1, 3}) {
    SCOPED_TRACE("sequences " + std::to_string(sequences));
    EngineSetup setup = vision_setup();
    setup.limits.max_sequences = sequences;
    const auto result = run(setup, requests);
    expect_same_answers(result.answers, expected);
    EXPECT_GT(result.statistics.accepted_tokens, 30);
    EXPECT_GT(result.statistics.drafted_tokens, result.statistics.accepted_tokens);
  }
}

TEST_F(EngineImages, LeaveTextAsATextModelAnswersIt) {
  std::vector<Request> requests = image_requests();
  std::vector<Request> text;
  std::copy_if(requests.begin(), requests.end(), std::back_inserter(text),
               [](const Request& request) { return request.images.empty(); });
  ASSERT_EQ(text.size(), 3U);
  const auto untie = [](model::LlamaConfig& config) { config.tied_embeddings = false; };
  EngineSetup text_setup;
  text_setup.change_model = untie;
  model::LlamaConfig text_config = test::uneven_config();
  untie(text_config);
  test::RandomWeightSource text_source(text_config, 42);
  const auto expected = test::run_engine(communicator_, text_source, text_setup, text);
  const auto among_images = run(vision_setup(), requests);
  for (const Request& request : text) {
    test::expect_same_answer(among_images.answers.at(request.id), expected.answers.at(request.id));
  }
  EXPECT_EQ(run(vision_setup(), text).statistics.encoder_seconds, 0);
}

TEST_F(EngineImages, AreSeen) {
  // The same prompt with another image, or with its images exchanged, is another request.
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.logprobs = true;
  std::vector<Request> requests;
  for (const auto& [first, second] : {std::pair{1, 2}, {2, 1}, {1, 5}, {5, 1}}) {
    requests.push_back(make_request(7, 20, sampling));
    requests.back().id = std::ssize(requests);
    test::show_images(requests.back(), {{3, first}, {4, second}});
  }
  const Answers answers = run(vision_setup(), requests).answers;
  for (std::int64_t a = 1; a <= 4; ++a) {
    for (std::int64_t b = a + 1; b <= 4; ++b) {
      EXPECT_NE(answers.at(a).choices[0].logprobs[0].logprob,
                answers.at(b).choices[0].logprobs[0].logprob)
          << a << " and " << b;
    }
  }
}

/// Makes NaN of what the encoder adds to the last tile of two by two.
class PoisonedTile final : public model::WeightSource {
 public:
  explicit PoisonedTile(model::WeightSource& inner) : inner_(inner) {}
  DType dtype(const model::TensorSpec& spec) const override { return inner_.dtype(spec); }
  void read_rows(const model::TensorSpec& spec, Range rows, void* destination) override {
    inner_.read_rows(spec, rows, destination);
    const std::int64_t row = model::tile_cell_index({1, 1});
    if (spec.name != "vision.post_tile" || !rows.contains(row)) return;
    std::fill_n(static_cast<float*>(destination) + (row - rows.begin) * spec.columns, spec.columns,
                std::numeric_limits<float>::quiet_NaN());
  }

 private:
  model::WeightSource& inner_;
};

TEST_F(EngineImages, OfNanFailTheRequestsThatShowThemAlone) {
  const std::vector<Request> requests = image_requests();
  const Answers expected = run_alone(requests);
  PoisonedTile poisoned(source_);
  EngineSetup setup = vision_setup();
  setup.limits.image_blocks = 10;  // blocks that held NaN are used again
  setup.limits.max_step_tokens = 24;
  const auto result = test::run_engine(communicator_, poisoned, setup, requests);
  int failed = 0;
  for (const Request& request : requests) {
    SCOPED_TRACE("request " + std::to_string(request.id));
    const Answer& answer = result.answers.at(request.id);
    const bool shows_it =
        std::any_of(request.images.begin(), request.images.end(), [](const PromptImage& image) {
          return image.grid == model::TileGrid{2, 2};
        });
    if (!shows_it) {
      test::expect_same_answer(answer, expected.at(request.id));
      continue;
    }
    ASSERT_TRUE(answer.error);
    EXPECT_NE(answer.error->find("NaN"), std::string::npos) << *answer.error;
    ++failed;
  }
  EXPECT_EQ(failed, 4);
}

TEST_F(EngineImages, AreEncodedOncePerContent) {
  SamplingParams sampling;
  sampling.num_choices = 2;
  std::vector<Request> shared;
  std::vector<Request> distinct;
  for (std::int64_t id = 0; id < 6; ++id) {
    shared.push_back(make_request(id, 12, sampling));
    test::show_images(shared.back(), {{0, 2}, {1, 3}});
    distinct.push_back(shared.back());
    for (PromptImage& image : distinct.back().images) {
      image.content_hash += " of request " + std::to_string(id);
    }
  }
  const auto together = run(vision_setup(), shared);
  EXPECT_EQ(together.statistics.images_encoded, 2);
  EXPECT_EQ(together.statistics.images_reused, 10);
  EXPECT_GT(together.statistics.encoder_seconds, 0);
  const auto apart = run(vision_setup(), distinct);
  EXPECT_EQ(apart.statistics.images_encoded, 12);
  EXPECT_EQ(apart.statistics.images_reused, 0);
  expect_same_answers(apart.answers, together.answers);
}

TEST_F(EngineImages, StayWhileBlocksAreFree) {
  SamplingParams sampling;
  std::vector<Request> requests;
  for (std::int64_t id = 0; id < 9; ++id) {
    requests.push_back(make_request(id, 12, sampling));
    test::show_images(requests.back(), {{2, id % 3}});  // 2, 3 and 4 blocks
  }
  EngineSetup setup = vision_setup();
  setup.limits.max_sequences = 1;
  setup.limits.image_blocks = 9;
  EXPECT_EQ(run(setup, requests).statistics.images_encoded, 3);
  setup.limits.image_blocks = 8;
  EXPECT_EQ(run(setup, requests).statistics.images_encoded, 9) << "always the next one is dropped";
}

TEST_F(EngineImages, TextFlowsWhileAnImageIsEncoded) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = 40;
  Request text = make_request(1, 3, sampling);
  sampling.max_tokens = 1;
  Request image = make_request(2, 3, sampling);
  test::show_images(image, {{1, 3}});
  EngineSetup setup = vision_setup();
  setup.limits.max_step_tokens = 3;  // one unit a step
  setup.limits.max_drafts = 0;
  const auto result = run(setup, {text, image});
  const auto units = model::num_image_units(*test::uneven_vision_config().vision, {2, 2});
  EXPECT_EQ(result.statistics.steps, 40) << units << " units went along with the text's rows";
}

TEST_F(EngineImages, GiveTheSameBitsWhenAStepEncodesSeveral) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.logprobs = true;
  sampling.max_tokens = 2;
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < 12; ++i) {
    requests.push_back(make_request(i, 4, sampling));
    test::show_images(requests.back(), {{1, i}});
  }
  EngineSetup setup = vision_setup();
  setup.limits.image_blocks = 60;
  setup.limits.max_sequences = 16;
  setup.limits.max_step_tokens = 4000;
  const auto result = run(setup, requests);
  expect_same_answers(result.answers, run_alone(requests));
  EXPECT_EQ(result.statistics.images_encoded, 12);
  EXPECT_LE(result.statistics.steps, 6);
}

TEST_F(EngineImages, TextIsAnsweredBeforeRequestsThatWaitForImages) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = 30;
  std::vector<Request> requests;
  for (std::int64_t i = 0; i < 6; ++i) {
    requests.push_back(make_request(i, 4, sampling));
    test::show_images(requests.back(), {{1, 3 + 4 * i}});
  }
  for (std::int64_t i = 0; i < 12; ++i) requests.push_back(make_request(100 + i, 4, sampling));
  EngineSetup setup = vision_setup();
  const Answers ample = run(setup, requests).answers;
  setup.limits.image_blocks = 5;  // one image
  const auto result = run(setup, requests);
  expect_same_answers(result.answers, ample);
  EXPECT_LT(result.statistics.steps, 6 * 30 + 60) << "text took no steps of its own";
}

TEST_F(EngineImages, AskForPixels) {
  Request request = make_request(1, 5, {});
  test::show_images(request, {{1, 2}});
  request.images[0].pixels = std::make_shared<std::vector<std::uint8_t>>(7);
  test::expect_error<InternalError>([&] { run(vision_setup(), {request}); }, "7 bytes of pixels");
}

TEST(EngineImageRefusal, NamesWhatCanNeverRun) {
  const model::LlamaConfig config = test::uneven_vision_config();
  EngineLimits limits{4, 64, 10, 8};
  const auto refusal = [&](const std::vector<std::pair<std::size_t, std::int64_t>>& places,
                           auto change) {
    Request request = make_request(0, 20, {});
    test::show_images(request, places);
    change(request);
    return Engine::refusal(request, config, limits);
  };
  const auto nothing = [](Request&) {};
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  };
  EXPECT_EQ(refusal({{2, 3}, {3, 3}, {4, 1}}, nothing), "") << "8 blocks: one image counts once";
  EXPECT_EQ(refusal({{2, 3}, {4, 7}, {6, 11}}, nothing), "") << "one after the other";
  expect(refusal({{2, 3}, {5, 3}, {6, 7}}, nothing),
         "images 2 to 3 are seen together and take 160 image tokens, the image cache holds 128");
  expect(refusal({{2, 3}}, [](Request& r) { r.prompt[5] = test::kImageToken; }),
         "2 image tokens (id 331) and 1 images");
  expect(refusal({{2, 3}}, [](Request& r) { r.images.clear(); }), "1 image tokens (id 331)");
  expect(refusal({}, [](Request& r) { r.prompt[3] = 332; }), "token 3 of the prompt is 332");
  EXPECT_EQ(refusal({{2, 3}, {3, 7}}, [](Request& r) { r.sampling.max_tokens = 0; }), "")
      << "nothing to compute";
  Request request = make_request(0, 5, {});
  request.images.push_back(test::numbered_image(0));
  expect(Engine::refusal(request, test::uneven_config(), limits), "the model reads text alone");
  limits.image_blocks = 0;
  expect(refusal({{2, 0}}, nothing), "images 1 to 1");
}

}  // namespace
}  // namespace caravan::engine
