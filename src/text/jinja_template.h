#pragma once
// Jinja templates as chat templates use them: parsed and run on values, with bounded work.
//
// Only for seeing what a checkpoint's template prints (chat_template.cpp); prompts are laid out by
// the built-in formats. Whatever is outside the subset is an error, never ignored.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caravan::text::jinja {

/// Values are JSON; a discarded value stands for "undefined".
using Value = nlohmann::ordered_json;

struct Node;  // of expressions and statements

class Template {
 public:
  /// With the white space rules of chat templates (trim_blocks, lstrip_blocks).
  /// @throws InputError for what is not in the subset.
  explicit Template(std::string_view source);
  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

  /// What the template prints; empty when it refuses its input, as by raise_exception.
  /// `now` is what strftime_now gives.
  /// @throws InputError for what is not in the subset, and beyond a bound on work and output.
  std::optional<std::string> render(const Value& variables, const std::string& now) const;

 private:
  std::vector<std::unique_ptr<Node>> body_;
};

}  // namespace caravan::text::jinja
