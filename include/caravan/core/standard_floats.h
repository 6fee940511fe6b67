#pragma once
// Floating-point arithmetic as IEEE 754 has it, whatever a library did to the thread: code built
// with -ffast-math makes the threads that load it flush subnormal numbers to zero, and results must
// not depend on who was loaded.

#include <immintrin.h>

namespace caravan {

/// While it lives, this thread rounds to nearest and keeps subnormal operands and results. Costs
/// nanoseconds. Threads that are started meanwhile inherit it.
class StandardFloats {
 public:
  StandardFloats() : before_(_mm_getcsr()) {
    if ((before_ & ~kRaised) != kStandard) _mm_setcsr(kStandard);
  }
  ~StandardFloats() {
    if ((before_ & ~kRaised) != kStandard) _mm_setcsr(before_);
  }
  StandardFloats(const StandardFloats&) = delete;
  StandardFloats& operator=(const StandardFloats&) = delete;

 private:
  static constexpr unsigned kRaised = 0x3F;      // exceptions that happened: no setting
  static constexpr unsigned kStandard = 0x1F80;  // all exceptions masked, nothing else set

  unsigned before_;
};

}  // namespace caravan
