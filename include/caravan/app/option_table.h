#pragma once
// One entry for each option: its name, member, unit, default, group and help text. Parsing, help,
// environment names, configuration files and --print-config all read this table.
//
// Leaves out: where values come from (option_parser.h).

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/app/job_options.h"

namespace caravan::app {

enum class Command { kConvert, kInspect, kVerify, kPlan, kRun, kBench, kTokenize };

std::string_view command_name(Command command);
inline constexpr Command kAllCommands[] = {Command::kConvert, Command::kInspect, Command::kVerify,
                                           Command::kPlan,    Command::kRun,     Command::kBench,
                                           Command::kTokenize};
/// Whether all ranks of a launch run it, rather than one process.
constexpr bool runs_on_all_ranks(Command command) {
  return command == Command::kRun || command == Command::kBench;
}

enum class OptionKind { kValue, kList, kFlag };
enum class Configurable { kYes, kNo };  // may stand in a configuration file and the environment

struct Option {
  std::string name;
  OptionKind kind = OptionKind::kValue;
  std::string group;
  std::string value_name;  // shown in help: "N", "FILE"
  std::string help;
  std::vector<Command> commands;
  Configurable configurable = Configurable::kYes;
  /// Sets the member from text (lists: adds).
  /// @throws UsageError saying what was expected and found; the caller adds where it came from.
  std::function<void(JobOptions&, const std::string&)> set;
  /// Current value as text: none where it is unset, several for lists.
  std::function<std::vector<std::string>(const JobOptions&)> get;

  bool applies_to(Command command) const;
};

std::vector<Option> option_table();

/// The name in `names` that is nearest to `wrong`, or "" when none is near.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names);

}  // namespace caravan::app
