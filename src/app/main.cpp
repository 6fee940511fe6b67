// The composition root: reads the command line, starts MPI where a subcommand needs it, and turns
// errors into messages and exit codes.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "caravan/app/commands.h"
#include "caravan/app/option_parser.h"
#include "caravan/app/prepared_run.h"
#include "caravan/app/stop_signals.h"
#include "caravan/app/version.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/parallel/mpi_environment.h"
#include "fault.h"

namespace caravan::app {
namespace {

std::optional<std::string> environment_value(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

int to_int(ExitCode code) { return static_cast<int>(code); }

// Runs `work`; what it throws becomes a message (of one rank of many) and a code.
template <typename Work>
int guarded(bool speaks, const Work& work) {
  try {
    return work();
  } catch (...) {
    const Fault fault = current_fault();
    if (speaks) report(fault.message);
    return to_int(fault.code);
  }
}

int run_on_all_ranks(int& argc, char**& argv, Command command, const ParsedOptions& parsed) {
  parallel::MpiEnvironment mpi(argc, argv);
  log::configure(parsed.options.log_level, mpi.world_rank(), mpi.world_size());
  install_stop_signals();  // once more: MPI has handlers of its own
  report_write_limits_as_errors();
  // Ranks that were not connected are all the first of their own world: one speaks for them.
  const int rank = mpi.world_size() > 1 ? mpi.world_rank() : launcher_rank(environment_value);
  return guarded(rank == 0, [&] {
    const auto work = command == Command::kBench ? bench_command : run_command;
    return to_int(work(parsed, mpi, environment_value));
  });
}

int run_alone(Command command, const ParsedOptions& parsed) {
  log::configure(parsed.options.log_level, 0, 1);
  switch (command) {
    case Command::kConvert: return to_int(convert_command(parsed));
    case Command::kInspect: return to_int(inspect_command(parsed));
    case Command::kVerify: return to_int(verify_command(parsed));
    case Command::kPlan: return to_int(plan_command(parsed, environment_value));
    case Command::kTokenize: return to_int(tokenize_command(parsed));
    case Command::kRun:
    case Command::kBench: break;
  }
  throw InternalError("this subcommand needs all ranks");
}

std::optional<Command> find_command(const std::string& name) {
  for (const Command command : kAllCommands) {
    if (name == command_name(command)) return command;
  }
  return std::nullopt;
}

Command require_command(const std::string& name) {
  if (const auto command = find_command(name)) return *command;
  std::vector<std::string> names = {"help"};
  for (const Command command : kAllCommands) names.emplace_back(command_name(command));
  const std::string nearest = nearest_name(name, names);
  throw UsageError(fmt::format("unknown subcommand \"{}\"{}; `caravan --help` lists all", name,
                               nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest)));
}

bool is_help(const std::string& argument) { return argument == "--help" || argument == "-h"; }

// Texts that need nothing else. Empty when the arguments ask for work.
std::optional<std::string> information(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  const std::string& first = arguments.front();
  if (first == "--version" || first == "version") return version_block();
  if (is_help(first)) return general_help();
  if (first == "help") {
    return arguments.size() == 1 ? general_help() : command_help(require_command(arguments[1]));
  }
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (is_help(argument)) return command_help(require_command(first));
  }
  return std::nullopt;
}

int dispatch(int& argc, char**& argv) {
  open_standard_descriptors();
  report_write_limits_as_errors();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto named = arguments.empty() ? std::nullopt : find_command(arguments.front());
  const bool runs = named && runs_on_all_ranks(*named);
  if (runs) install_stop_signals();  // one that comes while MPI starts stops the run as any other
  const std::optional<int> surplus = runs ? std::nullopt : surplus_rank(environment_value);
  const bool first_rank = runs ? launcher_rank(environment_value) == 0 : !surplus;
  ParsedOptions parsed;
  Command command{};
  bool done = false;
  const int code = guarded(first_rank, [&] {
    if (const auto text = information(arguments)) {
      done = true;
      if (first_rank) print_result(*text);
      return to_int(ExitCode::kOk);
    }
    CARAVAN_CHECK(!arguments.empty(), UsageError,
                  "a subcommand is missing; `caravan --help` lists all");
    command = require_command(arguments.front());
    parsed = parse_options(command, {arguments.begin() + 1, arguments.end()}, environment_value,
                           environment_names());
    if (parsed.options.print_config) {
      done = true;
      if (first_rank) print_result(print_config(command, parsed.options));
      return to_int(ExitCode::kOk);
    }
    if (command == Command::kRun || command == Command::kPlan || command == Command::kBench) {
      CARAVAN_CHECK(parsed.positional.empty(), UsageError, "unexpected argument \"{}\"; {}",
                    parsed.positional.front(),
                    command == Command::kBench ? "bench needs --model alone"
                                               : "prompts are named with --input or --prompt");
      check_options(command, parsed.options);
    }
    return to_int(ExitCode::kOk);
  });
  if (done || code != 0) return code;
  if (runs_on_all_ranks(command)) {
    return guarded(first_rank, [&] { return run_on_all_ranks(argc, argv, command, parsed); });
  }
  if (surplus) {
    std::fputs(fmt::format("caravan: {} needs one process: rank 0 does it, rank {} has nothing to "
                           "do\n",
                           command_name(command), *surplus)
                   .c_str(),
               stderr);
    return 0;
  }
  return guarded(true, [&] { return run_alone(command, parsed); });
}

}  // namespace
}  // namespace caravan::app

int main(int argc, char** argv) { return caravan::app::dispatch(argc, argv); }
