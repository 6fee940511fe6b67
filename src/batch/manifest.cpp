#include "caravan/batch/manifest.h"

#include <nlohmann/json.hpp>

namespace caravan::batch {
namespace {

using Json = nlohmann::ordered_json;

Json object_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  Json object = Json::object();
  for (const auto& [name, value] : entries) object[name] = value;
  return object;
}

Json counts_of(const Manifest& manifest) {
  return {{"records", manifest.workload.records},
          {"done", manifest.done_records},
          {"kept_from_earlier_run", manifest.kept_records},
          {"error_records", manifest.error_records},
          {"answered_now", manifest.counts.answered},
          {"errors_now", manifest.counts.errors},
          {"blank_lines_skipped", manifest.workload.blank_lines},
          {"finish_reason",
           {{"stop", manifest.counts.finished_stop}, {"length", manifest.counts.finished_length}}},
          {"images",
           {{"in_records", manifest.workload.images},
            {"distinct", manifest.workload.distinct_images},
            {"in_answered_now", manifest.counts.images},
            {"records_not_decoded_now", manifest.counts.image_errors},
            {"waits", manifest.counts.image_waits},
            {"wait_seconds", manifest.counts.image_wait_seconds}}},
          {"prompt_tokens", manifest.counts.prompt_tokens},
          {"completion_tokens", manifest.counts.completion_tokens}};
}

Json engine_of(const Manifest& manifest) {
  return {{"steps", manifest.engine.steps},
          {"prompt_tokens_computed", manifest.engine.prompt_tokens},
          {"prompt_tokens_reused", manifest.engine.reused_tokens},
          {"generated_tokens", manifest.engine.generated_tokens},
          {"decode_tokens", manifest.engine.decode_tokens},
          {"drafted_tokens", manifest.engine.drafted_tokens},
          {"accepted_tokens", manifest.engine.accepted_tokens},
          {"put_backs", manifest.engine.put_backs},
          {"images_encoded", manifest.engine.images_encoded},
          {"images_reused", manifest.engine.images_reused},
          {"image_put_backs", manifest.engine.image_put_backs},
          {"encoder_seconds", manifest.engine.encoder_seconds},
          {"model_seconds", manifest.engine.model_seconds},
          {"prefill_seconds", manifest.engine.prefill_seconds},
          {"decode_seconds", manifest.engine.decode_seconds}};
}

}  // namespace

std::string manifest_json(const Manifest& manifest) {
  const Json json = {{"manifest_version", 1},
                     {"versions", object_of(manifest.versions)},
                     {"model", object_of(manifest.model)},
                     {"inputs", manifest.inputs},
                     {"output", manifest.output},
                     {"fingerprint", manifest.fingerprint},
                     {"configuration", object_of(manifest.configuration)},
                     {"launch",
                      {{"ranks", manifest.ranks},
                       {"threads_per_rank", manifest.threads_per_rank},
                       {"device", manifest.device},
                       {"kernels", manifest.kernels},
                       {"compute", manifest.compute},
                       {"kv_dtype", manifest.kv_dtype}}},
                     {"counts", counts_of(manifest)},
                     {"engine", engine_of(manifest)},
                     {"seconds", manifest.phase_seconds},
                     {"started", manifest.started},
                     {"ended", manifest.ended},
                     {"exit", {{"code", manifest.exit_code}, {"reason", manifest.exit_reason}}}};
  // Paths may be any bytes; the document must be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace caravan::batch
