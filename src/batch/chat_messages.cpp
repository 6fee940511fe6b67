#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "request_fields.h"

namespace caravan::batch {
namespace {

// "ipython" is what Llama 3.1 calls a tool.
constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "ipython"};

[[noreturn]] void refuse_image(const std::string& path, const std::string& model_name) {
  refuse("unsupported_parameter",
         fmt::format("model {} has no vision: {} is an image", model_name, path), path);
}

// The address in an image_url part: a text, or an object with `url` and `detail`.
RecordImage image_of(JsonFields& part, const std::string& path) {
  const std::string param = path + ".image_url";
  const Json* value = part.find("image_url");
  if (value == nullptr) refuse("missing_field", fmt::format("{} is missing", param), param);
  if (value->is_string()) return {value->get<std::string>(), param};
  if (!value->is_object()) {
    refuse("invalid_type",
           fmt::format("{} must be a string or an object with url, found {}", param,
                       json_kind(*value)),
           param);
  }
  JsonFields fields(*value, param + ".");
  const auto url = fields.text("url");
  if (!url) refuse("missing_field", fmt::format("{}.url is missing", param), param + ".url");
  const std::string detail = fields.text("detail").value_or("auto");
  if (detail != "auto" && detail != "low" && detail != "high") {
    refuse("invalid_value",
           fmt::format("{}.detail must be auto, low or high, found \"{}\"", param, detail),
           param + ".detail");
  }
  part.add_unknown_of(fields);
  return {*url, param};
}

// Contents of messages: texts, or arrays of texts and images.
class ContentParser {
 public:
  ContentParser(const ParserOptions& options, Record& record)
      : options_(options), record_(record) {}

  // `fields` are the message's.
  void parse(const Json& content, JsonFields& fields, text::ChatMessage& message) {
    const std::string path = fields.path("content");
    if (content.is_string()) {
      message.content = content.get<std::string>();
      return;
    }
    if (!content.is_array()) {
      refuse("invalid_type",
             fmt::format("{} must be a string or an array of parts, found {}", path,
                         json_kind(content)),
             path);
    }
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::string part_path = fmt::format("{}.{}", path, i);
      if (!content[i].is_object()) {
        refuse("invalid_type",
               fmt::format("{} must be an object, found {}", part_path, json_kind(content[i])),
               part_path);
      }
      JsonFields part(content[i], part_path + ".");
      parse_part(part, part_path, message);
      fields.add_unknown_of(part);
    }
  }

 private:
  void parse_part(JsonFields& fields, const std::string& path, text::ChatMessage& message) {
    const std::string type = fields.text("type").value_or("");
    if (type == "text") {
      const auto text = fields.text("text");
      if (!text) refuse("missing_field", fmt::format("{}.text is missing", path), path + ".text");
      message.content += *text;
      return;
    }
    const bool is_image = type == "image_url" || type == "image" || type == "input_image";
    if (is_image && !options_.reads_images) refuse_image(path, options_.model_name);
    if (type != "image_url") {
      refuse("invalid_value",
             fmt::format("{}.type must be \"text\" or \"image_url\", found \"{}\"", path, type),
             path + ".type");
    }
    if (message.role != "user") {
      refuse("invalid_value",
             fmt::format("{} is an image; images belong into messages of the user, the role is "
                         "\"{}\"",
                         path, message.role),
             path);
    }
    if (std::ssize(record_.images) >= options_.max_images) {
      refuse("too_many_images",
             fmt::format("{} is image {} of the record, but a record may have {} (--max-images)",
                         path, record_.images.size() + 1, options_.max_images),
             path);
    }
    record_.images.push_back(image_of(fields, path));
    message.image_offsets.push_back(message.content.size());
  }

  const ParserOptions& options_;
  Record& record_;
};

text::ChatMessage parse_message(JsonFields& fields, std::size_t index, OrderedBody& ordered,
                                ContentParser& contents) {
  const std::string path = fmt::format("messages.{}", index);
  fields.ignore({"name", "tool_call_id"});  // no built-in layout shows them
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
  if (content != nullptr) contents.parse(*content, fields, parsed);
  return parsed;
}

}  // namespace

void parse_messages(JsonFields& body, OrderedBody& ordered, const ParserOptions& options,
                    Record& record) {
  const Json* messages = body.find("messages");
  const std::string path = body.path("messages");
  if (messages == nullptr) refuse("missing_field", fmt::format("{} is missing", path), path);
  if (!messages->is_array()) {
    refuse("invalid_type", fmt::format("{} must be an array, found {}", path, json_kind(*messages)),
           path);
  }
  if (messages->empty()) refuse("invalid_value", fmt::format("{} is empty", path), path);
  ContentParser contents(options, record);
  record.messages.reserve(messages->size());
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string message_path = fmt::format("{}.{}", path, i);
    const Json& message = (*messages)[i];
    if (!message.is_object()) {
      refuse("invalid_type",
             fmt::format("{} must be an object, found {}", message_path, json_kind(message)),
             message_path);
    }
    JsonFields fields(message, message_path + ".");
    record.messages.push_back(parse_message(fields, i, ordered, contents));
    body.add_unknown_of(fields);
  }
}

}  // namespace caravan::batch
