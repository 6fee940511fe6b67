#pragma once
// An engine over a tiny random model, and a mixed list of requests, for tests on one and on several
// ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "byte_tokenizer.h"
#include "caravan/core/thread_team.h"
#include "caravan/engine/engine.h"
#include "caravan/ops/kv_pool.h"
#include "support/tiny_model.h"

namespace caravan::test {

struct EngineSetup {
  engine::EngineLimits limits{64, 512, 400};
  int num_threads = 1;
  ops::Isa isa = ops::detect_isa();
  std::int64_t tokenizer_size = 331;  // fewer than V: the last ids are padding
  std::function<void(model::LlamaConfig& config)> change_model;
  std::function<void(text::TokenizerSpec& spec)> change_tokenizer;
};

using Answers = std::map<std::int64_t, engine::Answer>;

struct RunResult {
  Answers answers;
  engine::EngineStatistics statistics;
};

/// Runs all requests on the group: rank 0 leads and gets the answers, the others follow.
inline RunResult run_engine(parallel::Communicator& communicator, model::WeightSource& source,
                            const EngineSetup& setup,
                            const std::vector<engine::Request>& requests) {
  model::LlamaConfig config = uneven_config();
  if (setup.change_model) setup.change_model(config);
  ThreadTeam team(setup.num_threads);
  const ops::Context context(team, setup.isa);
  text::TokenizerSpec spec = byte_tokenizer_spec(setup.tokenizer_size);
  if (setup.change_tokenizer) setup.change_tokenizer(spec);
  const text::Tokenizer tokenizer(spec);
  model::Decoder decoder(config, source, context, communicator,
                         {setup.limits.max_step_tokens, setup.limits.kv_blocks, setup.num_threads,
                          setup.limits.image_blocks});
  RunResult result;
  if (communicator.rank() != 0) {
    engine::Engine::follow(decoder, communicator);
    return result;
  }
  engine::Engine leader(decoder, communicator, context, tokenizer, setup.limits);
  for (const engine::Request& request : requests) {
    EXPECT_EQ(engine::Engine::refusal(request, config, setup.limits), "");
    leader.submit(request);
  }
  while (!leader.idle()) {
    for (engine::Answer& answer : leader.step()) {
      const std::int64_t id = answer.id;
      EXPECT_TRUE(result.answers.emplace(id, std::move(answer)).second) << "answered twice: " << id;
    }
  }
  leader.stop();
  result.statistics = leader.statistics();
  EXPECT_EQ(result.statistics.running + result.statistics.waiting + result.statistics.used_blocks +
                result.statistics.used_image_blocks,
            0)
      << "nothing is left behind";
  return result;
}

inline bool same_bits(const engine::TokenLogprob& a, const engine::TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob && a.top == b.top;
}

inline void expect_same_logprobs(const std::vector<engine::TokenLogprob>& found,
                                 const std::vector<engine::TokenLogprob>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(same_bits(found[i], expected[i]))
        << "entry " << i << ": " << found[i].id << " " << found[i].logprob << " instead of "
        << expected[i].id << " " << expected[i].logprob;
  }
}

/// To the last bit.
inline void expect_same_answer(const engine::Answer& found, const engine::Answer& expected) {
  EXPECT_EQ(found.error, expected.error);
  ASSERT_EQ(found.choices.size(), expected.choices.size());
  for (std::size_t i = 0; i < found.choices.size(); ++i) {
    SCOPED_TRACE("choice " + std::to_string(i));
    EXPECT_EQ(found.choices[i].token_ids, expected.choices[i].token_ids);
    EXPECT_EQ(found.choices[i].text, expected.choices[i].text);
    EXPECT_EQ(found.choices[i].finish_reason, expected.choices[i].finish_reason);
    EXPECT_EQ(found.choices[i].stop_reason, expected.choices[i].stop_reason);
    expect_same_logprobs(found.choices[i].logprobs, expected.choices[i].logprobs);
  }
  expect_same_logprobs(found.prompt_logprobs, expected.prompt_logprobs);
}

inline void expect_same_answers(const Answers& found, const Answers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [id, answer] : expected) {
    SCOPED_TRACE("request " + std::to_string(id));
    const auto same = found.find(id);
    ASSERT_NE(same, found.end());
    expect_same_answer(same->second, answer);
  }
}

/// Each request in an engine of its own.
inline Answers run_alone(parallel::Communicator& communicator, model::WeightSource& source,
                         const EngineSetup& setup, const std::vector<engine::Request>& requests) {
  Answers answers;
  for (const engine::Request& request : requests) {
    answers.merge(run_engine(communicator, source, setup, {request}).answers);
  }
  return answers;
}

inline engine::Request make_request(std::int64_t id, std::int64_t prompt_size,
                                    const engine::SamplingParams& sampling) {
  SmallRandom random(static_cast<std::uint64_t>(1000 + id));
  engine::Request request;
  request.id = id;
  request.sampling = sampling;
  for (std::int64_t i = 0; i < prompt_size; ++i) {
    request.prompt.push_back(static_cast<std::int32_t>(random.below(331)));
  }
  return request;
}

