#include "fault.h"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "caravan/core/log.h"

namespace caravan::app {

Fault current_fault() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kConfig, "out of memory: use more nodes, or fewer ranks on each"};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, fmt::format("unexpected: {}", error.what())};
  } catch (...) {
    return {ExitCode::kInternal, "unexpected: an exception of unknown type"};
  }
}

void report(const std::string& message) {
  const std::string text = fmt::format("caravan: error: {}\n", log::escape_control(message));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace caravan::app
