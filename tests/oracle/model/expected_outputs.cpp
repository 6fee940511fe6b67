#include "expected_outputs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "caravan/core/error.h"
#include "support/base64.h"

namespace caravan::test {
namespace {

using Json = nlohmann::json;

std::vector<float> floats_with_null(const Json& json) {
  std::vector<float> values;
  for (const Json& value : json) {
    values.push_back(value.is_null() ? std::numeric_limits<float>::quiet_NaN()
                                     : value.get<float>());
  }
  return values;
}

ExpectedPrompt read_prompt(const Json& json) {
  ExpectedPrompt prompt;
  prompt.name = json.at("name");
  prompt.ids = json.at("ids").get<std::vector<std::int32_t>>();
  prompt.logprobs = floats_with_null(json.at("prompt_logprobs"));
  prompt.argmax = json.at("prompt_argmax").get<std::vector<std::int32_t>>();
  if (json.contains("last_top_ids")) {
    prompt.last_top_ids = json.at("last_top_ids").get<std::vector<std::int32_t>>();
    prompt.last_logits = floats_with_null(json.at("last_top_logits"));
  } else {
    prompt.last_logits = base64_floats(json.at("last_logits"));
  }
  prompt.greedy_ids = json.at("greedy_ids").get<std::vector<std::int32_t>>();
  prompt.greedy_gaps = floats_with_null(json.at("greedy_gaps"));
  prompt.greedy_logprobs = floats_with_null(json.at("greedy_logprobs"));
  prompt.stop_step = json.at("stop_step");
  return prompt;
}

/// The GGUF file of a quantization, or the folder itself. torchtune's folder has the float32
/// weights in an epoch and their bf16 form outside.
std::string source_of(const std::string& checkpoints, const Json& json) {
  const std::string folder = checkpoints + "/" + json.at("checkpoint").get<std::string>();
  const std::string variant = json.at("variant");
  if (folder.ends_with("-tune"))
    return folder + (variant == "bf16" ? "/model.safetensors" : "/epoch_0");
  if (variant.empty()) return folder;
  return folder + "/" + json.at("checkpoint").get<std::string>() + "-" + variant + ".gguf";
}

}  // namespace

std::int64_t ExpectedPrompt::comparable_tokens() const {
  const auto close =
      std::find_if(greedy_gaps.begin(), greedy_gaps.end(), [](float gap) { return gap < 1e-3F; });
  return close - greedy_gaps.begin();
}

std::vector<ExpectedOutputs> load_expected_outputs(const std::string& data_folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(data_folder + "/expected")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ExpectedOutputs> all;
  for (const auto& path : files) {
    std::ifstream stream(path);
    const Json json = Json::parse(stream);
    if (!json.contains("prompts")) continue;  // tensor hashes, for the checkpoint tests
    ExpectedOutputs outputs;
    outputs.label = path.stem().string();
    outputs.source = source_of(data_folder + "/checkpoints", json);
    if (outputs.label == "tiny-fullvocab") outputs.tokenizer = "llama3/tokenizer.model";
    outputs.stop_ids = json.at("stop_ids").get<std::vector<std::int32_t>>();
    outputs.batches = json.at("batches").get<std::vector<std::vector<std::int64_t>>>();
    for (const Json& prompt : json.at("prompts")) outputs.prompts.push_back(read_prompt(prompt));
    if (json.contains("trace")) {
      const Json& trace = json.at("trace");
      outputs.trace_prompt = trace.at("prompt");
      outputs.trace_shape = trace.at("shape").get<std::vector<std::int64_t>>();
      outputs.trace_hidden = base64_floats(trace.at("hidden"));
    }
    all.push_back(std::move(outputs));
  }
  CARAVAN_ASSERT(!all.empty(), "no expectations in {}", data_folder);
  return all;
}

}  // namespace caravan::test
