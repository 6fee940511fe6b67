// Converted checkpoints against stored reference outputs, from file to greedy text, at the
// launcher's number of ranks. Tolerances are those of tests/data/expected/README.md: 1e-3 on logits
// and log-probabilities in float32.

#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "caravan/checkpoint/convert.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/error.h"
#include "caravan/core/thread_team.h"
#include "caravan/engine/engine.h"
#include "caravan/parallel/mpi_communicator.h"
#include "expected_outputs.h"

namespace caravan {
namespace {

constexpr float kTolerance = 1e-3F;
constexpr std::int64_t kStepTokens = 48;  // shorter than the longest prompts: they run in chunks

std::filesystem::path downloaded(const std::string& name) {
  const char* folder = std::getenv("CARAVAN_MODELS_DIR");
  return std::filesystem::path(folder != nullptr ? folder : CARAVAN_MODELS_DIR) / name;
}

/// A folder of links to the source's files and to the tokenizer that it lacks.
void complete_source(const test::ExpectedOutputs& expected, const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  for (const auto& entry : std::filesystem::directory_iterator(expected.source)) {
    std::filesystem::create_symlink(entry.path(), folder / entry.path().filename());
  }
  std::filesystem::create_symlink(std::filesystem::absolute(downloaded(expected.tokenizer)),
                                  folder / "tokenizer.model");
}

/// One checkpoint, converted by rank 0 and loaded by all ranks.
class LoadedModel {
 public:
  explicit LoadedModel(const test::ExpectedOutputs& expected)
      : team_(1), context_(team_, ops::detect_isa()) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    communicator_ = parallel::make_world_communicator(size);
    std::vector<std::byte> index;
    std::string fault;
    if (leader()) {
      path_ = std::filesystem::path(CARAVAN_BINARY_DIR) /
              (expected.label + "-" + std::to_string(getpid()) + ".h5");
      try {
        checkpoint::ConvertOptions options;
        options.source = expected.source;
        if (!expected.tokenizer.empty()) {
          source_ = path_;
          source_.replace_extension(".source");
          complete_source(expected, source_);
          options.source = source_.string();
        }
        options.target = path_.string();
        checkpoint::convert(options);
        index = checkpoint::ModelFile::open(path_.string()).serialize();
      } catch (const Error& error) {
        fault = error.what();
      }
    }
    parallel::agree_or_throw(*communicator_, fault.empty() ? 0 : 70, fault);
    communicator_->broadcast(index);
    file_ = std::make_unique<checkpoint::ModelFile>(checkpoint::ModelFile::deserialize(index));
    decoder_ = std::make_unique<model::Decoder>(file_->description().config, *file_, context_,
                                                *communicator_,
                                                model::DecoderLimits{kStepTokens, kBlocks});
    tokenizer_ = std::make_unique<text::Tokenizer>(file_->description().tokenizer);
  }
  ~LoadedModel() {
    if (!leader()) return;
    std::filesystem::remove(path_);
    if (!source_.empty()) std::filesystem::remove_all(source_);
  }
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  bool leader() const { return communicator_->rank() == 0; }
  model::Decoder& decoder() { return *decoder_; }
  const checkpoint::ModelFile& file() const { return *file_; }

  /// Runs requests to the end together; answers by id on the leader, nothing elsewhere.
  std::map<std::int64_t, engine::Answer> run(const std::vector<engine::Request>& requests,
                                             std::int64_t blocks = kBlocks) {
    std::map<std::int64_t, engine::Answer> answers;
    if (!leader()) {
      engine::Engine::follow(*decoder_, *communicator_);
      return answers;
    }
    engine::Engine engine(*decoder_, *communicator_, context_, *tokenizer_,
                          {8, kStepTokens, blocks});
    for (const engine::Request& request : requests) engine.submit(request);
    while (!engine.idle()) {
      for (engine::Answer& answer : engine.step()) answers[answer.id] = std::move(answer);
    }
    engine.stop();
    return answers;
  }

  static constexpr std::int64_t kBlocks = 400;

