#include "meta_shards.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::checkpoint {
namespace {

using ShareMap = std::map<std::string, std::vector<SourceTensor>>;  // by name, one per file

constexpr const char* kEmbedding = "tok_embeddings.weight";
constexpr const char* kTextPart = "text_model.";  // before the decoder's names in vision models

bool ends_with_any(const std::string& name, std::initializer_list<const char*> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](const char* suffix) { return name.ends_with(suffix); });
}

bool is_key_or_value(const std::string& name) {
  return name.ends_with(".attention.wk.weight") || name.ends_with(".attention.wv.weight");
}

ShareMap by_name(std::vector<std::vector<SourceTensor>> shares, const Source& source) {
  ShareMap tensors;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    for (SourceTensor& tensor : shares[i]) {
      std::vector<SourceTensor>& all = tensors[tensor.name];
      CARAVAN_CHECK(all.size() == i, InputError, "tensor \"{}\" is in {}, but not in {}",
                    tensor.name, source.files[i].path(), source.files[all.size()].path());
      all.push_back(std::move(tensor));
    }
  }
  for (const auto& [name, all] : tensors) {
    CARAVAN_CHECK(all.size() == shares.size(), InputError, "tensor \"{}\" is in {}, but not in {}",
                  name, source.files[0].path(), source.files[all.size()].path());
  }
  return tensors;
}

// The embedding is cut along the vocabulary, but along the width in Llama 1 and 2.
std::size_t embedding_axis(const SourceTensor& share, std::size_t num_shares,
                           std::int64_t hidden_size, const std::string& where) {
  const auto count = static_cast<std::int64_t>(num_shares);
  const bool sound = share.shape.size() == 2;
  if (sound && share.shape[1] == hidden_size) return 0;
  CARAVAN_CHECK(sound && share.shape[1] * count == hidden_size, InputError,
                "{}: the share of {} has shape [{}], expected {} columns, or {} / {}: files are "
                "missing, or params.json is of another model",
                where, share.name, fmt::join(share.shape, ", "), hidden_size, hidden_size, count);
  return 1;
}

/// Along which axis a tensor is cut; empty for those that every file has whole.
std::optional<std::size_t> cut_axis(const std::vector<SourceTensor>& shares,
                                    const model::LlamaConfig& config, const std::string& where) {
  const SourceTensor& first = shares.front();
  const std::string& name = first.name;
  if (name == kEmbedding || name == std::string(kTextPart) + kEmbedding)
    return embedding_axis(first, shares.size(), config.hidden_size, where);
  const bool cut_vector = ends_with_any(name, {".mlp.c_fc.bias", ".vision_projection.bias"});
  if (first.shape.size() == 1 && cut_vector) return 0;
  const bool whole_matrix = name.ends_with(".positional_embedding");
  if (first.shape.size() != 2 || whole_matrix) return std::nullopt;
  const bool row_parallel = ends_with_any(name, {".attention.wo.weight", ".attn.wo.weight",
                                                 ".feed_forward.w2.weight", ".mlp.c_proj.weight"});
  return row_parallel ? 1 : 0;
}

void check_number_of_files(const ShareMap& tensors, const model::LlamaConfig& config,
                           const std::string& where) {
  constexpr const char* kQuery = "layers.0.attention.wq.weight";
  auto query = tensors.find(kQuery);
  if (query == tensors.end()) query = tensors.find(std::string(kTextPart) + kQuery);
  if (query == tensors.end() || query->second.front().shape.empty()) return;
  const std::int64_t rows = query->second.front().shape[0];
  const std::int64_t wanted = config.num_heads * config.head_dim;
  const std::int64_t expected = wanted / rows;
  CARAVAN_CHECK(expected * rows == wanted && expected == std::ssize(query->second), InputError,
                "{} has {} of {} files: each holds {} of {} query rows; the download is "
                "incomplete, or params.json is of another model",
                where, query->second.size(), expected, rows, wanted);
}

// Whether files 2j and 2j+1 have the same key-value head, in all layers.
bool has_doubled_heads(Source& source, const ShareMap& tensors, const model::LlamaConfig& config,
                       std::size_t num_files) {
  if (num_files % 2 != 0 || config.num_kv_heads != static_cast<std::int64_t>(num_files))
    return false;
  for (const auto& [name, shares] : tensors) {
    if (!is_key_or_value(name)) continue;
    for (std::size_t i = 0; i < shares.size(); i += 2) {
      if (!same_values(source.files, shares[i], shares[i + 1])) return false;
    }
  }
  return true;
}

void check_copies(Source& source, const std::vector<SourceTensor>& copies) {
  for (std::size_t i = 1; i < copies.size(); ++i) {
    CARAVAN_CHECK(same_values(source.files, copies[0], copies[i]), InputError,
                  "tensor \"{}\" differs between {} and {}: the files are of different models",
                  copies[0].name, source.files[0].path(), source.files[i].path());
  }
}

}  // namespace

std::vector<SourceTensor> join_shares(Source& source, std::vector<std::vector<SourceTensor>> shares,
                                      model::LlamaConfig& config, const std::string& where) {
  const std::size_t num_files = shares.size();
  ShareMap tensors = by_name(std::move(shares), source);
  check_number_of_files(tensors, config, where);
  const bool doubled = num_files > 1 && has_doubled_heads(source, tensors, config, num_files);
  if (doubled) {
    log::info("{}: each key-value head is in two files; it is kept once", where);
    config.num_kv_heads /= 2;
  }
  std::vector<SourceTensor> whole;
  for (auto& [name, all] : tensors) {
    if (doubled && is_key_or_value(name)) {
      for (std::size_t i = 1; i < num_files / 2; ++i) all[i] = std::move(all[2 * i]);
      all.resize(num_files / 2);
    }
    const auto axis = cut_axis(all, config, where);
    if (!axis) check_copies(source, all);
    whole.push_back(axis ? joined(std::move(all), *axis, where) : std::move(all[0]));
  }
  return whole;
}

}  // namespace caravan::checkpoint
