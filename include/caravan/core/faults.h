#pragma once
// Faults that do not depend on each other, found one after the other and thrown together, so that a
// user sees all of them at once.

#include <exception>
#include <string>
#include <vector>

#include "caravan/core/error.h"

namespace caravan {

class Faults {
 public:
  /// Runs `step` and keeps the Error that it throws. A stop (kTemporary) waits for no further
  /// faults and is thrown on.
  template <typename Step>
  void attempt(const Step& step) {
    try {
      step();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kTemporary) throw;
      if (messages_.empty()) {
        code_ = error.code();
        first_ = std::current_exception();
      }
      messages_.emplace_back(error.what());
    }
  }

  /// @throws the one Error that was kept, or an Error with the code of the first and the texts of
  /// all, one a line.
  void require_none() const {
    if (messages_.size() == 1) std::rethrow_exception(first_);
    if (!messages_.empty()) throw Error(code_, fmt::format("{}", fmt::join(messages_, "\n")));
  }

 private:
  ExitCode code_ = ExitCode::kOk;
  std::exception_ptr first_;
  std::vector<std::string> messages_;
};

}  // namespace caravan
