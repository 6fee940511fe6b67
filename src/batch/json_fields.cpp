#include "json_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "caravan/core/exception_text.h"
#include "caravan/text/utf8.h"

namespace caravan::batch {
namespace {

// A chat request needs five levels; the rest is room for metadata. Bounds the parser's work.
constexpr std::int64_t kMaxDepth = 64;

// Deepest nesting of brackets outside strings.
std::int64_t nesting_depth(std::string_view text) {
  std::int64_t depth = 0;
  std::int64_t deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

// The library's text without its own prefix, cut to a readable length.
std::string parse_error_text(const std::string& what) {
  std::string text = without_type(what);
  // A record is one line, and has a number of its own in its file.
  constexpr std::string_view kPlace = "at line 1, column ";
  if (const auto place = text.find(kPlace); place != std::string::npos)
    text.replace(place, kPlace.size(), "at column ");
  constexpr std::size_t kMaxLength = 240;
  if (text.size() > kMaxLength) {
    text.resize(kMaxLength);
    text += "...";
  }
  return text::replace_invalid_utf8(text);
}

// The first key that an object has already, of a text that is known to be valid.
std::string find_repeated_key(std::string_view text) {
  std::vector<std::set<std::string>> seen;  // of the objects that are open
  std::string repeated;
  const auto look = [&](int /*depth*/, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key && !seen.back().insert(value).second &&
        repeated.empty()) {
      repeated = value.get<std::string>();
    }
    return true;
  };
  const Json whole = Json::parse(text, look);
  return repeated;
}

// Parses and compares the keys that were read with those that arrived, which is cheap.
JsonObject parse_counting_keys(std::string_view text) {
  std::vector<std::size_t> keys;  // of the objects that are open
  bool lost = false;
  const auto count = [&](int /*depth*/, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::object_start) keys.push_back(0);
    if (event == Json::parse_event_t::key) ++keys.back();
    if (event == Json::parse_event_t::object_end) {
      lost = lost || value.size() != keys.back();
      keys.pop_back();
    }
    return true;
  };
  JsonObject parsed{Json::parse(text, count), {}};
  if (lost) parsed.repeated_key = find_repeated_key(text);
  return parsed;
}

}  // namespace

JsonObject parse_json_object(std::string_view text) {
  if (const auto offset = text::find_invalid_utf8(text)) {
    refuse("invalid_json",
           fmt::format("not valid UTF-8: byte 0x{:02x} at byte {} of the record",
                       static_cast<unsigned char>(text[*offset]), *offset),
           "");
  }
  if (const std::int64_t depth = nesting_depth(text); depth > kMaxDepth) {
    refuse("invalid_json",
           fmt::format("JSON is nested {} levels deep, {} are allowed", depth, kMaxDepth), "");
  }
  JsonObject parsed;
  try {
    parsed = parse_counting_keys(text);
  } catch (const Json::exception& error) {
    refuse("invalid_json", fmt::format("not valid JSON: {}", parse_error_text(error.what())), "");
  }
  if (!parsed.value.is_object()) {
    refuse("invalid_json", fmt::format("expected a JSON object, found {}", json_kind(parsed.value)),
           "");
  }
  return parsed;
}

std::string_view json_kind(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number with a fraction";
    case Json::value_t::binary:
    case Json::value_t::discarded: return "something else";
  }
  return "something else";
}

namespace {

// Whether it is an integer, be it written as 4.0: programs that keep numbers as floating point
// write it so, and the servers of this interface take it.
bool is_whole(const Json& value) {
  if (!value.is_number_float()) return value.is_number_integer();
  const double number = value.get<double>();
  return std::isfinite(number) && std::trunc(number) == number;
}

// Of a whole number; empty where it is beyond int64, or a float that may have been rounded.
std::optional<std::int64_t> exact_integer(const Json& value) {
  constexpr double kMostExact = 0x1p53;
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::abs(number) > kMostExact) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<std::int64_t>();
}

}  // namespace

