#pragma once
// The parts of a request body: messages, prompts, sampling, and fields that this program refuses.

#include <string>
#include <vector>

#include "caravan/batch/record.h"
#include "caravan/batch/request_parser.h"
#include "json_fields.h"

namespace caravan::batch {

/// `messages` of a chat request.
/// @throws Refused.
std::vector<text::ChatMessage> parse_messages(JsonFields& body, const std::string& model_name);

/// Sampling fields that both endpoints share, over the defaults.
/// @throws Refused.
engine::SamplingParams parse_sampling(JsonFields& body, const ParserOptions& options);
/// The sampling of a request that says nothing.
engine::SamplingParams default_sampling(const RequestDefaults& defaults);

/// Refuses fields that are known but cannot be honoured (tools, response_format ...), and accepts
/// those that have no effect here.
/// @throws Refused with code "unsupported_parameter".
void check_unsupported(JsonFields& body, Endpoint endpoint);

}  // namespace caravan::batch
