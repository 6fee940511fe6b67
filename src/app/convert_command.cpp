#include <fmt/format.h>

#include "caravan/app/commands.h"
#include "caravan/checkpoint/convert.h"
#include "caravan/core/clock.h"
#include "caravan/core/log.h"

namespace caravan::app {

ExitCode convert_command(const ParsedOptions& parsed) {
  CARAVAN_CHECK(parsed.positional.size() == 2, UsageError,
                "convert needs SOURCE and MODEL.h5, found {} arguments (`caravan help convert`)",
                parsed.positional.size());
  constexpr double kSecondsBetweenLines = 5;
  checkpoint::ConvertOptions options;
  options.source = parsed.positional[0];
  options.target = parsed.positional[1];
  options.dtype = parsed.options.dtype;
  options.chat_format = parsed.options.chat_format;
  options.name = parsed.options.name;
  options.overwrite = parsed.options.overwrite;
  double last_line = 0;
  const Stopwatch watch;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (watch.seconds() - last_line < kSecondsBetweenLines) return;
    last_line = watch.seconds();
    const double seconds_left =
        watch.seconds() * static_cast<double>(total - done) / static_cast<double>(done);
    log::info("converting: {} of {}, {}/s, {} left", format_bytes(static_cast<double>(done)),
              format_bytes(static_cast<double>(total)),
              format_bytes(static_cast<double>(done) / watch.seconds()),
              format_duration(seconds_left));
  };
  log::info("converting {} to {}", options.source, options.target);
  const checkpoint::ConvertSummary summary = checkpoint::convert(options);
  log::info("wrote and verified {}: {} tensors, {} in {:.1f} s, content hash {}", options.target,
            summary.tensors, format_bytes(static_cast<double>(summary.bytes)), summary.seconds,
            summary.content_hash);
  return ExitCode::kOk;
}

}  // namespace caravan::app
