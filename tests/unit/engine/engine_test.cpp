#include "caravan/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "caravan/core/error.h"
#include "caravan/parallel/single_communicator.h"
#include "engine_rig.h"

namespace caravan::engine {
namespace {

using test::Answers;
using test::EngineSetup;
using test::expect_same_answers;
using test::make_request;
using test::mixed_requests;

class EngineTest : public testing::Test {
 protected:
  test::RunResult run(const EngineSetup& setup, const std::vector<Request>& requests) {
    return test::run_engine(communicator_, source_, setup, requests);
  }
  Answers run_alone(const EngineSetup& setup, const std::vector<Request>& requests) {
    return test::run_alone(communicator_, source_, setup, requests);
  }

  parallel::SingleCommunicator communicator_;
  test::RandomWeightSource source_{test::uneven_config(), 42};
};

TEST_F(EngineTest, GivesTheSameBitsAloneBatchedShuffledAndChunked) {
  std::vector<Request> requests = mixed_requests();
  const Answers alone = run_alone({}, requests);
  {
    SCOPED_TRACE("batched");
    expect_same_answers(run({}, requests).answers, alone);
  }
  for (const std::int64_t step_tokens : {1, 3, 16, 100}) {
    SCOPED_TRACE("max_step_tokens " + std::to_string(step_tokens));
    EngineSetup setup;
    setup.limits.max_step_tokens = step_tokens;
    expect_same_answers(run(setup, requests).answers, alone);
  }
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("shuffled");
    test::SmallRandom random(seed);
    for (std::size_t i = requests.size(); i > 1; --i) {
      std::swap(requests[i - 1],
                requests[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
    }
    EngineSetup setup;
    setup.limits.max_sequences = 1 + static_cast<std::int64_t>(seed);
    expect_same_answers(run(setup, requests).answers, alone);
  }
}

TEST_F(EngineTest, GivesTheSameBitsWithPutBacks) {
  const std::vector<Request> requests = mixed_requests();
  const Answers alone = run_alone({}, requests);
  std::int64_t put_backs = 0;
  for (const std::int64_t blocks : {6, 7, 9, 12}) {
    SCOPED_TRACE("blocks " + std::to_string(blocks));
    EngineSetup setup;
    setup.limits.kv_blocks = blocks;
    setup.limits.max_step_tokens = 24;
    const auto result = run(setup, requests);
    put_backs += result.statistics.put_backs;
    expect_same_answers(result.answers, alone);
  }
  EXPECT_GT(put_backs, 5);
}

TEST_F(EngineTest, GivesTheSameBitsWithAndWithoutSharedPrefixes) {
  const std::vector<Request> requests = test::alike_requests();
  EngineSetup apart;
  apart.limits.prefix_sharing = false;
  const Answers alone = run_alone(apart, requests);
  std::int64_t put_backs = 0;
  for (const EngineLimits& limits :
       {EngineLimits{64, 512, 400}, {64, 40, 400}, {4, 24, 400}, {64, 24, 14}, {3, 17, 11}}) {
    SCOPED_TRACE("step tokens " + std::to_string(limits.max_step_tokens) + ", blocks " +
                 std::to_string(limits.kv_blocks));
    EngineSetup setup;
    setup.limits = limits;
    const auto shared = run(setup, requests);
    expect_same_answers(shared.answers, alone);
    EXPECT_GT(shared.statistics.reused_tokens, 48 * 5);
    EXPECT_GT(shared.statistics.cached_blocks, 0);
    put_backs += shared.statistics.put_backs;
    setup.limits.prefix_sharing = false;
    const auto separate = run(setup, requests);
    expect_same_answers(separate.answers, alone);
    EXPECT_EQ(separate.statistics.reused_tokens + separate.statistics.cached_blocks, 0);
    EXPECT_LT(shared.statistics.prompt_tokens, separate.statistics.prompt_tokens);
    EXPECT_EQ(shared.statistics.generated_tokens, separate.statistics.generated_tokens);
  }
  EXPECT_GT(put_backs, 3);
}

TEST_F(EngineTest, GivesTheSameBitsWithAndWithoutGuesses) {
  const std::vector<Request> requests = test::repetitive_requests();
  EngineSetup plain;
  plain.limits.max_drafts = 0;
  const Answers expected = run(plain, requests).answers;
  for (const Request& request : requests) {
    SCOPED_TRACE("request " + std::to_string(request.id));
    const auto alone = run({}, {request});
    expect_same_answers(alone.answers, {{request.id, expected.at(request.id)}});
    EXPECT_GT(alone.statistics.accepted_tokens, 0);
    EXPECT_LE(alone.statistics.accepted_tokens, alone.statistics.drafted_tokens);
  }
  std::int64_t put_backs = 0;
  for (const EngineLimits& limits :
       {EngineLimits{1, 512, 400}, {2, 512, 400}, {4, 16, 400}, {3, 5, 400}, {3, 64, 9}}) {
    for (const std::int64_t max_drafts : {1, 3, 20}) {
      SCOPED_TRACE("sequences " + std::to_string(limits.max_sequences) + ", blocks " +
                   std::to_string(limits.kv_blocks) + ", guesses " + std::to_string(max_drafts));
      EngineSetup setup;
      setup.limits = limits;
      setup.limits.max_drafts = max_drafts;
      const auto result = run(setup, requests);
      expect_same_answers(result.answers, expected);
      EXPECT_GT(result.statistics.accepted_tokens, 10);
      put_backs += result.statistics.put_backs;
    }
  }
  EXPECT_GT(put_backs, 2);
}

TEST_F(EngineTest, GuessesSaveStepsAndCountOnce) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = 60;
  sampling.logit_bias = {{65, 1000.0}};
  const Request request = make_request(0, 10, sampling);
  EngineSetup plain;
  plain.limits.max_drafts = 0;
  const EngineStatistics off = run(plain, {request}).statistics;
  EXPECT_EQ(off.steps, 60);
  EXPECT_EQ(off.drafted_tokens + off.accepted_tokens, 0);
  const EngineStatistics on = run({}, {request}).statistics;
  EXPECT_LT(on.steps, 15);
  EXPECT_EQ(on.steps + on.accepted_tokens, 60);
  EXPECT_EQ(on.accepted_tokens, on.drafted_tokens) << "one token is all that is likely";
  EXPECT_EQ(on.generated_tokens, 60);
  EXPECT_EQ(on.decode_tokens, 59) << "the prompt's row chooses the first";
  EXPECT_EQ(on.prompt_tokens, 10);
}

TEST_F(EngineTest, GivesTheSameBitsForThreadsAndInstructionSets) {
  const std::vector<Request> requests = mixed_requests();
  const Answers expected = run({}, requests).answers;
  EngineSetup threaded;
  threaded.num_threads = 3;
  expect_same_answers(run(threaded, requests).answers, expected);
  for (const ops::Isa isa : {ops::Isa::kGeneric, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    if (!ops::isa_supported(isa)) continue;
    SCOPED_TRACE(std::string(ops::isa_name(isa)));
    EngineSetup setup;
    setup.isa = isa;
    expect_same_answers(run(setup, requests).answers, expected);
  }
}

TEST_F(EngineTest, ChoosesTheSameTokenFromTheBestIdAndFromTheWholeRow) {
  // Greedy with and without log-probabilities take different ways through decoder and sampler; with
  // padded vocabularies the best id is often one that may not be chosen.
  for (const std::int64_t tokenizer_size : {331, 300, 262}) {
    SCOPED_TRACE("tokens " + std::to_string(tokenizer_size));
    EngineSetup setup;
    setup.tokenizer_size = tokenizer_size;
    std::vector<Request> plain;
    std::vector<Request> scored;
    for (std::int64_t id = 0; id < 6; ++id) {
      SamplingParams sampling;
      sampling.temperature = 0;
      sampling.max_tokens = 20;
      sampling.num_choices = 1 + id % 2;
      plain.push_back(make_request(id, 3 + 9 * id, sampling));
      sampling.logprobs = true;
      scored.push_back(make_request(id, 3 + 9 * id, sampling));
    }
    Answers by_argmax = run(setup, plain).answers;
    Answers by_row = run(setup, scored).answers;
    std::int64_t near_end = 0;
    for (const auto& [id, answer] : by_argmax) {
      for (std::size_t i = 0; i < answer.choices.size(); ++i) {
        EXPECT_EQ(answer.choices[i].token_ids, by_row.at(id).choices[i].token_ids);
        for (const std::int32_t token : answer.choices[i].token_ids) {
          EXPECT_LT(token, tokenizer_size);
          near_end += token >= 262 ? 1 : 0;
        }
      }
    }
    if (tokenizer_size == 331) {
      EXPECT_GT(near_end, 0) << "the model was meant to choose ids that the others forbid";
    }
  }
}

TEST_F(EngineTest, KeepsTheAccountsOfAStoppedChoice) {
  const std::vector<Request> requests = mixed_requests();
  const Answers answers = run({}, requests).answers;
  std::int64_t stopped = 0;
  for (const Request& request : requests) {
    SCOPED_TRACE("request " + std::to_string(request.id));
    const Answer& answer = answers.at(request.id);
    ASSERT_EQ(std::ssize(answer.choices), request.sampling.num_choices);
    EXPECT_EQ(answer.prompt_logprobs.size(),
              request.sampling.prompt_logprobs ? request.prompt.size() : 0U);
    for (const Choice& choice : answer.choices) {
      if (request.sampling.logprobs) {
        EXPECT_EQ(choice.logprobs.size(), choice.token_ids.size());
        for (std::size_t i = 0; i < choice.logprobs.size(); ++i) {
          EXPECT_EQ(choice.logprobs[i].id, choice.token_ids[i]);
          EXPECT_EQ(std::ssize(choice.logprobs[i].top), request.sampling.top_logprobs);
        }
      }
      if (choice.finish_reason == FinishReason::kStop) {
        ++stopped;
        EXPECT_GE(std::ssize(choice.token_ids), request.sampling.min_tokens);
      } else {
        EXPECT_EQ(std::ssize(choice.token_ids), request.sampling.max_tokens);
      }
    }
  }
  EXPECT_GT(stopped, 1);
}

TEST_F(EngineTest, ChoicesOfOneRequestDiffer) {
  SamplingParams sampling;
  sampling.num_choices = 4;
  const Answers answers = run({}, {make_request(0, 10, sampling)}).answers;
  const std::vector<Choice>& choices = answers.at(0).choices;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    EXPECT_NE(choices[i].token_ids, choices[0].token_ids);
  }
}

TEST_F(EngineTest, TheStreamBelongsToTheSeedNotToTheRequest) {
  SamplingParams sampling;
  sampling.seed = 99;
  Request first = make_request(1, 10, sampling);
  Request second = first;
  second.id = 2;
  Request third = first;
  third.id = 3;
  third.sampling.seed = 100;
  const Answers answers = run({}, {first, second, third}).answers;
  EXPECT_EQ(answers.at(1).choices[0].token_ids, answers.at(2).choices[0].token_ids);
  EXPECT_NE(answers.at(1).choices[0].token_ids, answers.at(3).choices[0].token_ids);
}

TEST_F(EngineTest, PromptScoresAreTheLogprobsOfGeneratedTokens) {
  // What was generated greedily with log-probabilities, given as a prompt and scored.
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.logprobs = true;
  sampling.top_logprobs = 2;
  sampling.max_tokens = 20;
  const Request generating = make_request(0, 8, sampling);
  const Answers generated = run({}, {generating}).answers;
  const Choice& choice = generated.at(0).choices[0];
  SamplingParams scoring;
  scoring.max_tokens = 0;
  scoring.prompt_logprobs = true;
  scoring.top_prompt_logprobs = 2;
  Request request = generating;
  request.sampling = scoring;
  request.prompt.insert(request.prompt.end(), choice.token_ids.begin(), choice.token_ids.end());
  const Answers scored = run({}, {request}).answers;
  const auto& scores = scored.at(0).prompt_logprobs;
  ASSERT_EQ(scores.size(), 28U);
  EXPECT_EQ(scores[0].id, request.prompt[0]);
  test::expect_same_logprobs({scores.begin() + 8, scores.end()}, choice.logprobs);
  EXPECT_TRUE(scored.at(0).choices.at(0).token_ids.empty());
}

TEST_F(EngineTest, ScoresAPromptInAsFewStepsAsItIsReadIn) {
  SamplingParams sampling;
  sampling.max_tokens = 0;
  sampling.prompt_logprobs = true;
  EngineSetup setup;
  setup.limits.max_step_tokens = 160;
  const auto result = run(setup, {make_request(0, 200, sampling)});
  EXPECT_EQ(result.statistics.steps, 2);
  EXPECT_EQ(result.answers.at(0).prompt_logprobs.size(), 200U);
  setup.limits.max_step_tokens = 7;
  const auto in_chunks = run(setup, {make_request(0, 200, sampling)});
  test::expect_same_logprobs(in_chunks.answers.at(0).prompt_logprobs,
                             result.answers.at(0).prompt_logprobs);
}

TEST_F(EngineTest, AnswersPromptOnlyRequestsWithoutAStep) {
  SamplingParams sampling;
  sampling.max_tokens = 0;
  sampling.num_choices = 2;
  Request scored = make_request(1, 1, sampling);
  scored.sampling.prompt_logprobs = true;
  const auto result = run({}, {make_request(0, 5, sampling), scored});
  EXPECT_EQ(result.statistics.steps, 0);
  ASSERT_EQ(result.answers.at(0).choices.size(), 2U);
  EXPECT_EQ(result.answers.at(0).choices[1].finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.answers.at(1).prompt_logprobs.size(), 1U);
}

TEST_F(EngineTest, TextBeginsBehindAPromptOfControlTokensOnly) {
  EngineSetup setup;
  setup.change_tokenizer = [](text::TokenizerSpec& spec) {
    spec.kind = text::TokenizerKind::kSentencePiece;
    for (std::int32_t byte = 0; byte < 256; ++byte) spec.byte_ids.push_back(byte);
    spec.space_prefix = text::SpacePrefix::kEverySegment;
  };
  SamplingParams sampling;
  sampling.max_tokens = 2;
  sampling.logit_bias = {{' ', 1000.0}};
  Request begins = make_request(1, 0, sampling);
  begins.prompt = {test::kEotId, test::kEosId};
  Request continues = begins;
  continues.id = 2;
  continues.prompt.push_back('a');
  const Answers answers = run(setup, {begins, continues}).answers;
  EXPECT_EQ(answers.at(1).choices.at(0).text, " ");
  EXPECT_EQ(answers.at(2).choices.at(0).text, "  ");
}

TEST_F(EngineTest, CountsItsWork) {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = 5;
  const auto result = run({}, {make_request(0, 40, sampling), make_request(1, 7, sampling)});
  EXPECT_EQ(result.statistics.prompt_tokens, 47);
  EXPECT_EQ(result.statistics.generated_tokens, 10);
  EXPECT_EQ(result.statistics.steps, 5) << "both prompts in one step, then four next tokens";
  EXPECT_GT(result.statistics.prefill_seconds, 0);
  EXPECT_GT(result.statistics.decode_seconds, 0);
}

/// Turns one embedding row into NaN.
class PoisonedSource final : public model::WeightSource {
 public:
  explicit PoisonedSource(model::WeightSource& inner, std::int64_t token)
      : inner_(inner), token_(token) {}
  DType dtype(const model::TensorSpec& spec) const override { return inner_.dtype(spec); }
  void read_rows(const model::TensorSpec& spec, Range rows, void* destination) override {
    inner_.read_rows(spec, rows, destination);
    if (spec.split != model::Split::kVocabulary || !rows.contains(token_)) return;
    if (spec.name.find("emb") == std::string::npos) return;
    const std::int64_t first = (token_ - rows.begin) * spec.columns;
    std::fill_n(static_cast<float*>(destination) + first, spec.columns,
                std::numeric_limits<float>::quiet_NaN());
  }

