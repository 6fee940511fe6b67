#include "json_fields.h"

#include <fmt/format.h>

#include <cmath>

#include "caravan/text/utf8.h"

namespace caravan::batch {

NotedJson parse_json_object(std::string_view text) {
  if (const auto offset = text::find_invalid_utf8(text)) {
    refuse("invalid_json",
           fmt::format("not valid UTF-8: byte 0x{:02x} at byte {} of the record",
                       static_cast<unsigned char>(text[*offset]), *offset),
           "");
  }
  NotedJson parsed;
  try {
    parsed = parse_json_noting_repeats(text, "");
  } catch (const JsonFault& fault) {
    refuse("invalid_json", fault.what(), "");
  }
  if (!parsed.value.is_object()) {
    refuse("invalid_json", fmt::format("expected a JSON object, found {}", json_kind(parsed.value)),
           "");
  }
  return parsed;
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