/// Requests that use every path: greedy and sampled, several choices, scores, penalties, stops.
inline std::vector<engine::Request> mixed_requests() {
  std::vector<engine::Request> requests;
  const auto add = [&](std::int64_t prompt_size, auto change) {
    engine::SamplingParams sampling;
    sampling.temperature = 0;
    sampling.max_tokens = 12;
    change(sampling);
    requests.push_back(make_request(std::ssize(requests), prompt_size, sampling));
  };
  using Params = engine::SamplingParams;
  add(5, [](Params&) {});
  add(1, [](Params& p) { p.max_tokens = 30; });
  add(70, [](Params& p) { p.logprobs = true, p.top_logprobs = 3; });
  add(17, [](Params& p) { p.temperature = 1, p.seed = 7, p.logprobs = true; });
  add(32, [](Params& p) { p.temperature = 0.8, p.top_p = 0.9, p.seed = 1, p.num_choices = 3; });
  add(9, [](Params& p) {
    p.temperature = 1.2, p.top_k = 20, p.min_p = 0.02, p.num_choices = 3, p.logprobs = true,
    p.top_logprobs = 2;
  });
  add(20, [](Params& p) { p.num_choices = 2, p.max_tokens = 3; });
  add(90, [](Params& p) {
    p.prompt_logprobs = true, p.top_prompt_logprobs = 2, p.logprobs = true, p.max_tokens = 1;
  });
  add(40, [](Params& p) { p.prompt_logprobs = true, p.max_tokens = 0; });
  add(3, [](Params& p) { p.max_tokens = 0; });
  add(25, [](Params& p) {
    p.repetition_penalty = 1.3, p.presence_penalty = 0.4, p.frequency_penalty = 0.2,
    p.logit_bias = {{7, 2.5}, {200, -3.0}}, p.max_tokens = 25;
  });
  add(11, [](Params& p) {
    p.temperature = 1.5, p.seed = 3, p.min_tokens = 8, p.max_tokens = 40;
    for (std::int32_t id = 0; id < 331; id += 5) p.stop_ids.push_back(id);
    p.eos_ids = {5};
  });
  add(14, [](Params& p) {
    p.temperature = 1.5, p.seed = 4, p.max_tokens = 60, p.num_choices = 2;
    for (char letter = 'a'; letter <= 'z'; ++letter) p.stop_strings.emplace_back(1, letter);
    p.stop_strings.push_back("S");
  });
  add(6, [](Params& p) {
    p.prompt_logprobs = true, p.temperature = 1, p.num_choices = 3, p.max_tokens = 4;
  });
  return requests;
}

/// The mixed requests with prompts that begin with the same 50 tokens, some of them twice.
inline std::vector<engine::Request> alike_requests() {
  std::vector<engine::Request> requests = mixed_requests();
  const engine::Request beginning = make_request(999, 50, {});
  for (engine::Request& request : requests) {
    request.prompt.insert(request.prompt.begin(), beginning.prompt.begin(), beginning.prompt.end());
  }
  for (std::size_t i = 0; i < 5; ++i) {
    requests.push_back(requests[i]);
    requests.back().id += 100;
  }
  return requests;
}

/// Requests whose answers repeat themselves, so that guesses come true: the prompts do, and all but
/// a few tokens are made unlikely. Greedy and sampled, with everything that has a say in a token.
inline std::vector<engine::Request> repetitive_requests() {
  std::vector<engine::Request> requests;
  const auto add = [&](auto change) {
    engine::SamplingParams sampling;
    sampling.temperature = 0;
    sampling.max_tokens = 40;
    sampling.seed = static_cast<std::uint64_t>(requests.size());
    sampling.logit_bias = {{65, 30.0}, {66, 30.0}, {67, 29.0}};
    change(sampling);
    requests.push_back(make_request(200 + std::ssize(requests), 12, sampling));
    auto& prompt = requests.back().prompt;
    for (std::size_t i = 0; i < 30; ++i) prompt.push_back(65 + static_cast<std::int32_t>(i % 3));
  };
  using Params = engine::SamplingParams;
  add([](Params&) {});
  add([](Params& p) { p.logit_bias.clear(); });
  add([](Params& p) { p.temperature = 1; });
  add([](Params& p) { p.temperature = 0.7, p.top_p = 0.9, p.logprobs = true, p.top_logprobs = 2; });
  add([](Params& p) { p.temperature = 1, p.num_choices = 3, p.max_tokens = 25; });
  add([](Params& p) {
    p.repetition_penalty = 1.2, p.presence_penalty = 0.3, p.frequency_penalty = 0.1;
  });
  add([](Params& p) { p.logit_bias.clear(), p.min_tokens = 20, p.stop_ids = {66, 67}; });
  add([](Params& p) { p.temperature = 1, p.min_tokens = 10, p.stop_strings = {"BCA", "AAB"}; });
  add([](Params& p) { p.temperature = 1, p.stop_strings = {"CB"}, p.include_stop_string = true; });
  add([](Params& p) { p.prompt_logprobs = true, p.logprobs = true, p.num_choices = 2; });
  add([](Params& p) { p.temperature = 1.5, p.top_k = 2, p.min_p = 0.1, p.max_tokens = 70; });
  return requests;
}

}  // namespace caravan::test
