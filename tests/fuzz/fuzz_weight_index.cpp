// model.safetensors.index.json of a Hugging Face folder with two small shards.

#include <string>

#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "memory_file.h"
#include "temporary_folder.h"

namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 4,
  "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "rope_theta": 1e4})";

std::string shard(const std::string& tensor) {
  const std::string header =
      R"({")" + tensor + R"(": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  return static_cast<char>(header.size()) + std::string(7, '\0') + header + std::string(4, '\0');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const fuzz::TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("a.safetensors", shard("model.norm.weight"));
  folder.write("b.safetensors", shard("lm_head.weight"));
  folder.write("model.safetensors.index.json",
               std::string(reinterpret_cast<const char*>(data), size));
  try {
    checkpoint::open_source(folder.path(), {});
    fuzz::require(false, "a model of two tensors was accepted");
  } catch (const InputError&) {  // the index is refused, or the missing tensors
  }
  return 0;
}
