#include "caravan/batch/progress.h"

#include <fmt/format.h>

#include "caravan/core/clock.h"

namespace caravan::batch {

std::string short_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count < 10'000) return std::to_string(count);
  if (count < 100'000) return fmt::format("{:.1f}k", value / 1e3);
  if (count < 1'000'000) return fmt::format("{:.0f}k", value / 1e3);
  if (count < 100'000'000) return fmt::format("{:.2f}M", value / 1e6);
  return fmt::format("{:.2f}G", value / 1e9);
}

std::string progress_line(const ProgressFigures& figures, double recent_rate) {
  const double share = figures.total > 0 ? 100.0 * static_cast<double>(figures.done) /
                                               static_cast<double>(figures.total)
                                         : 100.0;
  const double average =
      figures.seconds > 0 ? static_cast<double>(figures.engine.generated_tokens) / figures.seconds
                          : 0;
  // Records that an earlier run finished say nothing about this one's speed.
  const double eta = figures.done_now > 0
                         ? figures.seconds / static_cast<double>(figures.done_now) *
                               static_cast<double>(figures.total - figures.done)
                         : -1;
  const std::string images =
      figures.engine.images_encoded > 0
          ? fmt::format("{} images encoded, ", short_count(figures.engine.images_encoded))
          : std::string();
  return fmt::format(
      "progress {}/{} req ({:.1f}%), running {}, {} tok in, {} tok out, {:.0f} tok/s (avg {:.0f}), "
      "{}kv {:.0f}%, eta {}",
      figures.done, figures.total, share, figures.engine.running,
      short_count(figures.engine.prompt_tokens), short_count(figures.engine.generated_tokens),
      recent_rate, average, images, 100 * figures.kv_share, format_duration(eta));
}

std::optional<std::string> Progress::tick(const ProgressFigures& figures) {
  if (!due(figures.seconds)) return std::nullopt;
  const double recent_rate = static_cast<double>(figures.engine.generated_tokens - last_tokens_) /
                             (figures.seconds - last_seconds_);
  last_seconds_ = figures.seconds;
  last_tokens_ = figures.engine.generated_tokens;
  return progress_line(figures, recent_rate);
}

}  // namespace caravan::batch
