#include <fmt/format.h>

#include <algorithm>

#include "caravan/app/commands.h"
#include "caravan/app/stop_signals.h"
#include "caravan/checkpoint/convert.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::app {
namespace {

using checkpoint::ConvertPhase;

// A line now and then, and the end where a signal asks for it: unwinding removes the file.
class Progress {
 public:
  /// @param interval_seconds  between lines; 0: none
  explicit Progress(double interval_seconds) : interval_seconds_(interval_seconds) {}

  void report(ConvertPhase phase, std::int64_t done_bytes, std::int64_t total_bytes) {
    CARAVAN_CHECK(stop_signal() == 0, Stopped,
                  "stopped by {}: nothing is left behind; run the same command again",
                  signal_name(stop_signal()));
    if (done_bytes == 0) {  // another phase
      watch_ = Stopwatch();
      next_line_ = std::min(interval_seconds_, kSecondsToFirstLine);
      return;
    }
    const double seconds = watch_.seconds();
    if (interval_seconds_ == 0 || seconds < next_line_) return;
    next_line_ = seconds + interval_seconds_;
    const auto done = static_cast<double>(done_bytes);
    const auto total = static_cast<double>(total_bytes);
    // Reading back has another speed, so that the time left is that of one step.
    log::info(
        "{}: {} of {}, {}/s, {} left of this step",
        phase == ConvertPhase::kWriting ? "step 1 of 2, converting" : "step 2 of 2, reading back",
        format_bytes(done), format_bytes(total), format_bytes(done / seconds),
        format_duration(seconds * (total - done) / done));
  }

 private:
  struct Stopped : Error {
    explicit Stopped(const std::string& message) : Error(ExitCode::kTemporary, message) {}
  };

  // Those who wait want to know early how long it takes.
  static constexpr double kSecondsToFirstLine = 5;

  double interval_seconds_;
  Stopwatch watch_;
  double next_line_ = 0;
};

}  // namespace

ExitCode convert_command(const ParsedOptions& parsed) {
  CARAVAN_CHECK(parsed.positional.size() == 2, UsageError,
                "convert needs SOURCE and MODEL.h5, found {} arguments (`caravan help convert`)",
                parsed.positional.size());
  install_stop_signals();
  checkpoint::ConvertOptions options;
  options.source = parsed.positional[0];
  options.target = parsed.positional[1];
  options.dtype = parsed.options.dtype;
  options.chat_format = parsed.options.chat_format;
  options.name = parsed.options.name;
  options.tokenizer = parsed.options.tokenizer;
  options.overwrite = parsed.options.overwrite;
  Progress progress(parsed.options.log_interval);
  options.progress = [&](ConvertPhase phase, std::int64_t done, std::int64_t total) {
    progress.report(phase, done, total);
  };
  log::info("converting {} to {}", options.source, options.target);
  const checkpoint::ConvertSummary summary = checkpoint::convert(options);
  log::info("wrote and verified {}: {} tensors, {} in {:.1f} s, content hash {}", options.target,
            summary.tensors, format_bytes(static_cast<double>(summary.bytes)), summary.seconds,
            summary.content_hash);
  return ExitCode::kOk;
}

}  // namespace caravan::app
