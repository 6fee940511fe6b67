// Which of the models in a folder is meant, and models that are none of Caravan's.

#include <gtest/gtest.h>

#include <filesystem>

#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "generated_pth.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::HfFolder;

/// A folder as torchtune leaves it, with configuration and tokenizer but no weights yet.
struct TrainedFolder : testing::Test {
  void SetUp() override {
    folder.write();
    fs::rename(folder.file("model.safetensors"), folder.beside("base"));
    test::PthBuilder builder;
    test::SafetensorsBuilder tensors;
    for (const auto& tensor : test::torch_tensors(test::small_config())) {
      const std::string name = source_tensor_name(tensor.canonical_name, NameStyle::kTorchtune);
      builder.add(name, tensor.shape, tensor.values);
      tensors.add(name, tensor.shape, tensor.values);
    }
    pickled = builder.file();
    safetensors = tensors.file();
  }
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(folder.file(name)).parent_path());
    folder.write(name, content);
  }
  void put_base_back() const {
    fs::copy_file(folder.beside("base"), folder.file("model.safetensors"));
  }
  /// The file that naming `name` in the folder converts.
  std::string chosen(const std::string& name = "") const {
    const Source source = open_source(folder.file(name), {});
    EXPECT_EQ(source.description.name, "small-model");
    return fs::path(source.files[0].path()).lexically_relative(folder.path()).string();
  }
  void expect_several(const std::string& listed) const {
    test::expect_error<InputError>(
        [&] { open_source(folder.path(), {}); },
        "holds more than one model (" + listed + "); name the one to convert");
  }
  HfFolder folder;
  std::string pickled, safetensors;
};

TEST_F(TrainedFolder, TakesTheNewestOfItsOwnNames) {
  for (const char* extension : {".pt", ".safetensors"}) {
    const std::string& content = extension == std::string(".pt") ? pickled : safetensors;
    write(std::string("torchtune_model_2") + extension, "not the newest");
    write(std::string("torchtune_model_10") + extension, content);
    EXPECT_EQ(chosen(), std::string("torchtune_model_10") + extension);
    folder.remove(std::string("torchtune_model_2") + extension);
    folder.remove(std::string("torchtune_model_10") + extension);
  }
}

TEST_F(TrainedFolder, TakesTheNewestFolder) {
  for (const std::string kind : {"epoch", "step"}) {
    write(kind + "_9/model-00001-of-00001.bin", "not the newest");
    write(kind + "_10/model-00001-of-00001.bin", pickled);
    write(kind + "_1x/model-00001-of-00001.bin", "another name");
    EXPECT_EQ(chosen(), kind + "_10/model-00001-of-00001.bin");
    EXPECT_EQ(chosen(kind + "_10"), kind + "_10/model-00001-of-00001.bin");
    for (const char* number : {"_9", "_10", "_1x"}) fs::remove_all(folder.file(kind + number));
  }
}

TEST_F(TrainedFolder, DoesNotChooseBetweenBaseAndTunedModel) {
  put_base_back();
  EXPECT_EQ(chosen(), "model.safetensors");
  write("epoch_3/model-00001-of-00001.bin", pickled);
  expect_several("model.safetensors, epoch_3/model-00001-of-00001.bin");
  EXPECT_EQ(chosen("model.safetensors"), "model.safetensors");
  EXPECT_EQ(chosen("epoch_3"), "epoch_3/model-00001-of-00001.bin");
  write("step_200/model-00001-of-00001.bin", pickled);
  folder.remove("model.safetensors");
  expect_several("epoch_3/model-00001-of-00001.bin, step_200/model-00001-of-00001.bin");
  fs::remove_all(folder.file("epoch_3"));
  fs::remove_all(folder.file("step_200"));
  put_base_back();
  write("hf_model_0001_0.pt", pickled);
  expect_several("model.safetensors, hf_model_0001_0.pt");
  write("meta_model_0.pt", pickled);
  folder.remove("model.safetensors");
  expect_several("hf_model_0001_0.pt, meta_model_0.pt");
  folder.remove("hf_model_0001_0.pt");
  folder.remove("meta_model_0.pt");
  put_base_back();
  write("ft-model-00001-of-00001.safetensors", safetensors);
  expect_several("model.safetensors, ft-model-00001-of-00001.safetensors");
  folder.remove("ft-model-00001-of-00001.safetensors");
}

TEST_F(TrainedFolder, TakesOtherFormsOfTheSameModelForOne) {
  put_base_back();
  write("pytorch_model.bin", "x");
  write("pytorch_model-00001-of-00002.bin", "x");
  write("original/consolidated.00.pth", "x");
  write("original/params.json", "{}");
  write("optimizer.pt", "x");
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(), "model.safetensors");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("also holds"), std::string::npos);
  write("adapter_model.safetensors", "x");
  write("mine.pt", "x");
  testing::internal::CaptureStderr();
  EXPECT_EQ(chosen(), "model.safetensors");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "also holds adapter_model.safetensors, mine.pt, which is not converted"),
            std::string::npos);
}

