#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <utility>

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

struct RoleContent {
  std::string text;
  std::vector<std::string> images;
};

// `image:`: the address of one, or a list of such.
std::vector<std::string> image_list(const YAML::Node& node, const std::string& path) {
  std::vector<std::string> images;
  const auto add = [&](const YAML::Node& image) {
    if (!image.IsScalar() || image.Scalar().empty()) {
      refuse_yaml(path, line_of(image),
                  "user.image: expected the path or data: URI of an image, or a list of them");
    }
    images.push_back(image.Scalar());
  };
  if (node.IsSequence()) {
    for (const auto& image : node) add(image);
  } else {
    add(node);
  }
  return images;
}

// What stands at `system:` or `user:`: a text, or a mapping with `text:` and `image:`.
RoleContent role_content(const YAML::Node& node, const std::string& path, const std::string& role) {
  if (node.IsScalar()) return {node.Scalar(), {}};
  if (!node.IsMap()) {
    refuse_yaml(path, line_of(node),
                fmt::format("{} must be a text or a mapping with text:", role));
  }
  RoleContent content;
  KeyCheck keys(path);
  for (const auto& entry : node) {
    const std::string key = keys.take(entry.first);
    if (key == "image" && role == "user") {
      content.images = image_list(entry.second, path);
    } else if (key == "image") {
      refuse_yaml(path, line_of(entry.first),
                  fmt::format("{}.image: images belong to user:", role));
    } else if (key == "text" && entry.second.IsScalar()) {
      content.text = entry.second.Scalar();
    } else {
      refuse_yaml(path, line_of(entry.first),
                  fmt::format("{}.{}: expected text: with a string", role, key));
    }
  }
  return content;
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
      if (!entry.second.IsNull()) prompt.system = role_content(entry.second, path, key).text;
    } else if (key == "user") {
      RoleContent content = role_content(entry.second, path, key);
      prompt.user = std::move(content.text);
      prompt.images = std::move(content.images);
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
  if (prompt.user.empty() && prompt.images.empty())
    refuse_yaml(path, prompt.line, "user: is empty");
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
