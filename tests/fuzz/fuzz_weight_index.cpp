// model.safetensors.index.json of a Hugging Face folder with two small shards.

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "memory_file.h"

namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 4,
  "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "rope_theta": 1e4})";

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
    path_ = pattern;
    write("config.json", kConfig);
    write("a.safetensors", shard("model.norm.weight"));
    write("b.safetensors", shard("lm_head.weight"));
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream out(path_ + "/" + name, std::ios::binary);
    out << content;
    out.close();
    if (!out) throw std::runtime_error("cannot write to " + path_);
  }

 private:
  static std::string shard(const std::string& tensor) {
    const std::string header =
        R"({")" + tensor + R"(": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
    return static_cast<char>(header.size()) + std::string(7, '\0') + header + std::string(4, '\0');
  }
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const Folder folder;
  folder.write("model.safetensors.index.json",
               std::string(reinterpret_cast<const char*>(data), size));
  try {
    checkpoint::open_source(folder.path(), {});
    fuzz::require(false, "a model of two tensors was accepted");
  } catch (const InputError&) {  // the index is refused, or the missing tensors
  }
  return 0;
}
