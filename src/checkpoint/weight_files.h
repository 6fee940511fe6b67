#pragma once
// Which files of a folder hold a model's weights.
//
// Leaves out: what is in them (weight_tensors.h).

#include <filesystem>
#include <map>
#include <string>
#include <vector>

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
  bool from_training = false;  // by its name: files of the base model may be in the folder above
};

/// Whether a folder of this name belongs to the model in the folder above: "original" (Meta's form
/// beside the Hugging Face one), torchtune's "epoch_0" and "step_100".
bool is_part_of_model(const std::string& folder_name);

/// The weights of a folder (Hugging Face, Meta or torchtune, of which the newest), or those that a
/// named file belongs to.
/// @throws InputError for missing files of a set, adapters, unfinished downloads, several models.
WeightFiles find_weight_files(const std::filesystem::path& folder_or_file);

/// File of each tensor, as an index says. @throws InputError, also for a file of another folder.
std::map<std::string, std::string> read_weight_index(const std::filesystem::path& path);

}  // namespace caravan::checkpoint
