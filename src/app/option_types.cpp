#include "option_types.h"

#include <cmath>

namespace caravan::app {
namespace {

bool parse_flag(const std::string& text) {
  if (text == "true" || text == "1" || text == "yes" || text == "on") return true;
  if (text == "false" || text == "0" || text == "no" || text == "off") return false;
  throw UsageError(fmt::format("expected true or false, found \"{}\"", text));
}

// Bytes with an optional binary unit: "8G", "512 MiB", "1000000".
std::int64_t parse_bytes(const std::string& text) {
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  std::erase(unit, ' ');
  double factor = 0;
  if (unit.empty() || unit == "B") factor = 1;
  for (const auto& [letter, power] : {std::pair{'K', 1}, {'M', 2}, {'G', 3}, {'T', 4}}) {
    const std::string name(1, letter);
    if (unit == name || unit == name + "iB" || unit == name + "B") factor = std::pow(1024.0, power);
  }
  CARAVAN_CHECK(
      fault == std::errc{} && factor > 0 && number * factor >= 1 && number * factor < 9e15,
      UsageError, "expected bytes such as 500M, 8G or 16 GiB, found \"{}\"", text);
  return static_cast<std::int64_t>(number * factor);
}

}  // namespace

Option make_option(Described described, OptionKind kind) {
  Option option;
  option.name = std::move(described.name);
  option.value_name = std::move(described.value_name);
  option.help = std::move(described.help);
  option.kind = kind;
  return option;
}

Option text_option(Described described, std::string JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member](JobOptions& job, const std::string& text) { job.*member = text; };
  option.get = [member](const JobOptions& job) {
    return (job.*member).empty() ? OptionValues{} : OptionValues{job.*member};
  };
  return option;
}

Option text_option(Described described, std::optional<std::string> JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member](JobOptions& job, const std::string& text) { job.*member = text; };
  option.get = [member](const JobOptions& job) {
    return job.*member ? OptionValues{*(job.*member)} : OptionValues{};
  };
  return option;
}

Option list_option(Described described, std::vector<std::string> JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kList);
  option.set = [member](JobOptions& job, const std::string& text) {
    (job.*member).push_back(text);
  };
  option.get = [member](const JobOptions& job) { return job.*member; };
  return option;
}

Option flag_option(Described described, bool JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kFlag);
  option.set = [member](JobOptions& job, const std::string& text) {
    job.*member = parse_flag(text);
  };
  option.get = [member](const JobOptions& job) {
    return OptionValues{job.*member ? "true" : "false"};
  };
  return option;
}

Option number_or_off_option(Described described, std::optional<std::int64_t> JobOptions::*member,
                            Limits<std::int64_t> limits) {
  Option option = number_option<std::int64_t>(std::move(described), member, limits, "auto");
  option.set = [member, set_number = option.set](JobOptions& job, const std::string& text) {
    if (text == "off") {
      job.*member = 0;
    } else {
      set_number(job, text);
    }
  };
  option.get = [member, get_number = option.get](const JobOptions& job) {
    return job.*member == 0 ? OptionValues{"off"} : get_number(job);
  };
  return option;
}

Option bytes_option(Described described, std::optional<std::int64_t> JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member](JobOptions& job, const std::string& text) {
    if (text == "auto") {
      (job.*member).reset();
    } else {
      job.*member = parse_bytes(text);
    }
  };
  option.get = [member](const JobOptions& job) {
    return OptionValues{job.*member ? std::to_string(*(job.*member)) : "auto"};
  };
  return option;
}

Option bytes_option(Described described, std::int64_t JobOptions::*member) {
  Option option = make_option(std::move(described), OptionKind::kValue);
  option.set = [member](JobOptions& job, const std::string& text) {
    job.*member = parse_bytes(text);
  };
  option.get = [member](const JobOptions& job) {
    return OptionValues{std::to_string(job.*member)};
  };
  return option;
}

}  // namespace caravan::app