 private:
  ThreadTeam team_;
  ops::Context context_;
  std::unique_ptr<parallel::Communicator> communicator_;
  std::filesystem::path path_;
  std::filesystem::path source_;  // made for this test
  std::unique_ptr<checkpoint::ModelFile> file_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

engine::Request greedy_request(std::int64_t id, const test::ExpectedPrompt& prompt) {
  engine::Request request;
  request.id = id;
  request.prompt = prompt.ids;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = std::ssize(prompt.greedy_ids);
  request.sampling.logprobs = true;
  request.sampling.prompt_logprobs = true;
  request.sampling.top_prompt_logprobs = 1;
  return request;
}

void expect_greedy(const engine::Answer& answer, const test::ExpectedPrompt& prompt,
                   const std::string& label) {
  ASSERT_FALSE(answer.error) << label << ": " << *answer.error;
  ASSERT_EQ(answer.choices.size(), 1U) << label;
  const engine::Choice& choice = answer.choices[0];
  const std::int64_t comparable = prompt.comparable_tokens();
  ASSERT_GE(std::ssize(choice.token_ids), comparable) << label;
  for (std::int64_t i = 0; i < comparable; ++i) {
    const auto at = static_cast<std::size_t>(i);
    ASSERT_EQ(choice.token_ids[at], prompt.greedy_ids[at]) << label << ", step " << i;
    ASSERT_NEAR(choice.logprobs[at].logprob, prompt.greedy_logprobs[at], kTolerance)
        << label << ", step " << i;
  }
  ASSERT_EQ(answer.prompt_logprobs.size(), prompt.ids.size()) << label;
  for (std::size_t i = 1; i < prompt.ids.size(); ++i) {
    ASSERT_NEAR(answer.prompt_logprobs[i].logprob, prompt.logprobs[i], kTolerance)
        << label << ", prompt position " << i;
  }
}

void expect_same_bits(const engine::Answer& a, const engine::Answer& b, const std::string& label) {
  ASSERT_EQ(a.choices.size(), b.choices.size()) << label;
  for (std::size_t c = 0; c < a.choices.size(); ++c) {
    EXPECT_EQ(a.choices[c].token_ids, b.choices[c].token_ids) << label;
    ASSERT_EQ(a.choices[c].logprobs.size(), b.choices[c].logprobs.size()) << label;
    for (std::size_t i = 0; i < a.choices[c].logprobs.size(); ++i) {
      EXPECT_EQ(a.choices[c].logprobs[i].logprob, b.choices[c].logprobs[i].logprob) << label;
    }
  }
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size()) << label;
  for (std::size_t i = 1; i < a.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].logprob, b.prompt_logprobs[i].logprob) << label;
  }
}

class ReferenceOutputs : public testing::TestWithParam<test::ExpectedOutputs> {
 protected:
  void SetUp() override {
    const std::string& tokenizer = GetParam().tokenizer;
    if (!tokenizer.empty() && !std::filesystem::exists(downloaded(tokenizer))) {
      GTEST_SKIP() << tokenizer << " is not in CARAVAN_MODELS_DIR";
    }
  }
};
/// For the checkpoints with stored hidden states.
class ReferenceHiddenStates : public ReferenceOutputs {};

TEST_P(ReferenceOutputs, LogitsAreThoseOfTheReference) {
  const test::ExpectedOutputs& expected = GetParam();
  LoadedModel model(expected);
  for (const test::ExpectedPrompt& prompt : expected.prompts) {
    const std::int64_t length = std::ssize(prompt.ids);
    for (std::int64_t begin = 0; begin < length; begin += kStepTokens) {
      const std::int64_t end = std::min(begin + kStepTokens, length);
      model::StepPlan plan;
      for (std::int64_t i = begin; i < end; ++i) {
        plan.tokens.push_back(prompt.ids[static_cast<std::size_t>(i)]);
        plan.positions.push_back(static_cast<std::int32_t>(i));
        plan.logit_rows.push_back(static_cast<std::int32_t>(i - begin));
      }
      for (std::int32_t b = 0; b < ceil_div(end, ops::KvPool::kBlockTokens); ++b) {
        plan.blocks.push_back(b);
      }
      plan.segments = {{0, static_cast<std::int32_t>(end - begin), static_cast<std::int32_t>(begin),
                        0, static_cast<std::int32_t>(plan.blocks.size())}};
      model.decoder().forward(plan);
      model.decoder().logits([&](std::int64_t index, std::span<const float> row) {
        const std::int64_t position = begin + index;
        const auto best = std::max_element(row.begin(), row.end()) - row.begin();
        const auto wanted = prompt.argmax[static_cast<std::size_t>(position)];
        EXPECT_LT(row[static_cast<std::size_t>(best)] - row[static_cast<std::size_t>(wanted)],
                  kTolerance)
            << prompt.name << ", position " << position;
        if (position != length - 1) return;
        const std::vector<std::int32_t>& top = prompt.last_top_ids;
        ASSERT_EQ(top.empty() ? row.size() : top.size(), prompt.last_logits.size());
        for (std::size_t i = 0; i < prompt.last_logits.size(); ++i) {
          const std::size_t v = top.empty() ? i : static_cast<std::size_t>(top[i]);
          ASSERT_NEAR(row[v], prompt.last_logits[i], kTolerance) << prompt.name << ", id " << v;
        }
      });
    }
  }
}

