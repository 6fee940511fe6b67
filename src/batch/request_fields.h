#pragma once
// The parts of a request body: messages, tools, prompts, sampling, and fields that this program
// refuses.

#include <string>
#include <string_view>
#include <vector>

#include "caravan/batch/record.h"
#include "caravan/batch/request_parser.h"
#include "json_fields.h"

namespace caravan::batch {

/// `tools` and `tool_calls` of a request's body with their keys in the order of the request, which
/// Json does not keep and a model sees. Read when first asked for.
class OrderedBody {
 public:
  /// @param line  the whole request, known to be valid; outlives this object.
  explicit OrderedBody(std::string_view line) : line_(line) {}
  const OrderedJson& get();

 private:
  std::string_view line_;
  OrderedJson body_;
};

// All of these note what is wrong in the faults of the body and go on.

/// `messages` of a chat request, and their images.
void parse_messages(JsonFields& body, OrderedBody& ordered, const ParserOptions& options,
                    Record& record);

/// JSON texts of `tools`; none with `tool_choice` "none".
std::vector<std::string> parse_tools(JsonFields& body, OrderedBody& ordered);

/// `tool_calls` of the message at `index`.
std::vector<text::ChatToolCall> parse_tool_calls(JsonFields& message, OrderedBody& ordered,
                                                 std::size_t index);

/// vLLM's `chat_template_kwargs`, as far as the built-in layouts have such arguments; any other is
/// a fault.
void parse_template_arguments(JsonFields& body, text::ChatOptions& options);

/// The model's own text for an image in raw prompts.
inline constexpr std::string_view kImageMarker = "<|image|>";

/// vLLM's `multi_modal_data` of a raw prompt: its images, whose places the prompt marks.
/// @pre record.prompts are parsed. @throws Refused unless there is one mark for each image.
void parse_completion_images(JsonFields& body, const ParserOptions& options, Record& record);

/// Takes the marks out of a text: offsets of the images in the rest.
std::vector<std::size_t> take_image_marks(std::string& text);

/// Sampling fields that both endpoints share, over the defaults.
engine::SamplingParams parse_sampling(JsonFields& body, const ParserOptions& options);
/// The sampling of a request that says nothing.
engine::SamplingParams default_sampling(const RequestDefaults& defaults);

/// Notes fields that are known but cannot be honoured (response_format ...) with the code
/// "unsupported_parameter", and accepts those that have no effect here.
void check_unsupported(JsonFields& body, Endpoint endpoint);

}  // namespace caravan::batch
