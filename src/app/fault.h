#pragma once
// Exceptions as the user meets them: an exit code and a message.

#include <exception>
#include <functional>
#include <string>

#include "caravan/core/error.h"

namespace caravan::app {

struct Fault {
  ExitCode code;
  std::string message;
};

/// Thrown in a step by a rank that leaves it unfinished because another one has failed: that one
/// brings the reason.
class PeerFailed : public Error {
 public:
  PeerFailed() : Error(ExitCode::kInternal, "another rank has failed") {}
};

/// Of the exception that is being handled.
Fault current_fault();

/// Writes the message to standard error: the last resort, because the log may not be set up yet.
void report(const std::string& message);

/// As long as it lives, an exception that nobody can catch (of a thread, or out of a destructor, as
/// where memory is short) is reported as any other and ends the job. One at a time.
class TerminationReport {
 public:
  /// @param whereabouts  of this rank. @param end  ends all ranks with an exit code.
  TerminationReport(std::function<std::string()> whereabouts, std::function<void(int)> end);
  ~TerminationReport();
  TerminationReport(const TerminationReport&) = delete;
  TerminationReport& operator=(const TerminationReport&) = delete;

 private:
  [[noreturn]] void tell_and_end() const;
  [[noreturn]] static void on_terminate();

  std::function<std::string()> whereabouts_;
  std::function<void(int)> end_;
  std::terminate_handler before_;
};

}  // namespace caravan::app
