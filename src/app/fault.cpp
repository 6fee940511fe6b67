#include "fault.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "caravan/core/log.h"

namespace caravan::app {
namespace {

// A handler has no other way to its state. Written by TerminationReport only.
const TerminationReport* report_of_process = nullptr;

}  // namespace

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

TerminationReport::TerminationReport(std::function<std::string()> whereabouts,
                                     std::function<void(int)> end)
    : whereabouts_(std::move(whereabouts)),
      end_(std::move(end)),
      before_(std::set_terminate(on_terminate)) {
  report_of_process = this;
}

TerminationReport::~TerminationReport() { std::set_terminate(before_); }

void TerminationReport::on_terminate() {
  if (std::current_exception() == nullptr) std::abort();
  report_of_process->tell_and_end();
}

void TerminationReport::tell_and_end() const {
  auto code = static_cast<int>(ExitCode::kConfig);
  try {
    const Fault fault = current_fault();
    code = static_cast<int>(fault.code);
    report(fmt::format("{}: {}", whereabouts_(), fault.message));
  } catch (...) {
    std::fputs("caravan: error: out of memory, also for saying where\n", stderr);
  }
  end_(code);
  std::_Exit(code);
}

}  // namespace caravan::app
