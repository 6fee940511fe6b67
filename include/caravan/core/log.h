#pragma once
// The program's log: lines on stderr, `2026-12-01T01:24:55Z [caravan] text`, one writer.
//
// Ranks other than 0 write warnings and above, with their rank. Leaves out: results (stdout,
// batch/), metrics.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace caravan::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// Sets what this process writes. Not thread-safe: call once, before the first line.
void configure(Level level, int rank, int num_ranks);

/// Whether a line of this level would be written (to skip costly formatting).
bool enabled(Level level);

/// `text` with control characters (C0, DEL and C1) as escapes, so that what a user wrote can move
/// no cursor. Lines after the first are indented, so that they cannot pass as log lines.
std::string escape_control(std::string_view text);

/// As escape_control, with line ends as escapes too: for text of a user inside a message.
std::string escape_line(std::string_view text);

/// Writes one line. Control characters in `text` are written as escapes, so that input cannot forge
/// lines.
void write(Level level, std::string_view text);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug))
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning))
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError))
    write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace caravan::log
