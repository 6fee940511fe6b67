#include "jinja_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <limits>
#include <string_view>

#include "caravan/core/error.h"
#include "chat_text.h"

namespace caravan::text::jinja {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

/// Python would mostly raise here too, but what it does in all such cases is not known here.
[[noreturn]] void throw_unsupported(std::string_view wanted, const Value& value) {
  throw InputError(fmt::format("expected {}, found a value of the kind {}", wanted,
                               value.is_discarded() ? "undefined" : value.type_name()));
}

const std::string& text_of(const Value& value) {
  if (!value.is_string()) throw_unsupported("a text", value);
  return value.get_ref<const std::string&>();
}

std::int64_t integer_of(const Value& value) {
  if (!value.is_number_integer()) throw_unsupported("an integer", value);
  const bool fits = !value.is_number_unsigned() ||
                    value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  CARAVAN_CHECK(fits, InputError, "a number is too large");
  return value.get<std::int64_t>();
}

/// Attributes that Python's texts, lists and maps have: methods, which are no values here.
bool is_method(std::string_view name) {
  constexpr std::array kNames = {"append",       "capitalize",
                                 "casefold",     "center",
                                 "clear",        "copy",
                                 "count",        "encode",
                                 "endswith",     "expandtabs",
                                 "extend",       "find",
                                 "format",       "format_map",
                                 "fromkeys",     "get",
                                 "index",        "insert",
                                 "isalnum",      "isalpha",
                                 "isascii",      "isdecimal",
                                 "isdigit",      "isidentifier",
                                 "islower",      "isnumeric",
                                 "isprintable",  "isspace",
                                 "istitle",      "isupper",
                                 "items",        "join",
                                 "keys",         "ljust",
                                 "lower",        "lstrip",
                                 "maketrans",    "partition",
                                 "pop",          "popitem",
                                 "remove",       "removeprefix",
                                 "removesuffix", "replace",
                                 "reverse",      "rfind",
                                 "rindex",       "rjust",
                                 "rpartition",   "rsplit",
                                 "rstrip",       "setdefault",
                                 "sort",         "split",
                                 "splitlines",   "startswith",
                                 "strip",        "swapcase",
                                 "title",        "translate",
                                 "update",       "upper",
                                 "values",       "zfill",
                                 "real",         "imag",
                                 "numerator",    "denominator",
                                 "bit_length",   "bit_count",
                                 "to_bytes",     "from_bytes",
                                 "conjugate",    "as_integer_ratio",
                                 "is_integer",   "hex",
                                 "fromhex"};
  return name.starts_with("__") || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

void refuse_method(std::string_view name) {
  CARAVAN_CHECK(!is_method(name), InputError, "the attribute \"{}\" is not supported", name);
}

/// As Python's ==: true is 1, and the order of a map does not count.
bool equal(const Value& left, const Value& right) {
  if (left.is_discarded() || right.is_discarded()) {
    return left.is_discarded() && right.is_discarded();
  }
  const auto is_numeric = [](const Value& value) {
    return value.is_number() || value.is_boolean();
  };
  if (is_numeric(left) && is_numeric(right)) {
    const auto number = [](const Value& value) {
      return value.is_boolean() ? Value(value.get<bool>() ? 1 : 0) : value;
    };
    return number(left) == number(right);
  }
  if (left.is_array() && right.is_array()) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), equal);
  }
  if (left.is_object() && right.is_object()) {
    return left.size() == right.size() &&
           std::all_of(left.items().begin(), left.items().end(), [&](const auto& entry) {
             const auto found = right.find(entry.key());
             return found != right.end() && equal(entry.value(), *found);
           });
  }
  return left == right;
}

/// What filters call an attribute. They take "a.b" for two of them.
Value attribute_by_name(const Value& entry, const Value& name) {
  CARAVAN_CHECK(text_of(name).find('.') == std::string::npos, InputError,
                "the attribute \"{}\" is not supported", text_of(name));
  return item_of(entry, name);
}

