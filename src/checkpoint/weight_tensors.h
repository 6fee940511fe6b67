#pragma once
// The tensors that the weight files of a model hold together.
//
// Leaves out: what they are called (tensor_names.h) and joining model-parallel shares
// (meta_shards.h).

#include <vector>

#include "caravan/checkpoint/source.h"
#include "weight_files.h"

namespace caravan::checkpoint {

/// Opens all files (they become source.files) and gives the tensors of each, without those that no
/// model needs (which may have any type).
/// @throws InputError: damaged files, tensors of other types, of an adapter or of a quantized
/// model; for kTensors also tensors that are twice or not where the index says.
std::vector<std::vector<SourceTensor>> read_weight_files(Source& source,
                                                         const WeightFiles& weights);

}  // namespace caravan::checkpoint