 private:
  model::WeightSource& inner_;
  std::int64_t token_;
};

TEST_F(EngineTest, ARequestWithNanLogitsFailsAlone) {
  // An untied head, so that the poisoned embedding does not reach everybody's logits.
  model::LlamaConfig config = test::uneven_config();
  config.tied_embeddings = false;
  test::RandomWeightSource untied(config, 42);
  PoisonedSource poisoned(untied, 330);
  EngineSetup setup;
  setup.change_model = [](model::LlamaConfig& changed) { changed.tied_embeddings = false; };
  std::vector<Request> requests;
  for (std::int64_t id = 0; id < 9; ++id) {
    SamplingParams sampling;
    sampling.temperature = id % 3 == 0 ? 0 : 1;
    sampling.seed = static_cast<std::uint64_t>(id);
    sampling.num_choices = 1 + id % 2;
    sampling.prompt_logprobs = id % 4 == 0;
    sampling.logit_bias = {{330, -1000.0}};
    requests.push_back(make_request(id, 20, sampling));
    std::replace(requests.back().prompt.begin(), requests.back().prompt.end(), 330, 1);
    if (id == 3 || id == 4 || id == 6) requests.back().prompt[10] = 330;
  }
  requests[3].sampling.logit_bias.clear();  // by way of the best id
  const Answers expected = test::run_alone(communicator_, untied, setup, requests);
  setup.limits.kv_blocks = 7;  // blocks that held NaN are used again
  const auto result = test::run_engine(communicator_, poisoned, setup, requests);
  for (const Request& request : requests) {
    SCOPED_TRACE("request " + std::to_string(request.id));
    const Answer& answer = result.answers.at(request.id);
    if (request.prompt[10] == 330) {
      ASSERT_TRUE(answer.error);
      EXPECT_NE(answer.error->find("NaN"), std::string::npos) << *answer.error;
      EXPECT_TRUE(answer.choices.empty());
    } else {
      test::expect_same_answer(answer, expected.at(request.id));
    }
  }
}

TEST_F(EngineTest, AnswersAnErrorWhenEveryTokenIsForbidden) {
  SamplingParams sampling;
  sampling.min_tokens = 2;
  for (std::int32_t id = 0; id < 331; ++id) sampling.stop_ids.push_back(id);
  const Answers answers =
      run({}, {make_request(0, 5, sampling), make_request(1, 5, SamplingParams{})}).answers;
  ASSERT_TRUE(answers.at(0).error);
  EXPECT_NE(answers.at(0).error->find("min_tokens"), std::string::npos);
  EXPECT_FALSE(answers.at(1).error);
}

TEST(EngineRefusal, NamesWhatCanNeverRun) {
  const model::LlamaConfig config = test::uneven_config();
  const EngineLimits limits{4, 64, 10};  // 160 positions
  const auto refusal = [&](std::int64_t prompt_size, auto change) {
    Request request = make_request(0, prompt_size, {});
    change(request);
    return Engine::refusal(request, config, limits);
  };
  const auto nothing = [](Request&) {};
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks '" << part << "'";
  };
  EXPECT_EQ(refusal(145, nothing), "") << "160 positions: the last token is not fed back";
  expect(refusal(146, nothing), "prompt (146 tokens) and max_tokens (16) exceed the KV cache");
  expect(refusal(4090, nothing), "context length (4096 tokens)");
  EXPECT_EQ(refusal(4096, [](Request& r) { r.sampling.max_tokens = 0; }), "")
      << "nothing to compute";
  expect(refusal(4000,
                 [](Request& r) {
                   r.sampling.max_tokens = 0;
                   r.sampling.prompt_logprobs = true;
                 }),
         "KV cache");
  expect(refusal(5, [](Request& r) { r.sampling.max_tokens = std::int64_t{1} << 62; }),
         "context length");
  EXPECT_EQ(refusal(100, [](Request& r) { r.sampling.num_choices = 50; }), "")
      << "choices can run one after the other";
  expect(refusal(0, nothing), "no tokens");
  expect(refusal(5, [](Request& r) { r.prompt[3] = 331; }), "token 3 of the prompt is 331");
  expect(refusal(5, [](Request& r) { r.prompt[0] = -1; }), "token 0 of the prompt is -1");
  expect(refusal(5, [](Request& r) { r.sampling.num_choices = 0; }), "n must be");
  expect(refusal(5, [](Request& r) { r.sampling.num_choices = 1'000'000'000; }), "n must be");
  expect(refusal(5, [](Request& r) { r.sampling.max_tokens = -1; }), "max_tokens");
  expect(refusal(5, [](Request& r) { r.sampling.min_tokens = 17; }), "min_tokens");
  expect(refusal(5, [](Request& r) { r.sampling.temperature = std::nan(""); }), "temperature");
  expect(refusal(5, [](Request& r) { r.sampling.top_k = -1; }), "top_k");
  expect(refusal(5, [](Request& r) { r.sampling.top_p = 0; }), "top_p");
  expect(refusal(5, [](Request& r) { r.sampling.min_p = 1.5; }), "min_p");
  expect(refusal(5, [](Request& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty");
  expect(refusal(5, [](Request& r) { r.sampling.presence_penalty = std::nan(""); }), "penalty");
  expect(refusal(5, [](Request& r) { r.sampling.logit_bias[331] = 1; }), "logit_bias");
  expect(refusal(5, [](Request& r) { r.sampling.top_logprobs = -1; }), "log-probabilities");
  expect(refusal(5, [](Request& r) { r.sampling.stop_strings = {""}; }), "stop string");
}

}  // namespace
}  // namespace caravan::engine
