// What makes the answers of a run what they are: a journal is continued by the same run only.

#include <fmt/format.h>

#include "caravan/app/option_parser.h"
#include "caravan/app/prepared_run.h"
#include "caravan/batch/fingerprint.h"
#include "caravan/image/decoders.h"

namespace caravan::app {

batch::Fingerprint PreparedRun::fingerprint() const {
  const checkpoint::ModelDescription& description = model_->file.description();
  const batch::RequestDefaults& defaults = parser_->options().defaults;
  batch::Fingerprint parts;
  parts["output format"] = std::to_string(batch::kOutputVersion);
  parts["numerics"] = std::to_string(batch::kNumericsVersion);
  parts["compute"] = std::string(ops::compute_name(options_.compute));
  parts["kv-dtype"] = std::string(dtype_name(options_.kv_dtype));
  parts["input hash"] = workload_->input_hash();
  parts["records"] = std::to_string(workload_->size());
  parts["model hash"] = description.content_hash;
  parts["model name"] = model_->name;
  parts["temperature"] = fmt::format("{}", defaults.temperature);
  parts["top-p"] = fmt::format("{}", defaults.top_p);
  parts["top-k"] = fmt::format("{}", defaults.top_k);
  parts["min-p"] = fmt::format("{}", defaults.min_p);
  parts["repetition penalty"] = fmt::format("{}", defaults.repetition_penalty);
  parts["seed"] = fmt::format("{}", defaults.seed);
  parts["max-tokens"] =
      defaults.max_tokens ? std::to_string(*defaults.max_tokens) : std::string("of the endpoint");
  parts["stop"] = list_text(defaults.stop_strings);
  parts["stop ids"] = fmt::format("{}", fmt::join(defaults.stop_ids, ","));
  parts["chat format"] = std::string(text::chat_format_name(model_->chat_format->kind()));
  parts["date"] = defaults.date;
  parts["endpoint of texts"] =
      model_->text_endpoint == batch::Endpoint::kChat ? "chat" : "completion";
  parts["system"] = options_.system;
  parts["text-per-file"] = options_.text_per_file ? "true" : "false";
  parts["strict-fields"] = options_.strict_fields ? "true" : "false";
  parts["model-name"] = options_.model_name;
  if (!workload_->images_hash().empty()) {
    parts["images hash"] = workload_->images_hash();
    parts["image-alpha"] = options_.image_alpha == image::Alpha::kWhite ? "white" : "drop";
    parts["image decoders"] =
        fmt::format("{}; probe {}", image::decoder_versions(), image::decoder_probe());
  }
  if (images_) parts["max-images"] = std::to_string(options_.max_images);
  return parts;
}

}  // namespace caravan::app
