#include "caravan/core/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace caravan::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarning: return spdlog::level::warn;
    case Level::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// spdlog's own registry is the one process-wide logger; this function only fetches it.
std::shared_ptr<spdlog::logger> logger() {
  auto found = spdlog::get("caravan");
  if (!found) {
    found = spdlog::stderr_logger_mt("caravan");
    found->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "%Y-%m-%dT%H:%M:%SZ [caravan] %v", spdlog::pattern_time_type::utc));
    found->flush_on(spdlog::level::debug);
  }
  return found;
}

std::string_view prefix(Level level) {
  switch (level) {
    case Level::kDebug: return "debug: ";
    case Level::kInfo: return "";
    case Level::kWarning: return "warning: ";
    case Level::kError: return "error: ";
  }
  return "";
}

std::string escape_control(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\n    ";  // continuation lines of our own messages, indented so that they cannot pass
                        // as log lines
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void configure(Level level, int rank, int num_ranks) {
  const auto log = logger();
  const Level effective = rank == 0 || level > Level::kWarning ? level : Level::kWarning;
  log->set_level(to_spdlog(effective));
  if (rank != 0 && num_ranks > 1) {
    log->set_formatter(std::make_unique<spdlog::pattern_formatter>(
        fmt::format("%Y-%m-%dT%H:%M:%SZ [caravan rank {}] %v", rank),
        spdlog::pattern_time_type::utc));
  }
}

bool enabled(Level level) { return logger()->should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) {
  std::string line(prefix(level));
  line += escape_control(text);
  logger()->log(to_spdlog(level), "{}", line);
}

}  // namespace caravan::log