std::string without_letters(std::string_view text, std::string_view drop, Ends ends) {
  CARAVAN_CHECK(std::all_of(drop.begin(), drop.end(), [](char c) { return c >= 0; }), InputError,
                "stripping letters outside ASCII is not supported");
  if (ends != Ends::kLast) text.remove_prefix(std::min(text.find_first_not_of(drop), text.size()));
  if (ends != Ends::kFirst) text = text.substr(0, text.find_last_not_of(drop) + 1);
  return std::string(text);
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  if (from.empty()) throw InputError("replacing an empty text is not supported");
  std::string result;
  std::size_t at = 0;
  const auto check_size = [&] {
    CARAVAN_CHECK(result.size() <= kMaxTextBytes, InputError, "a text of more than {} bytes",
                  kMaxTextBytes);
  };
  for (std::size_t found = text.find(from); found != std::string::npos;
       found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    check_size();
    at = found + from.size();
  }
  return result.append(text, at);
}

Value split(const std::string& text, const Arguments& arguments) {
  CARAVAN_CHECK(arguments.size() == 1, InputError, "split() needs a separator here");
  const std::string& separator = text_of(arguments[0]);
  CARAVAN_CHECK(!separator.empty(), InputError, "split() needs a separator here");
  Value parts = Value::array();
  std::size_t at = 0;
  for (std::size_t found = text.find(separator); found != std::string::npos;
       found = text.find(separator, at)) {
    parts.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  parts.push_back(text.substr(at));
  return parts;
}

template <typename Change>
std::string with_letters(std::string text, const Change& change) {
  std::transform(text.begin(), text.end(), text.begin(), [&](unsigned char c) {
    CARAVAN_CHECK(c < 0x80, InputError, "case of letters outside ASCII is not supported");
    return static_cast<char>(change(c));
  });
  return text;
}

Value pairs_of(const Value& object) {
  if (!object.is_object()) throw_unsupported("a map", object);
  Value pairs = Value::array();
  for (const auto& [key, value] : object.items()) pairs.push_back(Value::array({key, value}));
  return pairs;
}

Value length_of(const Value& value) {
  if (value.is_discarded()) return 0;  // as an undefined value
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  }
  if (!value.is_structured()) throw_unsupported("something with a length", value);
  return value.size();
}

bool contains(const Value& container, const Value& value) {
  if (container.is_string()) {
    return container.get_ref<const std::string&>().find(text_of(value)) != std::string::npos;
  }
  if (container.is_object()) return container.contains(text_of(value));
  if (!container.is_array()) throw_unsupported("a text, map or list behind \"in\"", container);
  return std::any_of(container.begin(), container.end(),
                     [&](const Value& entry) { return equal(entry, value); });
}

// Keeps the items whose attribute (or self) passes the test that the arguments name.
Value selected(const Value& list, Arguments arguments, bool by_attribute, bool wanted) {
  if (!list.is_array()) throw_unsupported("a list", list);
  Value attribute;
  if (by_attribute) {
    CARAVAN_CHECK(!arguments.empty(), InputError, "an attribute is missing");
    attribute = arguments.front();
    arguments.erase(arguments.begin());
  }
  Value kept = Value::array();
  for (const Value& entry : list) {
    const Value value = by_attribute ? attribute_by_name(entry, attribute) : entry;
    bool passes = is_true(value);
    if (!arguments.empty()) {
      const std::string& test = text_of(arguments[0]);
      if (test == "equalto" || test == "==" || test == "eq") {
        CARAVAN_CHECK(arguments.size() == 2, InputError, "equalto needs a value");
        passes = equal(value, arguments[1]);
      } else {
        CARAVAN_CHECK(arguments.size() == 1, InputError, "the test \"{}\" has arguments", test);
        passes = tested(test, value);
      }
    }
    if (passes == wanted) kept.push_back(entry);
  }
  return kept;
}

Value list_of(const Value& value) {
  if (value.is_array()) return value;
  if (value.is_string()) {
    Value letters = Value::array();
    const std::string& text = text_of(value);
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at + 1;
      while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
      letters.push_back(text.substr(at, end - at));
      at = end;
    }
    return letters;
  }
  if (!value.is_object()) throw_unsupported("a list, text or map", value);
  Value keys = Value::array();
  for (const auto& [key, item] : value.items()) keys.push_back(key);
  return keys;
}

}  // namespace

