#pragma once
// Steps that all ranks of a group take together, and small values that they tell each other.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "caravan/app/commands.h"
#include "caravan/core/error.h"
#include "caravan/parallel/communicator.h"
#include "fault.h"

namespace caravan::app {

/// Runs `step` on this rank and then agrees with all others that nobody failed. Collective.
/// @throws AgreedError on every rank if any rank failed.
template <typename Step>
void agreed(parallel::Communicator& communicator, const Step& step) {
  Fault fault{ExitCode::kOk, {}};
  try {
    step();
  } catch (const PeerFailed&) {
    // No fault of this rank.
  } catch (...) {
    fault = current_fault();
    communicator.alert();
  }
  try {
    parallel::agree_or_throw(communicator, static_cast<int>(fault.code), fault.message);
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    while (communicator.alerted()) {
    }
    throw AgreedError(error.code(), error.what());
  }
}

/// Values of all ranks in rank order, on every rank. Collective.
template <typename Value>
std::vector<Value> gather(parallel::Communicator& communicator, const Value& value) {
  const auto bytes = communicator.all_gather(std::as_bytes(std::span(&value, 1)));
  std::vector<Value> values(static_cast<std::size_t>(communicator.size()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Value of rank 0 on every rank. Collective.
template <typename Value>
Value broadcast_value(parallel::Communicator& communicator, const Value& value) {
  std::vector<std::byte> bytes(sizeof(Value));
  std::memcpy(bytes.data(), &value, sizeof(Value));
  communicator.broadcast(bytes);
  Value received;
  std::memcpy(&received, bytes.data(), sizeof(Value));
  return received;
}

}  // namespace caravan::app
