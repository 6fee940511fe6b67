#pragma once
// Builders of option table entries, one for each kind of value: they bind a member of JobOptions to
// its text form.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "caravan/app/option_table.h"
#include "caravan/core/error.h"

namespace caravan::app {

using OptionValues = std::vector<std::string>;

/// What a user sees of an option.
struct Described {
  std::string name;
  std::string value_name;
  std::string help;
};

/// An entry without a member.
Option make_option(Described described, OptionKind kind);

Option text_option(Described described, std::string JobOptions::*member);
Option text_option(Described described, std::optional<std::string> JobOptions::*member);
Option list_option(Described described, std::vector<std::string> JobOptions::*member);
Option flag_option(Described described, bool JobOptions::*member);
/// Bytes with an optional binary unit ("8G", "512 MiB"), or "auto" for unset.
Option bytes_option(Described described, std::optional<std::int64_t> JobOptions::*member);
/// The same without "auto".
Option bytes_option(Described described, std::int64_t JobOptions::*member);

/// @throws UsageError unless `text` is a number in [low, high] and nothing else.
template <typename Number>
Number parse_number(const std::string& text, Number low, Number high) {
  Number number{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = fault == std::errc{} && end == text.data() + text.size();
  CARAVAN_CHECK(whole && number >= low && number <= high, UsageError,
                "expected {} between {} and {}, found \"{}\"",
                std::is_floating_point_v<Number> ? "a number" : "an integer", low, high, text);
  return number;
}

template <typename Number>
struct Limits {
  Number low;
  Number high;
};

template <typename Number>
Option number_option(Described described, Number JobOptions::*member, Limits<Number> limits) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member, limits](JobOptions& job, const std::string& text) {
    job.*member = parse_number<Number>(text, limits.low, limits.high);
  };
  option.get = [member](const JobOptions& job) {
    return OptionValues{fmt::format("{}", job.*member)};
  };
  return option;
}

// Unset until given; the word `unset_word` ("auto", or "" for none) unsets it again.
template <typename Number>
Option number_option(Described described, std::optional<Number> JobOptions::*member,
                     Limits<Number> limits, std::string unset_word = {}) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member, limits, unset_word](JobOptions& job, const std::string& text) {
    if (!unset_word.empty() && text == unset_word) {
      (job.*member).reset();
    } else {
      job.*member = parse_number<Number>(text, limits.low, limits.high);
    }
  };
  option.get = [member, unset_word](const JobOptions& job) {
    if (job.*member) return OptionValues{fmt::format("{}", *(job.*member))};
    return unset_word.empty() ? OptionValues{} : OptionValues{unset_word};
  };
  return option;
}

/// As number_option with "auto"; "off" is 0.
Option number_or_off_option(Described described, std::optional<std::int64_t> JobOptions::*member,
                            Limits<std::int64_t> limits);

template <typename Value>
using Names = std::vector<std::pair<std::string, Value>>;

template <typename Value>
Value named_value(const Names<Value>& names, const std::string& text) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (name == text) return value;
    known += known.empty() ? name : ", " + name;
  }
  throw UsageError(fmt::format("expected one of {}; found \"{}\"", known, text));
}

template <typename Value>
Option choice_option(Described described, Value JobOptions::*member, Names<Value> names) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member, names](JobOptions& job, const std::string& text) {
    job.*member = named_value(names, text);
  };
  option.get = [member, names](const JobOptions& job) {
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const auto& entry) { return entry.second == job.*member; });
    return found == names.end() ? OptionValues{} : OptionValues{found->first};
  };
  return option;
}

}  // namespace caravan::app
