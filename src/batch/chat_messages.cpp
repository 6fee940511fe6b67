#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "request_fields.h"

namespace caravan::batch {
namespace {

// "ipython" is what Llama 3.1 calls a tool.
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "ipython"};

// Text of one element of a content array.
std::string part_text(const Json& part, const std::string& path, const std::string& model_name) {
  if (!part.is_object()) {
    refuse("invalid_type", fmt::format("{} must be an object, found {}", path, json_kind(part)),
           path);
  }
  JsonFields fields(part, path + ".");
  const std::string type = fields.text("type").value_or("");
  if (type == "text") {
    const auto text = fields.text("text");
    if (!text) refuse("missing_field", fmt::format("{}.text is missing", path), path + ".text");
    return *text;
  }
  if (type == "image_url" || type == "image" || type == "input_image") {
    refuse("unsupported_parameter",
           fmt::format("model {} has no vision: {} is an image", model_name, path), path);
  }
  refuse("invalid_value", fmt::format("{}.type must be \"text\", found \"{}\"", path, type),
         path + ".type");
}

// A string, or the texts of an array of parts one after the other.
std::string message_content(const Json& content, const std::string& path,
                            const std::string& model_name) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    refuse(
        "invalid_type",
        fmt::format("{} must be a string or an array of parts, found {}", path, json_kind(content)),
        path);
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    text += part_text(content[i], fmt::format("{}.{}", path, i), model_name);
  }
  return text;
}

text::ChatMessage parse_message(const Json& message, std::size_t index, OrderedBody& ordered,
                                const std::string& model_name) {
  const std::string path = fmt::format("messages.{}", index);
  if (!message.is_object()) {
    refuse("invalid_type", fmt::format("{} must be an object, found {}", path, json_kind(message)),
           path);
  }
  JsonFields fields(message, path + ".");
  const auto role = fields.text("role");
  if (!role) refuse("missing_field", fmt::format("{}.role is missing", path), path + ".role");
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    refuse("invalid_value",
           fmt::format("{}.role must be system, developer, user, assistant or tool, found \"{}\"",
                       path, *role),
           path + ".role");
  }
  const Json* old_call = fields.find("function_call");
  if (old_call != nullptr && !old_call->empty()) {
    refuse("unsupported_parameter",
           fmt::format("{}.function_call is not supported; use tool_calls", path),
           path + ".function_call");
  }
  text::ChatMessage parsed{*role, {}, parse_tool_calls(fields, ordered, index)};
  const Json* content = fields.find("content");
  if (content == nullptr && parsed.tool_calls.empty()) {
    refuse("missing_field", fmt::format("{}.content is missing", path), path + ".content");
  }
  if (content != nullptr) {
    parsed.content = message_content(*content, path + ".content", model_name);
  }
  return parsed;
}

}  // namespace

std::vector<text::ChatMessage> parse_messages(JsonFields& body, OrderedBody& ordered,
                                              const std::string& model_name) {
  const Json* messages = body.find("messages");
  const std::string path = body.path("messages");
  if (messages == nullptr) refuse("missing_field", fmt::format("{} is missing", path), path);
  if (!messages->is_array()) {
    refuse("invalid_type", fmt::format("{} must be an array, found {}", path, json_kind(*messages)),
           path);
  }
  if (messages->empty()) refuse("invalid_value", fmt::format("{} is empty", path), path);
  std::vector<text::ChatMessage> parsed;
  parsed.reserve(messages->size());
  for (std::size_t i = 0; i < messages->size(); ++i) {
    parsed.push_back(parse_message((*messages)[i], i, ordered, model_name));
  }
  return parsed;
}

}  // namespace caravan::batch
