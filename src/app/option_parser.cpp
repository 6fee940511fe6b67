#include "caravan/app/option_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/program_options.hpp>
#include <cctype>
#include <map>
#include <sstream>

#include "caravan/core/error.h"
#include "caravan/core/json_document.h"
#include "caravan/io/input_file.h"

namespace caravan::app {
namespace {

namespace po = boost::program_options;
using ValuesByName = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> names_of(const std::vector<Option>& table, Command command) {
  std::vector<std::string> names;
  for (const Option& option : table) {
    if (option.applies_to(command)) names.push_back(option.name);
  }
  return names;
}

std::string suggestion(const std::string& wrong, const std::vector<std::string>& names,
                       std::string_view dashes) {
  const std::string nearest = nearest_name(wrong, names);
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}{}?", dashes, nearest);
}

po::options_description describe(const std::vector<Option>& table, Command command) {
  po::options_description description;
  for (const Option& option : table) {
    if (!option.applies_to(command)) continue;
    description.add_options()(option.name.c_str(), po::value<std::string>(), "");
  }
  return description;
}

// A bare flag takes no value from the argument after it ("--ids 5"), so its value is spelt out
// first.
std::vector<std::string> with_flag_values(const std::vector<Option>& table,
                                          std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    const bool bare_flag = std::any_of(table.begin(), table.end(), [&](const Option& option) {
      return option.kind == OptionKind::kFlag && argument == "--" + option.name;
    });
    if (bare_flag) argument += "=true";
  }
  return arguments;
}

// A single dash never begins an option; what stands behind "--" is no option in any case.
void refuse_single_dashes(const std::vector<std::string>& positional,
                          const std::vector<std::string>& arguments, Command command) {
  const auto literal = std::find(arguments.begin(), arguments.end(), "--");
  const auto num_literal = literal == arguments.end() ? 0 : arguments.end() - literal - 1;
  for (auto text = positional.begin(); text != positional.end() - num_literal; ++text) {
    CARAVAN_CHECK(
        text->size() < 2 || text->front() != '-', UsageError,
        "unknown option {}: options begin with two dashes (`caravan help {}` lists all); a "
        "text that begins with a dash stands behind --",
        *text, command_name(command));
  }
}

// What is wrong with an option that `command` does not have.
std::string unknown_option_text(const std::vector<Option>& table, Command command,
                                std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  name = name.substr(0, name.find('='));
  std::vector<std::string_view> others;
  for (const Option& option : table) {
    if (option.name != name) continue;
    for (const Command other : option.commands) others.push_back(command_name(other));
  }
  if (!others.empty()) {
    return fmt::format("--{} is not an option of {}, but of {}", name, command_name(command),
                       fmt::join(others, ", "));
  }
  return fmt::format("unknown option --{}{} (`caravan help {}` lists all)", name,
                     suggestion(name, names_of(table, command), "--"), command_name(command));
}

ValuesByName from_command_line(const std::vector<Option>& table, Command command,
                               const std::vector<std::string>& arguments,
                               std::vector<std::string>& positional) {
  using Style = po::command_line_style::style_t;
  const po::options_description description = describe(table, command);
  const std::string subcommand(command_name(command));
  try {
    const auto parsed =
        po::command_line_parser(with_flag_values(table, arguments))
            .options(description)
            .style(Style::allow_long | Style::long_allow_adjacent | Style::long_allow_next)
            .run();
    ValuesByName values;
    for (const auto& option : parsed.options) {
      if (option.string_key.empty()) {
        positional.insert(positional.end(), option.value.begin(), option.value.end());
        continue;
      }
      values[option.string_key].push_back(option.value.empty() ? "" : option.value.front());
    }
    refuse_single_dashes(positional, arguments, command);
    return values;
  } catch (const po::unknown_option& unknown) {
    throw UsageError(unknown_option_text(table, command, unknown.get_option_name()));
  } catch (const po::error& error) {
    throw UsageError(fmt::format("{} (`caravan help {}`)", error.what(), subcommand));
  }
}

// A value in double quotes is a JSON string, so that any text can stand in a configuration file.
// `origin` names file and option.
std::string decode_config_value(const std::string& text, const std::string& origin) {
  if (!text.starts_with('"')) return text;
  Json decoded;
  try {
    decoded = parse_json(text, origin);
  } catch (const JsonFault&) {  // stays null, which is as wrong as a number
  }
  CARAVAN_CHECK(decoded.is_string(), UsageError,
                "{}: a value that begins with a double quote must be a JSON string (with \\u0023 "
                "for #, which begins a comment), found {}",
                origin, text);
  return decoded.get<std::string>();
}

std::string encode_config_value(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of("#\"\n\r\t\\") == std::string::npos &&
                     std::isspace(static_cast<unsigned char>(text.front())) == 0 &&
                     std::isspace(static_cast<unsigned char>(text.back())) == 0;
  if (plain) return text;
  std::string quoted = Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  for (auto hash = quoted.find('#'); hash != std::string::npos; hash = quoted.find('#', hash)) {
    quoted.replace(hash, 1, "\\u0023");  // the reader takes # as the start of a comment anywhere
  }
  return quoted;
}

