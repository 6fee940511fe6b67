#include "caravan/app/stop_signals.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "caravan/core/error.h"

namespace caravan::app {
namespace {

// A handler has no other way to its state. Written by handlers and by the two functions below only.
volatile std::sig_atomic_t received_signal = 0;
volatile std::sig_atomic_t leader = 0;
volatile std::time_t received_second = 0;

constexpr std::array kStopSignals = {SIGUSR1, SIGTERM, SIGINT};

std::time_t now_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// Async-signal-safe calls only.
extern "C" void on_stop_signal(int signal) {
  const int saved = errno;
  if (received_signal != 0 && now_seconds() - received_second > 1) {
    _exit(static_cast<int>(ExitCode::kTemporary));
  }
  if (received_signal == 0) {
    received_second = now_seconds();
    received_signal = signal;
    if (leader != 0) kill(static_cast<pid_t>(leader), signal);
  }
  errno = saved;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  CARAVAN_CHECK(sigaction(signal, &action, nullptr) == 0, InternalError,
                "sigaction({}) failed with errno {}", signal, errno);
}

}  // namespace

void install_stop_signals() {
  for (const int signal : kStopSignals) set_handler(signal, on_stop_signal);
}

void report_write_limits_as_errors() {
  set_handler(SIGPIPE, SIG_IGN);
  set_handler(SIGXFSZ, SIG_IGN);
}

void forward_stop_signals(int leader_pid) { leader = leader_pid; }

int stop_signal() { return received_signal; }

const char* signal_name(int signal) {
  switch (signal) {
    case SIGUSR1: return "SIGUSR1";
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    default: return "a signal";
  }
}

}  // namespace caravan::app
