#pragma once
// Error types of the whole program and the checks that throw them.
//
// Every type maps to one exit code, which `main` returns. Catch them in `main`, or where a caller
// truly does something else. Leaves out: logging, and agreement of several ranks on one code
// (parallel/).

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace caravan {

/// Exit codes of the program (sysexits names; README, section "Exit codes").
enum class ExitCode : int {
  kOk = 0,
  kRecordErrors = 3,   // with --fail-on-error: answered, but some records carry an error
  kUsage = 64,         // unknown option, contradictory options
  kBadInput = 65,      // the prompt file or a source checkpoint has faults
  kMissingInput = 66,  // a file that was named does not exist or cannot be read
  kUnavailable = 69,   // no usable device, MPI or NCCL set-up failed
  kInternal = 70,      // a fault of the program itself
  kCannotCreate = 73,  // an output cannot be created
  kIo = 74,            // disk full, quota, read or write error
  kTemporary = 75,     // stopped early, state is saved: run the same command again
  kConfig = 78,        // bad configuration or checkpoint
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Declares one error type with its exit code.
#define CARAVAN_DECLARE_ERROR(Name, code)                               \
  class Name : public Error {                                           \
   public:                                                              \
    explicit Name(const std::string& message) : Error(code, message) {} \
  }

CARAVAN_DECLARE_ERROR(UsageError, ExitCode::kUsage);
CARAVAN_DECLARE_ERROR(InputError, ExitCode::kBadInput);
CARAVAN_DECLARE_ERROR(MissingInputError, ExitCode::kMissingInput);
CARAVAN_DECLARE_ERROR(DeviceError, ExitCode::kUnavailable);
CARAVAN_DECLARE_ERROR(CommError, ExitCode::kUnavailable);
CARAVAN_DECLARE_ERROR(InternalError, ExitCode::kInternal);
CARAVAN_DECLARE_ERROR(CannotCreateError, ExitCode::kCannotCreate);
CARAVAN_DECLARE_ERROR(IoError, ExitCode::kIo);
CARAVAN_DECLARE_ERROR(ConfigError, ExitCode::kConfig);

#undef CARAVAN_DECLARE_ERROR

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& message);

}  // namespace caravan

/// Throws `ErrorType` with a formatted message unless `condition` holds. For faults of input, files
/// and libraries.
#define CARAVAN_CHECK(condition, ErrorType, ...)   \
  do {                                             \
    if (!(condition)) [[unlikely]] {               \
      throw ErrorType(::fmt::format(__VA_ARGS__)); \
    }                                              \
  } while (false)

/// Throws InternalError with file and line unless `condition` holds. For our own invariants, in all
/// builds.
#define CARAVAN_ASSERT(condition, ...)                                                             \
  do {                                                                                             \
    if (!(condition)) [[unlikely]] {                                                               \
      ::caravan::throw_internal_error(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                              \
  } while (false)

/// As CARAVAN_ASSERT, in debug builds only: for inner loops.
#ifdef NDEBUG
#define CARAVAN_DEBUG_ASSERT(condition, ...) \
  do {                                       \
  } while (false)
#else
#define CARAVAN_DEBUG_ASSERT(condition, ...) CARAVAN_ASSERT(condition, __VA_ARGS__)
#endif
