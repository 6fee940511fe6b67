#pragma once
// The tokenizers and vectors of tests/data/text, and those of downloaded models.

#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "caravan/text/tokenizer_spec.h"

namespace caravan::test {

std::string read_text_file(const std::filesystem::path& path);
/// A file below tests/data/text.
std::filesystem::path data_file(const std::string& name);
/// The records of a JSON Lines file below tests/data/text.
std::vector<nlohmann::json> read_records(const std::string& name);

/// A downloaded file below CARAVAN_MODELS_DIR, or empty.
std::optional<std::filesystem::path> model_file(const std::string& name);

/// tokenizer.ggml.* of a GGUF file (versions 2 and 3), read independently of the program's reader.
struct GgufText {
  text::GgufTokenizer tokenizer;
  std::string chat_template;
};
GgufText read_gguf_text(const std::filesystem::path& path);

constexpr const char* kLlama2Model = "llama2/tokenizer.model";
constexpr const char* kLlama3Model = "llama3/tokenizer.model";
constexpr const char* kSmolLm2Gguf = "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

}  // namespace caravan::test

/// Skips the running test unless a downloaded file is there; defines `path`.
#define CARAVAN_NEED_MODEL_FILE(path, name)                                   \
  const auto path##_found = ::caravan::test::model_file(name);                \
  if (!path##_found) GTEST_SKIP() << name << " is not in CARAVAN_MODELS_DIR"; \
  const std::filesystem::path& path = *path##_found
