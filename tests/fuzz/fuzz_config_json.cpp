// config.json, generation_config.json and preprocessor_config.json of Hugging Face, params.json of
// Meta and torchtune's builder_args.json: every text goes to all of them.

#include <string>

#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/meta_config.h"
#include "caravan/checkpoint/tune_config.h"
#include "caravan/core/error.h"
#include "memory_file.h"
#include "preprocessor_config.h"
#include "temporary_folder.h"

namespace {

template <typename Parse>
void refuse_or_parse(const Parse& parse) {
  try {
    parse();
  } catch (const caravan::InputError&) {  // the only way to refuse a text
  }
}

void require_sizes(const caravan::model::LlamaConfig& config) {
  caravan::fuzz::require(config.hidden_size > 0 && config.num_layers > 0 && config.num_heads > 0 &&
                             config.num_kv_heads > 0 && config.head_dim > 0,
                         "sizes of a model without size");
  if (!config.vision) return;
  caravan::fuzz::require(config.vision->tile_tokens() > 1 && config.vision->head_dim() > 0 &&
                             config.vision->num_cross_layers() > 0 &&
                             config.vision->cross_layers.back() < config.num_layers,
                         "an image encoder without size");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan;
  const std::string input(reinterpret_cast<const char*>(data), size);
  refuse_or_parse([&] { require_sizes(checkpoint::parse_hf_config(input, "input").config); });
  refuse_or_parse([&] { checkpoint::parse_generation_config(input, "input"); });
  refuse_or_parse([&] {
    checkpoint::MetaParams params = checkpoint::parse_meta_params(input, "input");
    checkpoint::complete_meta_config(params, caravan::text::TokenizerKind::kTiktoken);
    require_sizes(params.config);
  });
  refuse_or_parse([&] { require_sizes(checkpoint::parse_builder_args(input, "input")); });
  if (input.find("image") == std::string::npos) return 0;  // a file is slow
  const fuzz::TemporaryFolder folder;
  folder.write("preprocessor_config.json", input);
  model::VisionConfig vision;
  vision.tile_size = 56;  // as the corpus has it
  refuse_or_parse([&] { checkpoint::check_preprocessor({folder.path()}, vision); });
  return 0;
}
