// Llama 3 and later, as their Hugging Face templates render: headers with the role, contents, and
// <|eot_id|>. From 3.1 on there is always a system block, and tools are written as text.

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/core/json_document.h"
#include "chat_layouts.h"
#include "chat_text.h"
#include "python_json.h"

namespace caravan::text {
namespace {

constexpr std::string_view kCallForm =
    "{\"name\": function name, \"parameters\": dictionary of argument name and its value}.Do not "
    "use "
    "variables.\n\n";

class Llama3Layout {
 public:
  Llama3Layout(const ChatFormat& format, const Messages& messages, const ChatOptions& options,
               PromptParts& prompt)
      : kind_(format.kind()),
        image_id_(format.image_id()),
        has_images_(
            std::any_of(messages.begin(), messages.end(),
                        [](const auto& message) { return !message.image_offsets.empty(); })),
        messages_(messages),
        options_(options),
        prompt_(prompt) {}

  void write() {
    if (const auto bos = prompt_.tokenizer().spec().bos_id) {
      prompt_.control(*bos);
    } else {
      prompt_.control("<|begin_of_text|>");
    }
    std::size_t next = 0;
    if (kind_ == ChatFormatKind::kLlama32Vision && has_images_) {
      next = skip_empty_system();
    } else if (has_system_block()) {
      next = write_system_block();
    }
    if (has_tools() && options_.tools_in_user_message) write_tools_and_user(next++);
    for (; next < messages_.size(); ++next) write_message(next);
    if (options_.add_generation_prompt) start("assistant");
  }

 private:
  bool has_system_block() const {
    return kind_ == ChatFormatKind::kLlama31 || kind_ == ChatFormatKind::kLlama32Vision;
  }
  bool keeps_spaces() const {
    return kind_ == ChatFormatKind::kLlama32Vision || kind_ == ChatFormatKind::kLlama3Plain;
  }
  bool has_tools() const { return !options_.tools.empty(); }
  bool has_builtin_tools() const { return !options_.builtin_tools.empty(); }

  void start(std::string_view role) {
    prompt_.control("<|start_header_id|>");
    prompt_.text(role);
    prompt_.control("<|end_header_id|>");
    prompt_.text("\n\n");
  }
  void end() { prompt_.control("<|eot_id|>"); }

  void write_tools() {
    for (std::size_t i = 0; i < options_.tools.size(); ++i) {
      prompt_.text(
          python_json(options_.tools[i], JsonLayout::kIndented, fmt::format("tools[{}]", i)));
      prompt_.text("\n\n");
    }
  }

  /// Returns the number of messages that went into it.
  std::size_t write_system_block() {
    start("system");
    if (has_tools() || has_builtin_tools()) prompt_.text("Environment: ipython\n");
    if (has_builtin_tools()) write_builtin_tools();
    prompt_.text("Cutting Knowledge Date: December 2023\nToday Date: ");
    prompt_.text(options_.date);
    prompt_.text("\n\n");
    if (has_tools() && !options_.tools_in_user_message) {
      prompt_.text(
          "You have access to the following functions. To call a function, please respond with "
          "JSON "
          "for a function call.Respond in the format ");
      prompt_.text(kCallForm);
      write_tools();
    }
    const bool given = is_system(messages_.front());
    if (given) prompt_.text(trim(messages_.front().content));
    end();
    return given ? 1 : 0;
  }

  // The template of Llama 3.2 Vision refuses system texts beside images, and leaves out the block
  // in which it would list tools.
  std::size_t skip_empty_system() const {
    CARAVAN_CHECK(!has_tools() || options_.tools_in_user_message, InputError,
                  "tools: with images there is no system block that could have tools; leave "
                  "tools_in_user_message out");
    if (!is_system(messages_.front())) return 0;
    CARAVAN_CHECK(
        trim(messages_.front().content).empty(), InputError,
        "messages[0].content: the chat format llama3.2-vision has no system message where "
        "there are images; put the text into the first user message, or use "
        "--chat-format llama3-plain");
    return 1;
  }

  void write_builtin_tools() {
    std::vector<std::string_view> listed;  // the interpreter is what "ipython" stands for
    for (const std::string& name : options_.builtin_tools) {
      if (name != "code_interpreter") listed.push_back(name);
    }
    prompt_.text(fmt::format("Tools: {}\n\n", fmt::join(listed, ", ")));
  }