Value undefined() { return Value(Value::value_t::discarded); }

bool is_true(const Value& value) {
  if (value.is_discarded() || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::string printed(const Value& value) {
  if (value.is_discarded()) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_integer()) return std::to_string(integer_of(value));
  throw InputError("printing a list, a map or a real number is not supported");
}

Value combined(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "~") return printed(left) + printed(right);
  if (op == "<" || op == ">" || op == "<=" || op == ">=") {
    const bool comparable =
        (left.is_number() && right.is_number()) || (left.is_string() && right.is_string());
    CARAVAN_CHECK(comparable, InputError,
                  "the operator \"{}\" is only supported between two numbers or two texts", op);
    if (op == "<") return left < right;
    if (op == ">") return left > right;
    return op == "<=" ? left <= right : left >= right;
  }
  if (op == "+" && left.is_string() && right.is_string()) return text_of(left) + text_of(right);
  if (op == "+" && left.is_array() && right.is_array()) {
    Value all = left;
    all.insert(all.end(), right.begin(), right.end());
    return all;
  }
  if (left.is_discarded() || right.is_discarded()) throw Refused{};
  const std::int64_t a = integer_of(left);
  const std::int64_t b = integer_of(right);
  std::int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if ((op == "%" || op == "//") && a >= 0 && b > 0) {
    result = op == "%" ? a % b : a / b;
  } else {
    throw InputError(fmt::format("the operator \"{}\" is not supported here", op));
  }
  CARAVAN_CHECK(!overflow, InputError, "a number is too large");
  return result;
}

Value filtered(const std::string& name, const Value& value, const Arguments& arguments,
               const NamedArguments& named) {
  CARAVAN_CHECK(named.empty() || name == "map", InputError,
                "the filter \"{}\" is not supported with {}=", name, named[0].first);
  if (name == "trim" && arguments.empty()) return std::string(trim(printed(value)));
  if (name == "length" || name == "count") return length_of(value);
  if (name == "string") return printed(value);
  if (name == "safe") return value;
  if (name == "upper" || name == "lower") return called(value, name, {});
  if (name == "replace") return called(value, name, arguments);
  if (name == "items") return pairs_of(value);
  if (name == "list") return list_of(value);
  if (name == "default" || name == "d") {
    const bool also_false = arguments.size() > 1 && is_true(arguments[1]);
    const bool missing = value.is_discarded() || (also_false && !is_true(value));
    return missing ? (arguments.empty() ? Value("") : arguments[0]) : value;
  }
  if (name == "first" || name == "last") {
    if (!value.is_array()) throw_unsupported("a list", value);
    if (value.empty()) return undefined();
    return name == "first" ? value.front() : value.back();
  }
  if (name == "reverse") return slice_of(value, nullptr, nullptr, -1);
  if (name == "join") {
    if (!value.is_array()) throw_unsupported("a list", value);
    CARAVAN_CHECK(arguments.size() <= 1, InputError, "join() of attributes is not supported");
    const std::string separator = arguments.empty() ? std::string() : text_of(arguments[0]);
    std::string text;
    for (std::size_t i = 0; i < value.size(); ++i) {
      text += (i == 0 ? std::string() : separator) + printed(value[i]);
      CARAVAN_CHECK(text.size() <= kMaxTextBytes, InputError, "a text of more than {} bytes",
                    kMaxTextBytes);
    }
    return text;
  }
  if (name == "map" && arguments.empty() && named.size() == 1 && named[0].first == "attribute") {
    if (!value.is_array()) throw_unsupported("a list", value);
    Value mapped = Value::array();
    for (const Value& entry : value) mapped.push_back(attribute_by_name(entry, named[0].second));
    return mapped;
  }
  if (name == "select" || name == "reject") {
    return selected(value, arguments, false, name == "select");
  }
  if (name == "selectattr" || name == "rejectattr") {
    return selected(value, arguments, true, name == "selectattr");
  }
  if (name == "tojson") {
    CARAVAN_CHECK(!value.is_structured() && !value.is_discarded() && !value.is_number_float(),
                  InputError, "tojson is supported for texts and integers only");
    return value.dump();
  }
  throw InputError(fmt::format("the filter \"{}\" is not supported", name));
}

