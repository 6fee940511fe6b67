#pragma once
// All faults of one record, so that a user sees them at once and not one after each correction.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/batch/record.h"

namespace caravan::batch {

/// Thrown inside the parser where the rest of a part cannot be judged.
struct Refused {
  RecordFault fault;
};

[[noreturn]] void refuse(std::string code, std::string message, std::string param,
                         int status = 400);

class RecordFaults {
 public:
  /// Notes a fault, once.
  void add(RecordFault fault);

  /// Runs `step`; a refusal is noted.
  template <typename Step>
  void attempt(const Step& step) {
    try {
      step();
    } catch (const Refused& refused) {
      add(refused.fault);
    }
  }

  bool any() const { return !faults_.empty() || num_left_out_ > 0; }
  /// Whether a fault is of this field or of a part of it.
  bool concern(std::string_view param) const;

  /// All as one: the first, with the messages of all. @pre any().
  RecordFault joined() const;

 private:
  std::vector<RecordFault> faults_;
  std::size_t num_left_out_ = 0;
};

}  // namespace caravan::batch