  void write_tools_and_user(std::size_t index) {
    CARAVAN_CHECK(index < messages_.size() && messages_[index].role == "user", InputError,
                  "messages: tools go into the first user message, which must come first or behind "
                  "the system message; set tools_in_user_message to false to put them into the "
                  "system block");
    CARAVAN_CHECK(messages_[index].image_offsets.empty(), InputError,
                  "messages[{}].content: tools are written into the first user message, which then "
                  "cannot have images",
                  index);
    start("user");
    prompt_.text(
        "Given the following functions, please respond with a JSON for a function call with its "
        "proper arguments that best answers the given prompt.\n\nRespond in the format ");
    prompt_.text(kCallForm);
    write_tools();
    prompt_.text(trim(messages_[index].content));
    end();
  }

  void write_message(std::size_t index) {
    const ChatMessage& message = messages_[index];
    if (!message.tool_calls.empty()) {
      write_tool_call(message, index);
      return;
    }
    const bool is_tool = message.role == "tool" || message.role == "ipython";
    CARAVAN_CHECK(message.role != "tool" || has_system_block(), InputError,
                  "messages[{}]: the chat format {} has no messages with the role \"tool\"", index,
                  chat_format_name(kind_));
    const std::string_view role = is_tool ? "ipython" : checked_role(message, index);
    start(role);
    if (is_tool && has_system_block()) {
      prompt_.text(python_json_string(message.content, fmt::format("messages[{}].content", index)));
    } else if (keeps_spaces()) {
      write_content(message);
    } else {
      prompt_.text(trim(message.content));
    }
    if (!stays_open(messages_, options_, index)) end();
  }

  void write_content(const ChatMessage& message) {
    const std::string_view content = message.content;
    std::size_t begin = 0;
    for (const std::size_t end : message.image_offsets) {
      CARAVAN_ASSERT(begin <= end && end <= content.size(), "image at byte {} of {}, behind {}",
                     end, content.size(), begin);
      prompt_.text(content.substr(begin, end - begin));
      prompt_.control(image_id_.value());
      begin = end;
    }
    prompt_.text(content.substr(begin));
  }

  static std::string_view checked_role(const ChatMessage& message, std::size_t index) {
    if (is_system(message)) return "system";
    CARAVAN_CHECK(
        message.role == "user" || message.role == "assistant", InputError,
        "messages[{}]: unknown role \"{}\" (roles: system, developer, user, assistant, tool)",
        index, message.role);
    return message.role;
  }

  void write_tool_call(const ChatMessage& message, std::size_t index) {
    const std::string where = fmt::format("messages[{}].tool_calls", index);
    CARAVAN_CHECK(message.role == "assistant", InputError,
                  "{}: only an assistant calls tools, the role is \"{}\"", where, message.role);
    CARAVAN_CHECK(message.tool_calls.size() == 1, InputError,
                  "{}: the model makes one call in a message, found {}", where,
                  message.tool_calls.size());
    CARAVAN_CHECK(!stays_open(messages_, options_, index), InputError,
                  "{}: continue_final_message cannot go on with a tool call", where);
    const ChatToolCall& call = message.tool_calls.front();
    const std::string arguments = where + "[0].function.arguments";
    start("assistant");
    const auto& builtin = options_.builtin_tools;
    if (std::find(builtin.begin(), builtin.end(), call.name) != builtin.end()) {
      write_builtin_call(call, arguments);
    } else {
      prompt_.text("{\"name\": \"" + call.name + "\", \"parameters\": ");
      prompt_.text(python_json(call.arguments, JsonLayout::kOneLine, arguments));
      prompt_.text("}");
    }
    if (has_builtin_tools()) {
      prompt_.control("<|eom_id|>");
    } else {
      end();
    }
  }

  void write_builtin_call(const ChatToolCall& call, const std::string& where) {
    const auto arguments = parse_json<OrderedJson>(call.arguments, where);
    CARAVAN_CHECK(arguments.is_object(), InputError, "{}: expected the text of a JSON object",
                  where);
    prompt_.control("<|python_tag|>");
    prompt_.text(call.name + ".call(");
    std::string_view separator;
    for (const auto& [name, value] : arguments.items()) {
      CARAVAN_CHECK(value.is_string(), InputError,
                    "{}: \"{}\" must be a string, as for all built-in tools", where, name);
      prompt_.text(separator);
      prompt_.text(name + "=\"" + value.get<std::string>() + "\"");
      separator = ", ";
    }
    prompt_.text(")");
  }

  ChatFormatKind kind_;
  std::optional<std::int32_t> image_id_;
  bool has_images_;
  const Messages& messages_;
  const ChatOptions& options_;
  PromptParts& prompt_;
};

}  // namespace

void lay_out_llama3(const ChatFormat& format, const Messages& messages, const ChatOptions& options,
                    PromptParts& prompt) {
  Llama3Layout(format, messages, options, prompt).write();
}

}  // namespace caravan::text
