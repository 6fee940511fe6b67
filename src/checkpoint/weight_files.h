#pragma once
// Which files of a folder hold a model's weights, and the tensors that they hold together.
//
// Leaves out: what the tensors are called (tensor_names.h) and joining model-parallel shares
// (meta_shards.h).

#include <filesystem>
#include <string>
#include <vector>

#include "caravan/checkpoint/source.h"

namespace caravan::checkpoint {

struct WeightFiles {
  enum class Layout {
    kTensors,       // each tensor is in one of the files
    kModelParallel  // each file has a share of each tensor (Meta's consolidated.*.pth)
  };
  Layout layout = Layout::kTensors;
  std::filesystem::path folder;              // that holds the files
  std::vector<std::filesystem::path> files;  // sorted; shares in order
  std::filesystem::path index;               // Hugging Face's *.index.json, or empty
};

/// The weights of a folder (Hugging Face, Meta or torchtune, the newest epoch), or those that a
/// named file belongs to.
/// @throws InputError for missing files of a set, adapters, unfinished downloads, several models.
WeightFiles find_weight_files(const std::filesystem::path& folder_or_file);

/// Opens all files (they become source.files) and gives the tensors of each, without those that no
/// model needs (which may have any type).
/// @throws InputError: damaged files, tensors of other types, of an adapter or of a quantized
/// model; for kTensors also tensors that are twice or not where the index says.
std::vector<std::vector<SourceTensor>> read_weight_files(Source& source,
                                                         const WeightFiles& weights);

}  // namespace caravan::checkpoint
