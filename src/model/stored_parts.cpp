#include "caravan/model/stored_parts.h"

#include <fmt/format.h>

#include <utility>

namespace caravan::model {
namespace {

bool is_projection(const TensorSpec& spec) {
  return spec.name.starts_with("text.layer.") || spec.name.starts_with("text.cross.");
}

/// A dataset that holds one element for `inputs` inputs of an output.
StoredPart part_of(const TensorSpec& spec, const char* suffix, DType dtype, std::int64_t inputs) {
  StoredPart part{spec, dtype, 1};
  part.spec.name += suffix;
  if (spec.transposed) {
    part.rows_per_row = inputs;
    part.spec.rows /= inputs;
    part.spec.band_rows /= inputs;
  } else {
    part.spec.columns /= inputs;
  }
  return part;
}

}  // namespace

DType matrix_dtype(const TensorSpec& spec, DType dtype) {
  if (!is_quantized(dtype)) return dtype;
  if (is_projection(spec)) return dtype;
  const bool is_embedding = spec.name == "text.embed" || spec.name == "text.head";
  return is_embedding ? DType::kInt8 : DType::kBFloat16;
}

std::vector<std::string> quantization_problems(const LlamaConfig& config) {
  std::vector<std::string> problems;
  const auto check = [&](const char* name, std::int64_t size) {
    if (size % kQuantGroup != 0) {
      problems.push_back(
          fmt::format("{} is {}, expected a multiple of {}, the inputs that share a "
                      "scale",
                      name, size, kQuantGroup));
    }
  };
  check("hidden_size", config.hidden_size);
  check("head_dim", config.head_dim);
  check("ffn_size", config.ffn_size);
  return problems;
}

std::vector<StoredPart> stored_parts(const TensorSpec& spec, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16: return {{spec, dtype, 1}};
    case DType::kInt8:
      return {part_of(spec, "", DType::kInt8, 1),
              part_of(spec, ".scales", DType::kFloat16, kQuantGroup)};
    case DType::kInt4:
      return {part_of(spec, "", DType::kInt4, 2),
              part_of(spec, ".scales", DType::kFloat16, kQuantGroup),
              part_of(spec, ".minimums", DType::kFloat16, kQuantGroup)};
  }
  return {};
}

std::vector<StoredPart> all_stored_parts(const LlamaConfig& config, DType dtype) {
  std::vector<StoredPart> all;
  for (const TensorSpec& spec : tensor_specs(config)) {
    const DType stored = spec.is_vector ? DType::kFloat32 : matrix_dtype(spec, dtype);
    for (StoredPart& part : stored_parts(spec, stored)) all.push_back(std::move(part));
  }
  return all;
}

std::int64_t shard_weight_bytes(const LlamaConfig& config, const ShardShape& shape, DType dtype) {
  std::int64_t bytes = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    const Range rows = shape.rows_of(spec, config);
    const DType stored = spec.is_vector ? DType::kFloat32 : matrix_dtype(spec, dtype);
    for (const StoredPart& part : stored_parts(spec, stored)) {
      bytes += part.rows_of(rows).size() * part.row_bytes();
    }
  }
  return bytes;
}

}  // namespace caravan::model