TEST_P(ReferenceHiddenStates, AreThoseOfTheReference) {
  const test::ExpectedOutputs& expected = GetParam();
  LoadedModel model(expected);
  const auto& ids = expected.prompts[static_cast<std::size_t>(expected.trace_prompt)].ids;
  const std::int64_t rows = expected.trace_shape[1];
  const std::int64_t width = expected.trace_shape[2];
  ASSERT_LE(rows, kStepTokens);
  model::StepPlan plan;
  for (std::int32_t i = 0; i < rows; ++i) {
    plan.tokens.push_back(ids[static_cast<std::size_t>(i)]);
    plan.positions.push_back(i);
  }
  plan.blocks = {0, 1, 2};
  plan.segments = {{0, static_cast<std::int32_t>(rows), 0, 0, 3}};
  std::int64_t probed = 0;
  model.decoder().set_probe([&](std::int64_t layer, const at::Tensor& x) {
    const auto* values = x.data_ptr<float>();
    ++probed;
    for (std::int64_t i = 0; i < rows * width; ++i) {
      ASSERT_NEAR(values[i],
                  expected.trace_hidden[static_cast<std::size_t>((layer + 1) * rows * width + i)],
                  kTolerance)
          << "after layer " << layer << ", element " << i;
    }
  });
  model.decoder().forward(plan);
  EXPECT_EQ(probed, expected.trace_shape[0]);
}

TEST_P(ReferenceOutputs, GreedyTextIsTheSameAloneAndInBatches) {
  const test::ExpectedOutputs& expected = GetParam();
  LoadedModel model(expected);
  std::vector<engine::Answer> alone;
  for (std::size_t i = 0; i < expected.prompts.size(); ++i) {
    auto answers = model.run({greedy_request(7, expected.prompts[i])});
    if (!model.leader()) continue;
    ASSERT_EQ(answers.size(), 1U);
    expect_greedy(answers.at(7), expected.prompts[i], "alone, " + expected.prompts[i].name);
    alone.push_back(answers.at(7));
  }
  std::vector<std::vector<std::int64_t>> batches = expected.batches;
  batches.emplace_back();
  for (std::int64_t i = std::ssize(expected.prompts); i-- > 0;) batches.back().push_back(i);
  for (const auto& batch : batches) {
    std::vector<engine::Request> requests;
    std::int64_t longest = 0;
    for (const std::int64_t index : batch) {
      requests.push_back(greedy_request(index, expected.prompts[static_cast<std::size_t>(index)]));
      longest = std::max(longest, std::ssize(requests.back().prompt) + 48);
    }
    // A pool that holds the longest sequence and little more: the others take turns and are put
    // back.
    const std::int64_t few_blocks = ceil_div(longest, ops::KvPool::kBlockTokens) + 2;
    for (const std::int64_t blocks : {LoadedModel::kBlocks, few_blocks}) {
      const auto answers = model.run(requests, blocks);
      if (!model.leader()) continue;
      ASSERT_EQ(answers.size(), batch.size());
      for (const std::int64_t index : batch) {
        const auto at = static_cast<std::size_t>(index);
        expect_same_bits(
            answers.at(index), alone[at],
            "batch, " + expected.prompts[at].name + ", " + std::to_string(blocks) + " blocks");
      }
    }
  }
}

TEST_P(ReferenceOutputs, StopIdsEndTheTextAtTheSameStep) {
  const test::ExpectedOutputs& expected = GetParam();
  LoadedModel model(expected);
  if (expected.stop_ids.empty()) GTEST_SKIP() << "the reference knows no stop ids";
  EXPECT_EQ(model.file().description().generation.stop_ids, expected.stop_ids);
  std::vector<engine::Request> requests;
  for (std::size_t i = 0; i < expected.prompts.size(); ++i) {
    requests.push_back(greedy_request(static_cast<std::int64_t>(i), expected.prompts[i]));
    requests.back().sampling.stop_ids = expected.stop_ids;
    requests.back().sampling.eos_ids = expected.stop_ids;
  }
  const auto answers = model.run(requests);
  if (!model.leader()) return;
  for (std::size_t i = 0; i < expected.prompts.size(); ++i) {
    const test::ExpectedPrompt& prompt = expected.prompts[i];
    if (prompt.comparable_tokens() < std::ssize(prompt.greedy_ids)) continue;
    const engine::Choice& choice = answers.at(static_cast<std::int64_t>(i)).choices.at(0);
    if (prompt.stop_step < 0) {
      EXPECT_EQ(choice.finish_reason, engine::FinishReason::kLength) << prompt.name;
      EXPECT_EQ(choice.token_ids.size(), prompt.greedy_ids.size()) << prompt.name;
    } else {
      EXPECT_EQ(choice.finish_reason, engine::FinishReason::kStop) << prompt.name;
      EXPECT_EQ(std::ssize(choice.token_ids), prompt.stop_step + 1) << prompt.name;
    }
  }
}

std::vector<test::ExpectedOutputs> with_hidden_states() {
  auto outputs = test::load_expected_outputs(CARAVAN_TEST_DATA);
  std::erase_if(outputs, [](const auto& entry) { return entry.trace_prompt < 0; });
  return outputs;
}

std::string test_name(const testing::TestParamInfo<test::ExpectedOutputs>& suite) {
  std::string name = suite.param.label;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceOutputs,
                         testing::ValuesIn(test::load_expected_outputs(CARAVAN_TEST_DATA)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Checkpoints, ReferenceHiddenStates,
                         testing::ValuesIn(with_hidden_states()), test_name);

}  // namespace
}  // namespace caravan
