#pragma once
// SIGUSR1, SIGTERM and SIGINT ask for a stop at the next step; a second one (more than a second
// later, because launchers may deliver one twice) ends the process at once with exit code 75.

namespace caravan::app {

/// Installs the handlers; ignores SIGPIPE and SIGXFSZ, whose calls then fail with an error that is
/// reported.
void install_stop_signals();

/// A closed pipe and a file size limit become errors of the write call, with a message and an exit
/// code, instead of ending the process silently.
void report_write_limits_as_errors();

/// A rank that is not the leader passes signals on to it (same node only: launchers signal all
/// ranks, this covers a user who signals one). @param leader_pid  0: nobody.
void forward_stop_signals(int leader_pid);

/// The signal that asked for a stop, or 0.
int stop_signal();

/// "SIGTERM" and the like.
const char* signal_name(int signal);

}  // namespace caravan::app