ValuesByName from_config_file(const std::vector<Option>& table, Command command,
                              const std::string& path) {
  constexpr std::int64_t kMaxConfigBytes = 1 << 20;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::string text = io::read_text_file(path, kMaxConfigBytes);
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream file(text);
  std::vector<std::string> names;
  for (const Option& option : table) {
    const bool of_a_run = option.applies_to(Command::kRun) || option.applies_to(Command::kPlan);
    if (of_a_run && option.configurable == Configurable::kYes) names.push_back(option.name);
  }
  ValuesByName values;
  try {
    for (const auto& entry : po::parse_config_file(file, po::options_description(), true).options) {
      const std::string& name = entry.string_key;
      CARAVAN_CHECK(std::find(names.begin(), names.end(), name) != names.end(), UsageError,
                    "{}: unknown option {}{}", path, name, suggestion(name, names, ""));
      values[name].push_back(decode_config_value(entry.value.empty() ? "" : entry.value.front(),
                                                 fmt::format("{}: {}", path, name)));
    }
  } catch (const po::error& error) {
    throw UsageError(fmt::format("{}: {}", path, error.what()));
  }
  const auto applicable = names_of(table, command);
  std::erase_if(values, [&](const auto& entry) {  // options of `run` in a file given to `plan`
    return std::find(applicable.begin(), applicable.end(), entry.first) == applicable.end();
  });
  return values;
}

// Variables that are no options: of this project's scripts and tests, and names that environment
// modules give to every package.
constexpr std::array<std::string_view, 7> kOtherVariables = {
    "CARAVAN_MODELS_DIR", "CARAVAN_SKIP_SANITIZERS",
    "CARAVAN_BENCH_VENV", "CARAVAN_ROOT",
    "CARAVAN_HOME",       "CARAVAN_DIR",
    "CARAVAN_VERSION"};

void check_variables(const std::vector<Option>& table, const std::vector<std::string>& variables) {
  std::vector<std::string> known;
  for (const Option& option : table) {
    if (option.configurable == Configurable::kYes) known.push_back(environment_name(option.name));
  }
  for (const std::string& variable : variables) {
    if (!variable.starts_with("CARAVAN_")) continue;
    if (std::find(known.begin(), known.end(), variable) != known.end()) continue;
    if (std::find(kOtherVariables.begin(), kOtherVariables.end(), variable) !=
        kOtherVariables.end()) {
      continue;
    }
    for (const Option& option : table) {
      CARAVAN_CHECK(environment_name(option.name) != variable, UsageError,
                    "the environment variable {} has no effect: --{} can be given on the command "
                    "line only",
                    variable, option.name);
    }
    throw UsageError(fmt::format("the environment variable {} is not an option{}", variable,
                                 suggestion(variable, known, "")));
  }
}

void apply(const Option& option, const std::vector<std::string>& values, const std::string& origin,
           JobOptions& job) {
  CARAVAN_CHECK(values.size() == 1 || option.kind == OptionKind::kList, UsageError,
                "{} is given {} times", origin, values.size());
  for (const std::string& value : values) {
    try {
      option.set(job, value);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", origin, error.what()));
    }
  }
}

}  // namespace

std::string environment_name(const std::string& option) {
  std::string name = "CARAVAN_";
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

ParsedOptions parse_options(Command command, const std::vector<std::string>& arguments,
                            const Environment& environment,
                            const std::vector<std::string>& variables) {
  const std::vector<Option> table = option_table();
  check_variables(table, variables);
  ParsedOptions parsed;
  const ValuesByName given = from_command_line(table, command, arguments, parsed.positional);
  ValuesByName configured;
  if (const auto config = given.find("config"); config != given.end()) {
    configured = from_config_file(table, command, config->second.front());
  }
  for (const Option& option : table) {
    if (!option.applies_to(command)) continue;
    if (const auto found = given.find(option.name); found != given.end()) {
      apply(option, found->second, "--" + option.name, parsed.options);
      continue;
    }
    if (option.configurable == Configurable::kNo) continue;
    const std::string variable = environment_name(option.name);
    if (const auto value = environment(variable)) {
      apply(option, {*value}, variable, parsed.options);
    } else if (const auto set = configured.find(option.name); set != configured.end()) {
      apply(option, set->second, fmt::format("{}: {}", given.at("config").front(), option.name),
            parsed.options);
    }
  }
  return parsed;
}

std::string list_text(const std::vector<std::string>& values) {
  return Json(values).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string print_config(Command command, const JobOptions& options) {
  std::string out;
  std::string group;
  for (const Option& option : option_table()) {
    if (!option.applies_to(command) || option.configurable == Configurable::kNo) continue;
    if (option.group != group) {
      group = option.group;
      out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", group);
    }
    const auto values = option.get(options);
    if (values.empty()) out += fmt::format("# {} =\n", option.name);
    for (const std::string& value : values) {
      out += fmt::format("{} = {}\n", option.name, encode_config_value(value));
    }
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> effective_options(Command command,
                                                                   const JobOptions& options) {
  std::vector<std::pair<std::string, std::string>> effective;
  for (const Option& option : option_table()) {
    if (!option.applies_to(command) || option.configurable == Configurable::kNo) continue;
    const auto values = option.get(options);
    if (values.empty()) continue;
    effective.emplace_back(option.name,
                           option.kind == OptionKind::kList ? list_text(values) : values.front());
  }
  return effective;
}

}  // namespace caravan::app
