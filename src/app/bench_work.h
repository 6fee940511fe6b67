#pragma once
// What `caravan bench` gives a model to do, and how much of the machine that takes at least.

#include <cstdint>
#include <vector>

#include "bench_report.h"
#include "caravan/core/dtype.h"
#include "caravan/model/config.h"

namespace caravan::app {

/// Ids without meaning, the same in every run.
class MadeUpPrompts {
 public:
  explicit MadeUpPrompts(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  std::vector<std::int32_t> next(std::int64_t length);

 private:
  std::int64_t vocab_size_;
  std::uint64_t state_ = 1;
};

/// The rows of one pass: a step, or all steps of a prompt.
struct Rows {
  std::int64_t steps = 1;  // each reads the weights once
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;  // that choose a token
  double seen = 0;              // positions that the rows see, added up
  double keys_read = 0;         // positions that sequences hold, added up over steps
};

/// Of a prompt that is computed in chunks.
Rows prompt_rows(std::int64_t positions, std::int64_t chunk);

/// How the model is held.
struct Storage {
  std::int64_t weight_bytes = 0;  // that all ranks together read in a step
  DType kv_dtype = DType::kFloat32;
};

WorkAmount amount_of(const model::LlamaConfig& config, const Storage& storage, const Rows& work);

}  // namespace caravan::app
