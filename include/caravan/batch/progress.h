#pragma once
// One log line per interval about a running job, and the figures behind it.

#include <cstdint>
#include <optional>
#include <string>

#include "caravan/engine/engine.h"

namespace caravan::batch {

struct ProgressFigures {
  double seconds = 0;         // since work began
  std::int64_t done = 0;      // records, kept ones of an earlier run included
  std::int64_t done_now = 0;  // records of this run
  std::int64_t total = 0;
  double kv_share = 0;  // of the blocks in use
  engine::EngineStatistics engine;
};

/// "progress 1234/50000 req (2.5%), running 64, 18.2k tok in, 951k tok out, 3120 tok/s (avg 3055),
/// kv 71%, eta 03:12:40". @param recent_rate  generated tokens per second lately.
std::string progress_line(const ProgressFigures& figures, double recent_rate);

/// "951", "18.2k", "3.05M".
std::string short_count(std::int64_t count);

/// Says when a line is due and keeps what the recent rate needs.
class Progress {
 public:
  /// @param interval_seconds  0: never.
  explicit Progress(double interval_seconds) : interval_seconds_(interval_seconds) {}

  /// The line if it is due.
  std::optional<std::string> tick(const ProgressFigures& figures);
  bool due(double seconds) const {
    return interval_seconds_ > 0 && seconds - last_seconds_ >= interval_seconds_;
  }

 private:
  double interval_seconds_;
  double last_seconds_ = 0;
  std::int64_t last_tokens_ = 0;
};

}  // namespace caravan::batch
