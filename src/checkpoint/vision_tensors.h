#pragma once
// The tensors of a vision model's source in the shapes of ours: views of them, nothing is copied.

#include <string>
#include <vector>

#include "caravan/checkpoint/source.h"
#include "caravan/checkpoint/vision_names.h"

namespace caravan::checkpoint {

/// Sets what descriptions leave open and the tensors show: the number of extra embeddings.
/// Then turns into tensors of tensor_specs(config)'s shapes: the embedding and its extra rows, the
/// convolution of the patches as a matrix, tile tables as the cells that are used, gates as one
/// value. What has another shape than these forms stays as it is, for match_tensors to report.
///
/// Hugging Face stores the tables once for each arrangement of tiles; they must agree, which is
/// checked by reading them.
/// @throws InputError naming the tensor: position tables of another tile size than that of
/// `config`, tables that disagree, gates of several values.
std::vector<SourceTensor> vision_views(Source& source, std::vector<SourceTensor> found,
                                       const VisionNames& names, model::LlamaConfig& config,
                                       const std::string& where);

}  // namespace caravan::checkpoint
