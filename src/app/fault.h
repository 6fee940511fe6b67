#pragma once
// Exceptions as the user meets them: an exit code and a message.

#include <string>

#include "caravan/core/error.h"

namespace caravan::app {

struct Fault {
  ExitCode code;
  std::string message;
};

/// Of the exception that is being handled.
Fault current_fault();

/// Writes the message to standard error: the last resort, because the log may not be set up yet.
void report(const std::string& message);

}  // namespace caravan::app