bool tested(const std::string& name, const Value& value) {
  if (name == "defined") return !value.is_discarded();
  if (name == "undefined") return value.is_discarded();
  if (name == "none") return value.is_null();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_object();
  if (name == "iterable" || name == "sequence") {  // an undefined value is an empty sequence
    return value.is_structured() || value.is_string() || value.is_discarded();
  }
  if (name == "number") return value.is_number() || value.is_boolean();
  if (name == "boolean") return value.is_boolean();
  if (name == "true") return value == Value(true);
  if (name == "false") return value == Value(false);
  if (name == "odd") return integer_of(value) % 2 != 0;
  if (name == "even") return integer_of(value) % 2 == 0;
  throw InputError(fmt::format("the test \"{}\" is not supported", name));
}

Value called(const Value& object, const std::string& method, const Arguments& arguments) {
  if (method == "items") return pairs_of(object);
  if (method == "keys" && object.is_object()) return list_of(object);
  if (method == "get" && object.is_object() && !arguments.empty()) {
    const Value found = item_of(object, arguments[0]);
    if (!found.is_discarded()) return found;
    return arguments.size() > 1 ? arguments[1] : Value(nullptr);
  }
  const std::string& text = text_of(object);
  if (method == "strip" || method == "lstrip" || method == "rstrip") {
    const Ends ends = method == "strip"    ? Ends::kBoth
                      : method == "lstrip" ? Ends::kFirst
                                           : Ends::kLast;
    if (arguments.empty()) return std::string(trim(text, ends));
    return without_letters(text, text_of(arguments[0]), ends);
  }
  if (method == "split") return split(text, arguments);
  if (method == "startswith" && arguments.size() == 1)
    return text.starts_with(text_of(arguments[0]));
  if (method == "endswith" && arguments.size() == 1) return text.ends_with(text_of(arguments[0]));
  if (method == "replace" && arguments.size() == 2)
    return replaced(text, text_of(arguments[0]), text_of(arguments[1]));
  if (method == "upper") return with_letters(text, [](unsigned char c) { return std::toupper(c); });
  if (method == "lower") return with_letters(text, [](unsigned char c) { return std::tolower(c); });
  throw InputError(fmt::format("the method \"{}\" is not supported", method));
}

Value item_of(const Value& object, const Value& index) {
  if (object.is_discarded()) throw Refused{};
  if (object.is_object() && index.is_string()) {
    const auto found = object.find(text_of(index));
    if (found != object.end()) return *found;
  }
  if (object.is_array() && index.is_number_integer()) {
    const std::int64_t size = std::ssize(object);
    const std::int64_t wanted = index.get<std::int64_t>();
    const std::int64_t at = wanted < 0 ? wanted + size : wanted;
    return at >= 0 && at < size ? object[static_cast<std::size_t>(at)] : undefined();
  }
  if (object.is_string() && index.is_number_integer()) {
    throw InputError("letters of a text by number are not supported");
  }
  refuse_method(text_of(index));
  return undefined();
}

Value attribute_of(const Value& object, const std::string& name) {
  constexpr std::array kOfMaps = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                  "pop",   "popitem", "setdefault", "update", "values"};
  if (object.is_object() && std::find(kOfMaps.begin(), kOfMaps.end(), name) != kOfMaps.end()) {
    refuse_method(name);  // it hides an entry of that name
  }
  return item_of(object, name);
}

Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step) {
  const std::int64_t stride = step.is_null() ? 1 : integer_of(step);
  CARAVAN_CHECK(
      object.is_array() && (stride == 1 || (stride == -1 && begin.is_null() && end.is_null())),
      InputError, "such a slice is not supported");
  const std::int64_t size = std::ssize(object);
  const auto bound = [size](const Value& value, std::int64_t whole) {
    if (value.is_null()) return whole;
    const std::int64_t at = integer_of(value);
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  Value part = Value::array();
  for (std::int64_t i = bound(begin, 0); i < bound(end, size); ++i) {
    part.push_back(object[static_cast<std::size_t>(i)]);
  }
  if (stride == -1) std::reverse(part.begin(), part.end());
  return part;
}

}  // namespace caravan::text::jinja
