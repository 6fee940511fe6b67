#pragma once
// Joins the shares of Meta's model-parallel files , as llama-models reshards them.

#include <string>
#include <vector>

#include "caravan/checkpoint/meta_config.h"
#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

/// Whole tensors from the shares of all files, which are `source.files`. Tensors that every file
/// has whole are compared. Key-value heads that are there twice (405B in 16 files) are kept once,
/// and config.num_kv_heads is halved.
/// @throws InputError: shares that do not fit together, files missing, copies that differ.
std::vector<SourceTensor> join_shares(Source& source, std::vector<std::vector<SourceTensor>> shares,
                                      model::LlamaConfig& config, const std::string& where);

}  // namespace caravan::checkpoint
