#include <fmt/format.h>

#include <string_view>

#include "request_fields.h"

namespace caravan::batch {
namespace {

// Bounds the work on one hostile record; a context is used up long before.
constexpr std::size_t kMaxToolsBytes = 256 * 1024;

// @throws Refused if there is no object at `path`.
void require_object(const Json& value, const std::string& path) {
  if (value.is_object()) return;
  refuse("invalid_type", fmt::format("{} must be an object, found {}", path, json_kind(value)),
         path);
}

std::string filled_text(JsonFields& fields, const std::string& name) {
  std::string text = fields.needed_text(name);
  if (text.empty() && !fields.faults().concern(fields.path(name))) {
    fields.note("missing_field", fmt::format("{} is empty", fields.path(name)), name);
  }
  return text;
}

void require_size(const Json& value, const std::string& path) {
  if (const auto bytes = value.dump().size(); bytes > kMaxToolsBytes) {
    refuse("invalid_value",
           fmt::format("{} has {} bytes, at most {} are allowed", path, bytes, kMaxToolsBytes),
           path);
  }
}

// The `function` of a tool or of a call, whose `type` must be "function".
// @throws Refused where there is none.
const Json& function_of(const Json& value, const std::string& path, RecordFaults& faults) {
  require_object(value, path);
  JsonFields fields(value, path + ".", faults);
  const std::string type = fields.text("type").value_or("function");
  if (type != "function") {
    fields.note("unsupported_parameter",
                fmt::format("{}.type must be \"function\", found \"{}\"", path, type), "type");
  }
  const Json* function = fields.find("function");
  if (function == nullptr) {
    refuse("missing_field", fmt::format("{}.function is missing", path), path + ".function");
  }
  require_object(*function, path + ".function");
  return *function;
}

// The `arguments` of a call: text of an object, or (as in chat templates) the object itself, which
// `ordered_calls` gives in its own order.
template <typename OrderedCalls>
std::string call_arguments(JsonFields& function, const OrderedCalls& ordered_calls,
                           std::size_t call) {
  const Json* arguments = function.find("arguments");
  if (arguments == nullptr || !arguments->is_object()) return filled_text(function, "arguments");
  require_size(*arguments, function.path("arguments"));
  return ordered_calls().at(call).at("function").at("arguments").dump();
}

}  // namespace

const OrderedJson& OrderedBody::get() {
  if (body_.is_null()) body_ = parse_json<OrderedJson>(line_, "").at("body");
  return body_;
}

std::vector<std::string> parse_tools(JsonFields& body, OrderedBody& ordered) {
  const Json* tools = body.find("tools");
  const Json* choice = body.find("tool_choice");
  if (tools == nullptr) return {};
  const std::string path = body.path("tools");
  if (!tools->is_array()) {
    body.note("invalid_type", fmt::format("{} must be an array, found {}", path, json_kind(*tools)),
              "tools");
    return {};
  }
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string tool_path = fmt::format("{}.{}", path, i);
    body.faults().attempt([&] {
      JsonFields function(function_of((*tools)[i], tool_path, body.faults()),
                          tool_path + ".function.", body.faults());
      filled_text(function, "name");
    });
  }
  body.faults().attempt([&] { require_size(*tools, path); });
  if (choice != nullptr && *choice == "none") return {};
  std::vector<std::string> texts;
  if (tools->empty()) return texts;
  for (const auto& tool : ordered.get().at("tools")) texts.push_back(tool.dump());
  return texts;
}

std::vector<text::ChatToolCall> parse_tool_calls(JsonFields& message, OrderedBody& ordered,
                                                 std::size_t index) {
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr) return {};
  const std::string path = message.path("tool_calls");
  if (!calls->is_array()) {
    message.note("invalid_type",
                 fmt::format("{} must be an array, found {}", path, json_kind(*calls)),
                 "tool_calls");
    return {};
  }
  const OrderedJson* ordered_calls = nullptr;  // looked up once: keys of long objects are slow
  const auto calls_in_order = [&]() -> const OrderedJson& {
    if (ordered_calls == nullptr)
      ordered_calls = &ordered.get().at("messages").at(index).at("tool_calls");
    return *ordered_calls;
  };
  std::vector<text::ChatToolCall> parsed;
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string call_path = fmt::format("{}.{}", path, i);
    message.faults().attempt([&] {
      RecordFaults& faults = message.faults();
      JsonFields function(function_of((*calls)[i], call_path, faults), call_path + ".function.",
                          faults);
      std::string name = filled_text(function, "name");
      parsed.push_back({std::move(name), call_arguments(function, calls_in_order, i)});
      JsonFields call((*calls)[i], call_path + ".", faults);
      call.ignore({"id", "index", "type", "function"});
      call.add_unknown_of(function);
      message.add_unknown_of(call);
    });
  }
  return parsed;
}

void parse_template_arguments(JsonFields& body, text::ChatOptions& options) {
  const Json* value = body.find("chat_template_kwargs");
  if (value == nullptr) return;
  const std::string path = body.path("chat_template_kwargs");
  require_object(*value, path);
  JsonFields arguments(*value, path + ".", body.faults());
  if (const auto date = arguments.text("date_string")) options.date = *date;
  options.tools_in_user_message =
      arguments.boolean("tools_in_user_message").value_or(options.tools_in_user_message);
  if (const Json* names = arguments.find("builtin_tools")) {
    const std::string names_path = arguments.path("builtin_tools");
    bool texts = names->is_array();
    for (const Json& name : *names) texts = texts && name.is_string();
    if (texts) {
      options.builtin_tools = names->get<std::vector<std::string>>();
    } else {
      arguments.note("invalid_type", fmt::format("{} must be an array of strings", names_path),
                     "builtin_tools");
    }
  }
  for (const std::string& name : arguments.unknown()) {
    body.faults().add({400, "unsupported_parameter",
                       fmt::format("{} is not supported; supported are date_string, "
                                   "tools_in_user_message and builtin_tools",
                                   name),
                       name});
  }
}

}  // namespace caravan::batch
