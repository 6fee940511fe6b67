#pragma once
// JSON from outside the program as a tree, within limits. Every text that the program did not write
// itself comes in here: how deep it is nested is limited, so that nothing that walks the tree can
// exhaust the stack; how much memory the tree takes is limited by the length of the text; and a key
// stands once in an object.
//
// Leaves out: typed access to fields (json_reader.h).

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "caravan/core/error.h"

namespace caravan {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys keep their order

inline constexpr int kMaxJsonDepth = 100;

/// A text that is no JSON, or not within the limits.
class JsonFault : public InputError {
 public:
  using InputError::InputError;
};

/// The value that a whole text holds: a `Json`, or an `OrderedJson`.
///
/// Cost: time is linear in the text; memory at most about 24 bytes for each of its bytes, and never
/// more than 512 MiB.
/// @param where  names the text in messages; empty where the caller puts the name in front
/// @throws JsonFault with line and column.
template <typename Tree = Json>
Tree parse_json(std::string_view text, std::string_view where);

struct NotedJson {
  Json value;
  /// A key that some object in it has twice, or empty. `value` has the first of the two.
  std::string repeated_key;
  std::string repeated_at;  // "line 2, column 7"
};

/// As parse_json, but a key that is there twice is noted instead of refused.
NotedJson parse_json_noting_repeats(std::string_view text, std::string_view where);

/// `value` as text for a message: one line, cut short where it is long, valid UTF-8.
std::string short_json(const Json& value);

}  // namespace caravan
