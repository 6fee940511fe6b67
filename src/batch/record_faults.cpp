#include "record_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "caravan/core/error.h"

namespace caravan::batch {
namespace {

constexpr std::size_t kMostFaults = 20;  // a record may have a fault in each of a million places

}  // namespace

void refuse(std::string code, std::string message, std::string param, int status) {
  throw Refused{{status, std::move(code), std::move(message), std::move(param)}};
}

void append_fault(RecordFault& first, const RecordFault& next) {
  first.message += "; " + next.message;
}

void RecordFaults::add(RecordFault fault) {
  if (std::find(faults_.begin(), faults_.end(), fault) != faults_.end()) return;
  if (faults_.size() == kMostFaults) {
    ++num_left_out_;
  } else {
    faults_.push_back(std::move(fault));
  }
}

bool RecordFaults::concern(std::string_view param) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const RecordFault& fault) {
    return fault.param == param || (fault.param.starts_with(param) &&
                                    std::string_view(fault.param).substr(param.size(), 1) == ".");
  });
}

RecordFault RecordFaults::joined() const {
  CARAVAN_ASSERT(any(), "a record without faults is refused");
  RecordFault all = faults_.front();
  for (std::size_t i = 1; i < faults_.size(); ++i) append_fault(all, faults_[i]);
  if (num_left_out_ > 0) all.message += fmt::format("; and {} more faults", num_left_out_);
  return all;
}

}  // namespace caravan::batch
