#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

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

// The address in a part of type image, as transformers' chats have it.
// @throws Refused where there is none.
RecordImage plain_image_of(JsonFields& part, const std::string& path) {
  const char* const key = part.find("image") != nullptr ? "image" : "url";
  return {part.needed_text(key), path + "." + key};
}

// The address in an image_url part: a text, or an object with `url` and `detail`.
// @throws Refused where it has neither.
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
  JsonFields fields(*value, param + ".", part.faults());
  std::string url = fields.needed_text("url");
  const std::string detail = fields.text("detail").value_or("auto");
  if (detail != "auto" && detail != "low" && detail != "high") {
    fields.note("invalid_value",
                fmt::format("{}.detail must be auto, low or high, found \"{}\"", param, detail),
                "detail");
  }
  part.add_unknown_of(fields);
  return {std::move(url), param};
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
    behind_text_ = false;
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::string part_path = fmt::format("{}.{}", path, i);
      fields.faults().attempt([&] {
        if (!content[i].is_object()) {
          refuse("invalid_type",
                 fmt::format("{} must be an object, found {}", part_path, json_kind(content[i])),
                 part_path);
        }
        JsonFields part(content[i], part_path + ".", fields.faults());
        parse_part(part, part_path, message);
        fields.add_unknown_of(part);
      });
    }
  }

 private:
  void parse_part(JsonFields& fields, const std::string& path, text::ChatMessage& message) {
    const std::string type = fields.text("type").value_or("");
    if (type == "text") {
      if (std::exchange(behind_text_, true)) message.content += options_.text_part_separator;
      message.content += fields.needed_text("text");
      return;
    }
    behind_text_ = false;
    const bool is_plain = type == "image";
    const bool is_image = type == "image_url" || is_plain || type == "input_image";
    if (is_image && !options_.reads_images) refuse_image(path, options_.model_name);
    if (type != "image_url" && !is_plain) {
      refuse("invalid_value",
             fmt::format("{}.type must be \"text\", \"image_url\" or \"image\", found \"{}\"", path,
                         type),
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
      if (std::exchange(too_many_, true)) return;  // one fault, and not one for each
      refuse("too_many_images",
             fmt::format("{} is image {} of the record, but a record may have {} (--max-images)",
                         path, record_.images.size() + 1, options_.max_images),
             path);
    }
    record_.images.push_back(is_plain ? plain_image_of(fields, path) : image_of(fields, path));
    message.image_offsets.push_back(message.content.size());
  }

  const ParserOptions& options_;
  Record& record_;
  bool too_many_ = false;
  bool behind_text_ = false;  // the part before in this message is a text
};

std::string parse_role(JsonFields& fields) {
  std::string role = fields.needed_text("role");
  const bool known = std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
  if (!known && !fields.faults().concern(fields.path("role"))) {
    fields.note("invalid_value",
                fmt::format("{} must be system, developer, user, assistant or tool, found \"{}\"",
                            fields.path("role"), role),
                "role");
  }
  return role;
}

text::ChatMessage parse_message(JsonFields& fields, std::size_t index, OrderedBody& ordered,
                                ContentParser& contents) {
  // No built-in layout shows these two.
  fields.text("name");
  fields.text("tool_call_id");
  std::string role = parse_role(fields);
  const Json* old_call = fields.find("function_call");
  if (old_call != nullptr && !old_call->empty()) {
    fields.note("unsupported_parameter",
                fmt::format("{} is not supported; use tool_calls", fields.path("function_call")),
                "function_call");
  }
  text::ChatMessage parsed{std::move(role), {}, parse_tool_calls(fields, ordered, index)};
  const Json* content = fields.find("content");
  if (content != nullptr) {
    fields.faults().attempt([&] { contents.parse(*content, fields, parsed); });
  } else if (fields.find("tool_calls") == nullptr || fields.find("tool_calls")->empty()) {
    fields.note("missing_field", fmt::format("{} is missing", fields.path("content")), "content");
  }
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
      body.faults().add(
          {400, "invalid_type",
           fmt::format("{} must be an object, found {}", message_path, json_kind(message)),
           message_path});
      continue;
    }
    JsonFields fields(message, message_path + ".", body.faults());
    record.messages.push_back(parse_message(fields, i, ordered, contents));
    body.add_unknown_of(fields);
  }
}

}  // namespace caravan::batch
