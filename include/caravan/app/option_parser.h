#pragma once
// Values of options from the command line, the environment and a configuration file, in this order
// of precedence; help texts and the configuration file that describes a run.

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caravan/app/option_table.h"

namespace caravan::app {

/// Value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

struct ParsedOptions {
  JobOptions options;
  std::vector<std::string> positional;
};

/// @param arguments  after the subcommand. @param variables  names of all that `environment` has:
/// those that begin with CARAVAN_ must be known.
/// @throws UsageError naming the option, where it was given, what was expected and what was found;
/// unknown names suggest the nearest; MissingInputError if the configuration file cannot be read.
ParsedOptions parse_options(Command command, const std::vector<std::string>& arguments,
                            const Environment& environment,
                            const std::vector<std::string>& variables = {});

/// "CARAVAN_MAX_TOKENS" of "max-tokens".
std::string environment_name(const std::string& option);

/// Values of a list so that no two lists look alike: a JSON array of strings.
std::string list_text(const std::vector<std::string>& values);

/// The effective configuration as a configuration file: reading it back gives the same options.
std::string print_config(Command command, const JobOptions& options);

/// Name and value of every configurable option of `command` that is set, for log and manifest.
std::vector<std::pair<std::string, std::string>> effective_options(Command command,
                                                                   const JobOptions& options);

/// Usage line, positional arguments and options by group.
std::string command_help(Command command);

/// All subcommands in one page.
std::string general_help();

}  // namespace caravan::app
