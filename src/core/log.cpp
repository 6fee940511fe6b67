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

// UTF-8 of U+0080 to U+009F, which terminals obey as they obey the escape character.
bool is_c1_control(std::string_view text) {
  return text.size() >= 2 && text[0] == '\xc2' && static_cast<unsigned char>(text[1]) >= 0x80 &&
         static_cast<unsigned char>(text[1]) < 0xa0;
}

std::string escaped(std::string_view text, std::string_view line_end) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '\n') {
      out += line_end;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (is_c1_control(text.substr(i))) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++i]));
    } else {
      out += text[i];
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

std::string escape_control(std::string_view text) { return escaped(text, "\n    "); }

std::string escape_line(std::string_view text) { return escaped(text, "\\n"); }

bool enabled(Level level) { return logger()->should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) {
  std::string line(prefix(level));
  line += escape_control(text);
  logger()->log(to_spdlog(level), "{}", line);
}

}  // namespace caravan::log
