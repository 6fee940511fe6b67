#pragma once
// The model of a group as each rank holds it: header from the leader, weights from the file.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/model/decoder.h"
#include "rank_group.h"

namespace caravan::app {

struct LoadOptions {
  model::DecoderLimits limits;  // the same on every rank, threads apart
  bool verify = true;
  std::function<void()> keep_alive;  // called now and then; may be empty
};

class LoadedModel {
 public:
  /// Collective. A stop signal on any rank ends it.
  /// @param leaders_file  null but on the leader
  /// @param communicator  of the group, as the decoder is to use it
  /// @throws AgreedError.
  LoadedModel(RankGroup& group, const checkpoint::ModelFile* leaders_file,
              parallel::Communicator& communicator, const LoadOptions& options);

  model::Decoder& decoder() { return *decoder_; }
  const model::Decoder& decoder() const { return *decoder_; }
  const checkpoint::ModelDescription& description() const { return file_->description(); }
  /// Bytes of weights that each rank read.
  const std::vector<std::int64_t>& bytes_read() const { return bytes_read_; }
  std::int64_t total_bytes_read() const;
  /// Until the last rank was ready.
  double seconds() const { return seconds_; }

 private:
  std::optional<checkpoint::ModelFile> file_;
  std::optional<model::Decoder> decoder_;
  std::vector<std::int64_t> bytes_read_;
  double seconds_ = 0;
};

}  // namespace caravan::app
