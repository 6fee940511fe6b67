#include <fmt/format.h>

#include "caravan/app/commands.h"
#include "caravan/app/stop_signals.h"
#include "caravan/checkpoint/convert.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::app {
namespace {

using checkpoint::ConvertPhase;

// A line every few seconds, and the end where a signal asks for it: unwinding removes the file.
class Progress {
 public:
  void report(ConvertPhase phase, std::int64_t done_bytes, std::int64_t total_bytes) {
    CARAVAN_CHECK(stop_signal() == 0, Stopped,
                  "stopped by {}: nothing is left behind; run the same command again",
                  signal_name(stop_signal()));
    if (done_bytes == 0) {  // another phase
      watch_ = Stopwatch();
      last_line_ = 0;
      return;
    }
    const double seconds = watch_.seconds();
    if (seconds - last_line_ < kSecondsBetweenLines) return;
    last_line_ = seconds;
    const auto done = static_cast<double>(done_bytes);
    const auto total = static_cast<double>(total_bytes);
    log::info("{}: {} of {}, {}/s, {} left",
              phase == ConvertPhase::kWriting ? "converting" : "reading back", format_bytes(done),
              format_bytes(total), format_bytes(done / seconds),
              format_duration(seconds * (total - done) / done));
  }

 private:
  static constexpr double kSecondsBetweenLines = 5;

  struct Stopped : Error {
    explicit Stopped(const std::string& message) : Error(ExitCode::kTemporary, message) {}
  };

  Stopwatch watch_;
  double last_line_ = 0;
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
  options.overwrite = parsed.options.overwrite;
  Progress progress;
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
