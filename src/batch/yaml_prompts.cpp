#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>

#include "caravan/batch/prompt_files.h"
#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

std::int32_t line_of(const YAML::Node& node) { return node.Mark().line + 1; }

[[noreturn]] void refuse_yaml(const std::string& path, std::int32_t line, const std::string& what) {
  throw InputError(fmt::format("{}:{}: {}", path, line, what));
}

/// Keys of a mapping; yaml-cpp itself lets the last of two equal ones win.
class KeyCheck {
 public:
  explicit KeyCheck(const std::string& path) : path_(path) {}
  std::string take(const YAML::Node& key) {
    if (!key.IsScalar()) refuse_yaml(path_, line_of(key), "a key must be a word");
    if (!seen_.insert(key.Scalar()).second) {
      refuse_yaml(path_, line_of(key), fmt::format("the key \"{}\" is there twice", key.Scalar()));
    }
    return key.Scalar();
  }

 private:
  const std::string& path_;
  std::set<std::string> seen_;
};

// The text of `system:` or `user:`: a scalar, or a mapping with `text:`.
std::string role_text(const YAML::Node& node, const std::string& path, const std::string& role) {
  if (node.IsScalar()) return node.Scalar();
  if (!node.IsMap()) {
    refuse_yaml(path, line_of(node),
                fmt::format("{} must be a text or a mapping with text:", role));
  }
  std::string text;
  KeyCheck keys(path);
  for (const auto& entry : node) {
    const std::string key = keys.take(entry.first);
    if (key == "image") {
      refuse_yaml(
          path, line_of(entry.first),
          fmt::format("{}.image: images need a vision model, this one reads text only", role));
    }
    if (key != "text" || !entry.second.IsScalar()) {
      refuse_yaml(path, line_of(entry.first),
                  fmt::format("{}.{}: expected text: with a string", role, key));
    }
    text = entry.second.Scalar();
  }
  return text;
}

YamlPrompt one_prompt(const YAML::Node& outer, const std::string& path) {
  if (!outer.IsMap())
    refuse_yaml(path, line_of(outer), "expected a mapping with user: (and system:)");
  const YAML::Node inner = outer["prompt"];
  if (inner && !inner.IsMap()) {
    refuse_yaml(path, line_of(inner), "prompt: must be a mapping with user: (and system:)");
  }
  const YAML::Node node = inner ? inner : outer;
  YamlPrompt prompt;
  prompt.line = line_of(node);
  bool has_user = false;
  KeyCheck keys(path);
  for (const auto& entry : node) {
    const std::string key = keys.take(entry.first);
    if (key == "system") {
      if (!entry.second.IsNull()) prompt.system = role_text(entry.second, path, key);
    } else if (key == "user") {
      prompt.user = role_text(entry.second, path, key);
      has_user = true;
    } else {
      refuse_yaml(path, line_of(entry.first),
                  fmt::format("unknown key \"{}\"; known are prompt, system and user", key));
    }
  }
  if (inner && outer.size() > 1) {
    refuse_yaml(path, line_of(outer), "prompt: must be the only key of its mapping");
  }
  if (!has_user) refuse_yaml(path, prompt.line, "user: is missing");
  if (prompt.user.empty()) refuse_yaml(path, prompt.line, "user: is empty");
  return prompt;
}

}  // namespace

std::vector<YamlPrompt> parse_yaml_prompts(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) {
    refuse_yaml(path, 1, "holds a NUL byte; expected text");
  }
  try {
    std::vector<YamlPrompt> prompts;
    std::map<std::int32_t, std::int32_t> on_line;
    const auto add = [&](const YAML::Node& node) {
      prompts.push_back(one_prompt(node, path));
      prompts.back().earlier_on_line = on_line[prompts.back().line]++;
    };
    for (const YAML::Node& root : YAML::LoadAll(text)) {
      if (!root || root.IsNull()) continue;
      if (root.IsSequence()) {
        for (const auto& element : root) add(element);
      } else {
        add(root);
      }
    }
    return prompts;
  } catch (const YAML::Exception& error) {
    refuse_yaml(path, error.mark.is_null() ? 1 : error.mark.line + 1,
                fmt::format("not valid YAML: {}", error.msg));
  }
}

}  // namespace caravan::batch