TEST_F(TrainedFolder, JoinsThePartsOfANamedFile) {
  std::vector<test::PthBuilder> parts(2);
  std::size_t index = 0;
  for (const auto& tensor : test::torch_tensors(test::small_config())) {
    parts[index++ % 2].add(source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace),
                           tensor.shape, tensor.values);
  }
  // In a folder of another name: configuration and tokenizer are in the one above.
  write("run/hf_model_0001_1.pt", parts[0].file());
  write("run/hf_model_0002_1.pt", parts[1].file());
  write("run/hf_model_0001_0.pt", "another epoch");
  for (const char* name : {"run", "run/hf_model_0001_1.pt", "run/hf_model_0002_1.pt"})
    EXPECT_EQ(open_source(folder.file(name), {}).files.size(), 2U) << name;
}

TEST_F(TrainedFolder, FindsMetasFormBesideNothingElse) {
  fs::create_directory(folder.file("original"));
  for (const char* name : {"consolidated.00.pth", "params.json", "tokenizer.model"}) {
    fs::copy_file(test::kCheckpoints + "/tiny-llama31-meta-bf16/" + name,
                  folder.file("original/") + name);
  }
  EXPECT_EQ(chosen(), "original/consolidated.00.pth");
  EXPECT_EQ(chosen("original"), "original/consolidated.00.pth");
  write("epoch_0/model-00001-of-00001.bin", pickled);
  expect_several("epoch_0/model-00001-of-00001.bin, original/consolidated.00.pth");
}

TEST_F(TrainedFolder, NamesFoldersOfModels) {
  write("checkpoint-500/config.json", "{}");
  write("checkpoint-500/model.safetensors", "x");
  test::expect_error<InputError>([&] { open_source(folder.path(), {}); },
                                 "holds no weights, but folders of models (checkpoint-500)");
}

/// A folder whose configuration or weights are those of another kind of model.
struct ForeignFolder : testing::Test {
  void expect_refusal(const std::string& words) const {
    test::expect_error<InputError>([&] { open_source(folder.path(), {}); }, words);
  }
  /// The first tensor is of this name and type.
  void write_tensor(const std::string& name, const std::string& type, std::size_t bytes) {
    test::SafetensorsBuilder tensors;
    tensors.add_raw(name, type, {1}, std::string(bytes, '\0'));
    folder.write("model.safetensors", tensors.file());
  }
  HfFolder folder;
};

TEST_F(ForeignFolder, IsNamedByItsConfigurationFirst) {
  write_tensor("model.layers.0.mlp.down_proj.weight", "U8", 1);
  const auto with = [&](const char* key, const json& value) {
    json config = folder.config_json;
    config[key] = value;
    folder.write("config.json", config.dump());
  };
  for (const char* method : {"bitsandbytes", "gptq", "awq", "fp8", "compressed-tensors"}) {
    with("quantization_config", {{"quant_method", method}});
    expect_refusal(std::string("the checkpoint is quantized (") + method +
                   "); convert the unquantized model or a GGUF of it");
  }
  with("quantization", {{"group_size", 64}, {"bits", 4}});
  expect_refusal("the checkpoint is quantized (MLX)");
  with("model_type", "gpt_oss");
  expect_refusal("model_type is \"gpt_oss\"");
  folder.write("config.json", folder.config_json.dump());
  folder.write("hf_quant_config.json", "{}");
  expect_refusal("quantized by NVIDIA's ModelOpt");
}

TEST_F(ForeignFolder, IsNamedByItsTensors) {
  folder.write();
  struct Case {
    const char* name;
    const char* type;
    std::size_t bytes;
    const char* method;
  };
  for (const Case& foreign :
       {Case{"l.0.q_proj.qweight", "I32", 4, "GPTQ or AWQ"},
        Case{"l.0.q_proj.weight.absmax", "U8", 1, "bitsandbytes"},
        Case{"l.0.q_proj.weight", "U8", 1, "bitsandbytes"},
        Case{"l.0.q_proj.weight", "F8_E4M3", 1, "FP8"},
        Case{"l.0.q_proj.weight_packed", "I32", 4, "compressed-tensors"},
        Case{"l.0.mlp.experts.down_proj_blocks", "U8", 1, "MXFP4"},
        Case{"l.0.q_proj.weight", "U32", 4, "MLX"},
        Case{"l.0.q_proj.weight_scale", "F32", 4, "FP8 or compressed-tensors"}}) {
    write_tensor(foreign.name, foreign.type, foreign.bytes);
    expect_refusal(std::string("holds weights quantized by ") + foreign.method);
  }
  write_tensor("l.0.q_proj.weight", "I16", 2);
  expect_refusal("has type I16, expected F32, F16, BF16 or F64; if the model is quantized,");
}

}  // namespace
}  // namespace caravan::checkpoint
