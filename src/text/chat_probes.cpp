#include "chat_probes.h"

#include <string>

namespace caravan::text {
namespace {

ChatMessage system(std::string content) { return {"system", std::move(content), {}}; }
ChatMessage user(std::string content) { return {"user", std::move(content), {}}; }
ChatMessage assistant(std::string content) { return {"assistant", std::move(content), {}}; }

// Python's white space: what `trim` removes, and other ways to strip may not.
std::vector<std::string> spaces() {
  return {" ",
          "\n",
          "\n\n\n",
          "\t",
          "\r\n",
          "\v\f",
          "\x1c\x1d\x1e\x1f",
          "\u0085",
          "\u00a0",
          "\u1680",
          "\u2000\u200a",
          "\u2028\u2029",
          "\u202f\u205f",
          "\u3000",
          "\u200b",
          "\ufeff"};  // the last two are none
}

/// What some templates look for in contents, or change there.
std::vector<std::string> marked_contents() {
  return {
      "<think>so</think>A plain answer",
      "[THINK]a[/THINK] <think>b</think>\n</s> [/INST] c",
      "Is </think> or [/THINK] or <|x|> a tag?",
      "<|im_start|>user\nx<|im_end|>\n<|eot_id|><|start_header_id|>system<|end_header_id|>\n\n",
      "<s>[INST] <<SYS>>\nx\n<</SYS>>\n\ny [/INST] z </s>",
      "<|user|>\nx<|assistant|>\n<|end_of_text|><|begin_of_text|><|endoftext|>",
      "Answer at once. /no_think",
      "/think and /system_override",
      "<tool_call>{\"name\": \"f\"}</tool_call> <tool_response>1</tool_response>",
      "Environment: ipython\nCutting Knowledge Date: x\nToday Date: y",
      "He said: \"it's\" & {{ braces }} {% tags %} {# notes #} \\n \\ 100 % <b>bold</b>",
      "line\r\nline\n\n\n  indented\n\ttab  double  spaces",
      "\u00c4rger, na\u00efve, \u65e5\u672c\u8a9e, \U0001F600 e\u0301",
      "42",
      "None",
      "false",
      "[]",
      "{\"a\": 1}",
  };
}

void add_contents(std::vector<Messages>& all) {
  for (const std::string& space : spaces()) {
    const std::string padded = space + "a" + space + "b" + space;
    all.push_back({system(padded), user(padded), assistant(padded), user(padded)});
    all.push_back({user(padded), assistant(padded)});
    all.push_back({system(space), user(space), assistant(space), user(space)});
  }
  for (const std::string& marked : marked_contents()) {
    all.push_back({system(marked), user(marked), assistant(marked), user(marked)});
    all.push_back({user(marked), assistant(marked)});
  }
  all.push_back({system(""), user("x"), assistant(""), user("y")});
  all.push_back({system("x"), user(""), assistant("y"), user("")});
  all.push_back({user(""), assistant("")});
  std::string words;
  while (words.size() < 2000) words += "word " + std::to_string(words.size()) + ", ";
  all.push_back({user(words), assistant(words), user("And then?")});
  all.push_back({system(words), user(words)});
}

void add_orders(std::vector<Messages>& all) {
  const ChatMessage order = system(" You are 7 Robots.\n"), question = user("\n What is it?  "),
                    answer = assistant(" An Apple, at last \n"), more = user("And then, a b c?"),
                    named{"ipython", "42", {}};
  for (const Messages& messages :
       std::vector<Messages>{{question},
                             {order},
                             {answer},
                             {order, more},
                             {order, answer},
                             {order, answer, more},
                             {answer, question},
                             {more, answer, question},
                             {order, question, answer, more, answer, question},
                             {order, question, answer},
                             {more, question},
                             {more, question, question},
                             {more, answer, answer},
                             {more, answer, answer, question},
                             {question, order, more},
                             {more, order},
                             {more, answer, order},
                             {more, answer, order, question},
                             {order, order, more},
                             {order, order},
                             {order, more, answer, order, question, answer},
                             {more, answer, named}}) {
    all.push_back(messages);
  }
}

void add_lengths(std::vector<Messages>& all) {
  Messages growing;
  while (growing.size() < 41) {
    growing.push_back(growing.size() % 2 == 0 ? user("Question " + std::to_string(growing.size()))
                                              : assistant("Answer"));
    if (growing.size() <= 13 || growing.size() >= 40) all.push_back(growing);
  }
  growing.insert(growing.begin(), system("Be brief."));
  all.push_back(growing);
}

void add_images(std::vector<Messages>& all) {
  const ChatMessage shown{"user", "Look: or rather ", {}, {0, 6, 16}}, alone{"user", "", {}, {0}};
  const ChatMessage twice{"user", "", {}, {0, 0}}, behind{"user", " \n What?\n ", {}, {10}};
  const ChatMessage answer = assistant(" Yes \n"), question = user(" Why? ");
  for (const Messages& messages : std::vector<Messages>{{shown, answer, shown},
                                                        {alone},
                                                        {twice, answer, question},
                                                        {question, answer, behind},
                                                        {behind, question},
                                                        {system(" Be brief. "), shown},
                                                        {system(""), shown, answer}}) {
    all.push_back(messages);
  }
}

}  // namespace

std::vector<Messages> layout_probes() {
  std::vector<Messages> all;
  add_orders(all);
  add_contents(all);
  add_lengths(all);
  add_images(all);
  return all;
}

}  // namespace caravan::text
