#include "loaded_model.h"

#include <fmt/format.h>

#include <cstddef>
#include <numeric>

#include "caravan/app/stop_signals.h"
#include "caravan/core/clock.h"
#include "collective.h"

namespace caravan::app {
namespace {

// All ranks agree on the outcome of loading, so that one alone may give it up.
void check_loading(parallel::Communicator& communicator) {
  if (communicator.alerted()) throw PeerFailed();
  if (stop_signal() == 0) return;
  throw Error(ExitCode::kTemporary,
              fmt::format("stopped by {} while loading the weights: nothing is lost; run the same "
                          "command again",
                          signal_name(stop_signal())));
}

}  // namespace

LoadedModel::LoadedModel(RankGroup& group, const checkpoint::ModelFile* leaders_file,
                         parallel::Communicator& communicator, const LoadOptions& options) {
  const Stopwatch watch;
  std::vector<std::byte> bytes;
  if (group.leads()) bytes = leaders_file->serialize();
  group.communicator().broadcast(bytes);
  model::DecoderLimits limits = broadcast_value(group.communicator(), options.limits);
  limits.num_threads = group.placement().threads;
  std::int64_t read = 0;
  agreed(group.communicator(), [&] {
    file_.emplace(checkpoint::ModelFile::deserialize(bytes));
    file_->set_verify(options.verify);
    decoder_.emplace(file_->description().config, *file_, group.context(), communicator, limits,
                     [&](std::int64_t) {
                       if (options.keep_alive) options.keep_alive();
                       check_loading(group.communicator());
                     });
    read = file_->bytes_read();
  });
  bytes_read_ = gather(group.communicator(), read);
  seconds_ = watch.seconds();
}

std::int64_t LoadedModel::total_bytes_read() const {
  return std::accumulate(bytes_read_.begin(), bytes_read_.end(), std::int64_t{0});
}

}  // namespace caravan::app
