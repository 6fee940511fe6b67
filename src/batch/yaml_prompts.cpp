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

struct RoleContent {
  std::string text;
  std::vector<std::string> images;
};

// Reads one prompt, and notes everything that is wrong with it.
class PromptReader {
 public:
  YamlPrompt read(const YAML::Node& outer) {
    prompt_.line = line_of(outer);
    if (!outer.IsMap()) {
      note(outer, "expected a mapping with user: (and system:)");
      return std::move(prompt_);
    }
    const YAML::Node inner = outer["prompt"];
    if (!inner) {
      read_roles(outer);
      return std::move(prompt_);
    }
    if (outer.size() > 1) note(outer, "prompt: must be the only key of its mapping");
    prompt_.line = line_of(inner);
    if (inner.IsMap()) {
      read_roles(inner);
    } else {
      note(inner, "prompt: must be a mapping with user: (and system:)");
    }
    return std::move(prompt_);
  }

 private:
  void note(const YAML::Node& node, const std::string& what) {
    if (!prompt_.faults.empty()) prompt_.faults += "; ";
    if (line_of(node) != prompt_.line) prompt_.faults += fmt::format("line {}: ", line_of(node));
    prompt_.faults += what;
  }

  // Calls `use` with each key and its value; yaml-cpp itself lets the last of two equal keys win.
  template <typename Use>
  void for_each(const YAML::Node& mapping, const Use& use) {
    std::set<std::string> seen;
    for (const auto& entry : mapping) {
      if (!entry.first.IsScalar()) {
        note(entry.first, "a key must be a word");
      } else if (!seen.insert(entry.first.Scalar()).second) {
        note(entry.first, fmt::format("the key \"{}\" is there twice", entry.first.Scalar()));
      } else {
        use(entry.first, entry.second);
      }
    }
  }

  void read_roles(const YAML::Node& mapping) {
    bool has_user = false;
    const bool fine_so_far = prompt_.faults.empty();
    for_each(mapping, [&](const YAML::Node& key, const YAML::Node& value) {
      const std::string& role = key.Scalar();
      if (role == "system") {
        if (!value.IsNull()) prompt_.system = role_content(value, role).text;
      } else if (role == "user") {
        RoleContent content = role_content(value, role);
        prompt_.user = std::move(content.text);
        prompt_.images = std::move(content.images);
        has_user = true;
      } else {
        note(key, fmt::format("unknown key \"{}\"; known are prompt, system and user", role));
      }
    });
    if (!has_user) {
      note(mapping, "user: is missing");
    } else if (fine_so_far && prompt_.faults.empty() && prompt_.user.empty() &&
               prompt_.images.empty()) {
      note(mapping, "user: is empty");
    }
  }

  // What stands at `system:` or `user:`: a text, or a mapping with `text:` and `image:`.
  RoleContent role_content(const YAML::Node& node, const std::string& role) {
    if (node.IsScalar()) return {node.Scalar(), {}};
    if (!node.IsMap()) {
      note(node, fmt::format("{} must be a text or a mapping with text:", role));
      return {};
    }
    RoleContent content;
    for_each(node, [&](const YAML::Node& key, const YAML::Node& value) {
      const std::string& name = key.Scalar();
      if (name == "image" && role == "user") {
        content.images = image_list(value);
      } else if (name == "image") {
        note(key, fmt::format("{}.image: images belong to user:", role));
      } else if (name == "text" && value.IsScalar()) {
        content.text = value.Scalar();
      } else {
        note(key, fmt::format("{}.{}: expected text: with a string", role, name));
      }
    });
    return content;
  }

  // `image:`: the address of one, or a list of such.
  std::vector<std::string> image_list(const YAML::Node& node) {
    std::vector<std::string> images;
    const auto add = [&](const YAML::Node& image) {
      if (image.IsScalar() && !image.Scalar().empty()) {
        images.push_back(image.Scalar());
      } else {
        note(image, "user.image: expected the path or data: URI of an image, or a list of them");
      }
    };
    if (node.IsSequence()) {
      for (const auto& image : node) add(image);
    } else {
      add(node);
    }
    return images;
  }

  YamlPrompt prompt_;
};

}  // namespace

std::vector<YamlPrompt> parse_yaml_prompts(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) {
    throw InputError(fmt::format("{}:1: holds a NUL byte; expected text", path));
  }
  try {
    std::vector<YamlPrompt> prompts;
    std::map<std::int32_t, std::int32_t> on_line;
    const auto add = [&](const YAML::Node& node) {
      prompts.push_back(PromptReader().read(node));
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
    throw InputError(fmt::format("{}:{}: not valid YAML: {}", path,
                                 error.mark.is_null() ? 1 : error.mark.line + 1, error.msg));
  }
}

}  // namespace caravan::batch
