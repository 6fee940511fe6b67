#pragma once
// Everything that can be set from outside, as plain data. Empty optionals mean "decide by yourself"
// (auto) or "the checkpoint's default".

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/batch/prompt_files.h"
#include "caravan/batch/request_parser.h"
#include "caravan/core/dtype.h"
#include "caravan/core/log.h"
#include "caravan/image/decode.h"
#include "caravan/ops/context.h"
#include "caravan/parallel/mpi_communicator.h"
#include "caravan/text/chat_format.h"

namespace caravan::app {

enum class OnInvalid { kFail, kRecord };
enum class DeviceKind { kAuto, kCpu, kCuda };
enum class TextEndpoint { kAuto, kChat, kCompletion };

struct JobOptions {
  // Input and output
  std::string model;
  std::vector<std::string> inputs;
  batch::InputFormat input_format = batch::InputFormat::kAuto;
  std::string output;
  std::optional<std::string> prompt;
  std::vector<std::string> images;  // of the prompt
  std::string media_root;
  std::string system;
  OnInvalid on_invalid = OnInvalid::kFail;
  bool overwrite = false;
  bool text_per_file = false;
  TextEndpoint endpoint = TextEndpoint::kAuto;
  std::string model_name;
  bool strict_fields = false;
  bool fail_on_error = false;
  std::int64_t max_images = batch::kDefaultMaxImages;  // of a record
  std::int64_t max_image_pixels = 100'000'000;
  image::Alpha image_alpha = image::Alpha::kDrop;
  std::int64_t max_image_bytes = std::int64_t{64} << 20;

  // Defaults of records
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::uint64_t seed = 0;
  std::vector<std::string> stop;
  std::optional<text::ChatFormatKind> chat_format;
  std::string date = "26 Jul 2024";

  // Execution
  std::optional<std::int64_t> tensor_parallel;
  parallel::MpiCommunicator::Exchange exchange = parallel::MpiCommunicator::Exchange::kBest;
  std::optional<std::int64_t> threads;
  DeviceKind device = DeviceKind::kAuto;
  std::optional<ops::Isa> isa;
  ops::Compute compute = ops::Compute::kFloat32;
  DType kv_dtype = DType::kFloat32;
  std::int64_t max_sequences = 64;
  std::int64_t max_step_tokens = 512;
  std::optional<std::int64_t> kv_memory;     // bytes per rank
  std::optional<std::int64_t> image_memory;  // bytes per rank
  bool prefix_sharing = true;
  std::optional<std::int64_t> speculation;  // most guesses; 0: off
  bool no_verify = false;
  std::optional<std::int64_t> ranks;        // plan
  std::optional<std::int64_t> node_memory;  // plan

  // Logging
  double log_interval = 30;
  log::Level log_level = log::Level::kInfo;

  // Other subcommands
  std::optional<DType> dtype;            // convert; plan
  std::optional<std::string> name;       // convert
  std::optional<std::string> tokenizer;  // convert
  bool json = false;                     // inspect, bench
  bool quick = false;                    // bench
  bool tensors = false;                  // inspect
  bool chat = false;                     // tokenize
  bool ids = false;                      // tokenize

  // General
  std::string config;
  bool print_config = false;
};

}  // namespace caravan::app
