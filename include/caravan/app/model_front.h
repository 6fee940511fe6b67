#pragma once
// What of a model is needed before any weight is read: its description, tokenizer and chat layout,
// and the defaults of records that follow from them and the options.

#include <memory>
#include <string>
#include <vector>

#include "caravan/app/job_options.h"
#include "caravan/batch/request_parser.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/text/chat_format.h"
#include "caravan/text/tokenizer.h"

namespace caravan::app {

struct ModelFront {
  checkpoint::ModelFile file;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatFormat> chat_format;

  std::string name;                    // --model-name or the checkpoint's
  std::vector<std::int32_t> stop_ids;  // the checkpoint's and the layout's
  batch::Endpoint text_endpoint;       // of prompts that name none
};

/// @throws UsageError without --model; MissingInputError, ConfigError as ModelFile::open.
ModelFront open_model(const JobOptions& options);

/// Options before the checkpoint's defaults before OpenAI's.
batch::ParserOptions parser_options(const JobOptions& options, const ModelFront& model);

/// What a checkpoint says about sampling is known to be numbers, but not that they make sense.
/// @throws ConfigError naming the checkpoint at `path` if records without fields of their own could
/// not be sampled.
void check_defaults(const ModelFront& model, const batch::ParserOptions& options,
                    const std::string& path);

/// "temperature 0.6, top-p 0.9, ..." of records that say nothing, for the log.
std::string describe_defaults(const batch::RequestDefaults& defaults, const ModelFront& model);

}  // namespace caravan::app
