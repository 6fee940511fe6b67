#pragma once
// Reading this rank's part of each tensor of a model, in pieces, into the form the operations want.
// Private to src/model.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/stored_parts.h"
#include "caravan/model/weight_source.h"
#include "caravan/ops/packed_weight.h"

namespace caravan::model {

/// At most about 16 MiB of a tensor are in memory besides the weight that is being filled.
class WeightLoader {
 public:
  /// Borrows all of them. @param compute  how matrices will be multiplied.
  WeightLoader(const LlamaConfig& config, const ShardShape& shape, WeightSource& source,
               ops::Compute compute, const std::function<void(std::int64_t)>& progress)
      : config_(config), shape_(shape), source_(source), compute_(compute), progress_(progress) {
    for (TensorSpec& spec : tensor_specs(config)) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }

  const TensorSpec& spec(const std::string& name) const { return specs_.at(name); }
  DType dtype(const std::string& name) const { return source_.dtype(spec(name)); }

  /// An empty matrix for the stored elements of `name` and of what is computed with it.
  /// @throws ConfigError if it cannot be multiplied as asked.
  ops::PackedWeight empty_matrix(const std::string& name, std::int64_t outputs,
                                 std::int64_t inputs) const {
    const DType stored = dtype(name);
    CARAVAN_CHECK(compute_ == ops::Compute::kFloat32 || stored == DType::kBFloat16, ConfigError,
                  "tensor {} is stored as {}, but --compute bf16 multiplies bf16 weights: convert "
                  "the checkpoint with --dtype bf16, or use --compute fp32",
                  name, dtype_name(stored));
    return {outputs, inputs, stored, compute_};
  }

  /// Of a quantized matrix: calls `use(first, count, QuantizedRows)`.
  template <typename Use>
  void read_quantized(const std::string& name, const Use& use) {
    const TensorSpec& tensor = spec(name);
    const std::vector<StoredPart> parts = stored_parts(tensor, dtype(name));
    const Range rows = shape_.rows_of(tensor, config_);
    const std::int64_t band_bytes = tensor.band_rows * tensor.columns;  // about
    const std::int64_t step =
        std::max<std::int64_t>(1, kPieceBytes / band_bytes) * tensor.band_rows;
    std::array<std::vector<std::byte>, 3> buffers;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += step) {
      const Range piece{begin, std::min(begin + step, rows.end)};
      std::int64_t bytes = 0;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const Range stored = parts[i].rows_of(piece);
        buffers[i].resize(static_cast<std::size_t>(stored.size() * parts[i].row_bytes()));
        source_.read_rows(parts[i].spec, stored, buffers[i].data());
        bytes += std::ssize(buffers[i]);
      }
      use(piece.begin - rows.begin, piece.size(),
          ops::QuantizedRows{reinterpret_cast<const std::uint8_t*>(buffers[0].data()),
                             reinterpret_cast<const std::uint16_t*>(buffers[1].data()),
                             reinterpret_cast<const std::uint16_t*>(buffers[2].data())});
      if (progress_) progress_(bytes);
    }
  }

  /// Calls `use(first, count, data)` for pieces of this rank's rows, `first` counted from its own
  /// first row.
  template <typename Use>
  void read(const std::string& name, const Use& use) {
    const TensorSpec& tensor = spec(name);
    const Range rows = shape_.rows_of(tensor, config_);
    const std::int64_t row_bytes = tensor.columns * element_bytes(source_.dtype(tensor));
    const std::int64_t bands =
        std::max<std::int64_t>(1, kPieceBytes / (tensor.band_rows * row_bytes));
    const std::int64_t step = bands * tensor.band_rows;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += step) {
      const Range piece{begin, std::min(begin + step, rows.end)};
      const auto piece_bytes = static_cast<std::size_t>(piece.size() * row_bytes);
      if (buffer_.size() < piece_bytes) buffer_.resize(piece_bytes);
      source_.read_rows(tensor, piece, buffer_.data());
      use(piece.begin - rows.begin, piece.size(), buffer_.data());
      if (progress_) progress_(piece.size() * row_bytes);
    }
  }

  /// Stores a tensor's rows as output features `first_output`... of `weight`.
  void read_outputs(const std::string& name, std::int64_t first_output, ops::PackedWeight& weight) {
    check_dtype(name, weight);
    const auto store = [&](std::int64_t first, std::int64_t count, const auto& data) {
      weight.set_output_rows(first_output + first, count, data);
    };
    is_quantized(weight.dtype()) ? read_quantized(name, store) : read(name, store);
  }
  /// Stores the rows of a transposed tensor as input features of `weight`.
  void read_inputs(const std::string& name, ops::PackedWeight& weight) {
    check_dtype(name, weight);
    const auto store = [&](std::int64_t first, std::int64_t count, const auto& data) {
      weight.set_input_rows(first, count, data);
    };
    is_quantized(weight.dtype()) ? read_quantized(name, store) : read(name, store);
  }
  /// Stores a vector (or this rank's part of it) as float32 at `target[offset]`...
  void read_vector(const std::string& name, std::int64_t offset, at::Tensor& target) {
    const DType type = dtype(name);
    auto* out = target.data_ptr<float>() + offset;
    read(name, [&](std::int64_t first, std::int64_t count, const std::byte* data) {
      for (std::int64_t i = 0; i < count; ++i) out[first + i] = load_element(data, type, i);
    });
  }
  at::Tensor whole_vector(const std::string& name) {
    at::Tensor target = at::empty({spec(name).rows}, at::kFloat);
    read_vector(name, 0, target);
    return target;
  }
  /// A matrix of which every rank holds the rows that the shard plan gives it, as output features.
  ops::PackedWeight matrix(const std::string& name) {
    const TensorSpec& tensor = spec(name);
    ops::PackedWeight weight =
        empty_matrix(name, shape_.rows_of(tensor, config_).size(), tensor.columns);
    read_outputs(name, 0, weight);
    return weight;
  }
  /// A transposed matrix, this rank's rows as input features.
  ops::PackedWeight transposed_matrix(const std::string& name) {
    const TensorSpec& tensor = spec(name);
    ops::PackedWeight weight =
        empty_matrix(name, tensor.columns, shape_.rows_of(tensor, config_).size());
    read_inputs(name, weight);
    return weight;
  }
  /// tanh of a stored gate, computed in extended precision and rounded once: the same on every
  /// machine.
  float gate(const std::string& name) {
    const at::Tensor stored = whole_vector(name);
    return static_cast<float>(std::tanh(static_cast<long double>(stored.data_ptr<float>()[0])));
  }

  const LlamaConfig& config() const { return config_; }
  const ShardShape& shape() const { return shape_; }

 private:
  void check_dtype(const std::string& name, const ops::PackedWeight& weight) const {
    CARAVAN_CHECK(dtype(name) == weight.dtype(), ConfigError,
                  "tensor {} is stored as {}, the tensors it is computed with as {}: convert the "
                  "checkpoint with one --dtype",
                  name, dtype_name(dtype(name)), dtype_name(weight.dtype()));
  }

  const LlamaConfig& config_;
  const ShardShape& shape_;
  WeightSource& source_;
  ops::Compute compute_;
  const std::function<void(std::int64_t)>& progress_;
  std::map<std::string, TensorSpec> specs_;
  std::vector<std::byte> buffer_;

  static constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;
};

}  // namespace caravan::model