JsonFields::JsonFields(const Json& object, std::string path, RecordFaults& faults)
    : object_(&object), path_(std::move(path)), faults_(&faults) {}

void JsonFields::note(std::string code, std::string message, const std::string& name) {
  faults_->add({400, std::move(code), std::move(message), path(name)});
}

const Json* JsonFields::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

// The field where it has the type that `fits` wants.
template <typename Fits>
const Json* JsonFields::find_typed(const std::string& name, std::string_view type,
                                   const Fits& fits) {
  const Json* value = find(name);
  if (value == nullptr || fits(*value)) return value;
  note("invalid_type", fmt::format("{} must be {}, found {}", path(name), type, json_kind(*value)),
       name);
  return nullptr;
}

std::optional<bool> JsonFields::boolean(const std::string& name) {
  const Json* value =
      find_typed(name, "true or false", [](const Json& found) { return found.is_boolean(); });
  return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

std::optional<std::int64_t> JsonFields::integer(const std::string& name, std::int64_t low,
                                                std::int64_t high) {
  const Json* value = find_typed(name, "an integer", is_whole);
  if (value == nullptr) return std::nullopt;
  const auto number = exact_integer(*value);
  if (number && *number >= low && *number <= high) return number;
  note_range(name, fmt::format("{} and {}", low, high), *value);
  return std::nullopt;
}

std::optional<double> JsonFields::number(const std::string& name, double low, double high) {
  const Json* value =
      find_typed(name, "a number", [](const Json& found) { return found.is_number(); });
  if (value == nullptr) return std::nullopt;
  const double number = value->get<double>();
  if (std::isfinite(number) && number >= low && number <= high) return number;
  note_range(name, fmt::format("{} and {}", low, high), *value);
  return std::nullopt;
}

void JsonFields::note_range(const std::string& name, const std::string& range, const Json& found) {
  note("invalid_value",
       fmt::format("{} must be between {}, found {}", path(name), range, found.dump()), name);
}

std::optional<std::string> JsonFields::text(const std::string& name) {
  const Json* value =
      find_typed(name, "a string", [](const Json& found) { return found.is_string(); });
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

std::string JsonFields::needed_text(const std::string& name) {
  if (find(name) != nullptr) return text(name).value_or("");
  note("missing_field", fmt::format("{} is missing", path(name)), name);
  return {};
}

std::optional<std::vector<std::int32_t>> JsonFields::ids(const std::string& name,
                                                         std::int64_t vocab_size) {
  const Json* value =
      find_typed(name, "an array of token ids", [](const Json& found) { return found.is_array(); });
  if (value == nullptr) return std::nullopt;
  return token_ids(*value, path(name), vocab_size, *faults_);
}

void JsonFields::ignore(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

std::vector<std::string> JsonFields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_->items()) {
    if (!known_.contains(name) && !value.is_null()) names.push_back(path(name));
  }
  names.insert(names.end(), unknown_in_parts_.begin(), unknown_in_parts_.end());
  return names;
}

void JsonFields::add_unknown_of(const JsonFields& part) {
  const auto names = part.unknown();
  unknown_in_parts_.insert(unknown_in_parts_.end(), names.begin(), names.end());
}

std::vector<std::int32_t> token_ids(const Json& array, const std::string& path,
                                    std::int64_t vocab_size, RecordFaults& faults) {
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    const Json& element = array[i];
    if (!is_whole(element)) {
      faults.add({400, "invalid_type",
                  fmt::format("{}.{} must be a token id, found {}", path, i, json_kind(element)),
                  fmt::format("{}.{}", path, i)});
      continue;
    }
    const auto id = exact_integer(element);
    if (!id || *id < 0 || *id >= vocab_size) {
      faults.add({400, "invalid_value",
                  fmt::format("{}.{}: token id {} is not in the vocabulary (0 to {})", path, i,
                              element.dump(), vocab_size - 1),
                  fmt::format("{}.{}", path, i)});
      continue;
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  return ids;
}

}  // namespace caravan::batch
