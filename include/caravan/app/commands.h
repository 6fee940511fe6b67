#pragma once
// The subcommands. Each returns the exit code; errors are thrown and reported by `main`.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/app/option_parser.h"
#include "caravan/core/error.h"
#include "caravan/parallel/mpi_environment.h"

namespace caravan::app {

ExitCode convert_command(const ParsedOptions& parsed);
ExitCode inspect_command(const ParsedOptions& parsed);
ExitCode verify_command(const ParsedOptions& parsed);
ExitCode plan_command(const ParsedOptions& parsed, const Environment& environment);
ExitCode tokenize_command(const ParsedOptions& parsed);

/// Collective over all ranks; all return the same code. A fault that every rank knows of is thrown
/// as AgreedError. Any other is reported by the rank that has it, which ends the job at once: peers
/// may wait for it. (One rank alone throws it.)
ExitCode run_command(const ParsedOptions& parsed, parallel::MpiEnvironment& mpi,
                     const Environment& environment);

/// Collective, with faults as run_command.
ExitCode bench_command(const ParsedOptions& parsed, parallel::MpiEnvironment& mpi,
                       const Environment& environment);

/// A fault that all ranks throw alike.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Rank that the launcher says this process has, known before MPI starts; 0 without a launcher, or
/// where it says nothing of other ranks (variables of a batch script that started us).
int launcher_rank(const Environment& environment);

/// The rank of a process that our own MPI launcher started beside rank 0, else nothing. Narrower
/// than launcher_rank: tasks of a job array or of srun may each convert a model of their own.
std::optional<int> surplus_rank(const Environment& environment);

/// Most memory that this process has held at a time (the kernel's VmHWM); 0 where it is not told.
std::int64_t peak_memory_bytes();

/// Memory that this process holds now and shares with no file or other process (the kernel's
/// RssAnon); 0 where it is not told.
std::int64_t private_memory_bytes();

/// Opens /dev/null where standard input, output or error is closed; else the next file or pipe that
/// is opened gets its number, and would be taken for it. To be called before anything is opened.
void open_standard_descriptors();

/// Writes to standard output and checks that it arrived.
/// @throws IoError.
void print_result(const std::string& text);

}  // namespace caravan::app
