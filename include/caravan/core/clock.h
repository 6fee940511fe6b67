#pragma once
// Monotonic seconds, for durations and deadlines, and the wall clock as text.

#include <chrono>
#include <string>

namespace caravan {

/// Seconds of the monotonic clock; only differences mean anything.
inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Stopwatch that starts when it is made.
class Stopwatch {
 public:
  double seconds() const { return monotonic_seconds() - start_; }

 private:
  double start_ = monotonic_seconds();
};

/// Now in UTC, "2026-12-01T01:24:55Z".
std::string utc_timestamp();

/// Seconds as "HH:MM:SS" (hours may exceed 99).
std::string format_duration(double seconds);

/// Bytes with a binary unit and three digits: "512 B", "1.50 GiB".
std::string format_bytes(double bytes);

}  // namespace caravan
