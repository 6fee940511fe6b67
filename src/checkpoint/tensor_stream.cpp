#include "caravan/checkpoint/tensor_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "row_encoder.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kTileRows = 32;  // source rows gathered per column when transposing

/// Where the value at a source position is, for messages.
[[noreturn]] void throw_bad_value(const Source& source, const SourceTensor& tensor,
                                  std::int64_t row, std::int64_t column, float value, DType dtype) {
  const SourceTensor& first = tensor.parts.empty() ? tensor : tensor.parts.front();
  const std::string& path = source.files[checked_cast<std::size_t>(first.file)].path();
  throw InputError(fmt::format("{}{}: tensor \"{}\", row {}, column {}: the value {}", path,
                               tensor.parts.empty() ? "" : " and its further shares", tensor.name,
                               row, column, encoding_fault(value, dtype)));
}

class TensorStream {
 public:
  TensorStream(Source& source, const model::TensorSpec& spec, DType dtype, ModelWriter& writer)
      : source_(source),
        tensor_(source.tensor(spec.name)),
        spec_(spec),
        dtype_(dtype),
        element_bytes_(element_bytes(dtype)),
        writer_(writer) {}

  /// As in the source, but for the order of rows within a head. A vector is a column of rows.
  void copy_rows(const StreamLimits& limits, const BytesWritten& written) {
    const std::int64_t group = reorders_heads() ? spec_.band_rows : 1;
    const std::int64_t groups =
        std::max<std::int64_t>(limits.strip_elements / (group * spec_.columns), 1);
    for (std::int64_t row = 0; row < spec_.rows; row += group * groups) {
      const Range rows = {row, std::min(row + group * groups, spec_.rows)};
      read(rows);
      out_.resize(checked_cast<std::size_t>(rows.size() * spec_.columns * element_bytes_));
      for (std::int64_t i = 0; i < rows.size(); ++i) encode_row(rows.begin, i);
      append(written);
    }
  }

  /// The transpose: blocks of stored rows (columns of the source), each gathered from strips of
  /// source rows.
  void transpose(const StreamLimits& limits, const BytesWritten& written) {
    const std::int64_t row_bytes = spec_.columns * element_bytes_;
    const std::int64_t block =
        std::max<std::int64_t>(limits.block_bytes / (row_bytes * spec_.band_rows), 1) *
        spec_.band_rows;
    for (std::int64_t row = 0; row < spec_.rows; row += block) {
      const Range stored_rows = {row, std::min(row + block, spec_.rows)};
      const std::int64_t strip =
          std::max<std::int64_t>(limits.strip_elements / stored_rows.size(), 1);
      out_.resize(checked_cast<std::size_t>(stored_rows.size() * row_bytes));
      for (std::int64_t column = 0; column < spec_.columns; column += strip) {
        const Range source_rows = {column, std::min(column + strip, spec_.columns)};
        resize_values(source_rows.size() * stored_rows.size());
        read_rectangle(source_.files, tensor_, source_rows, stored_rows, values_.data());
        scatter(source_rows, stored_rows);
      }
      append(written);
    }
  }

 private:
  bool reorders_heads() const {
    const bool is_q_or_k = spec_.name.ends_with(".wq") || spec_.name.ends_with(".wk") ||
                           spec_.name.ends_with(".wq.bias") || spec_.name.ends_with(".wk.bias");
    return is_q_or_k && source_.head_order == HeadOrder::kHalfSplit;
  }

  void resize_values(std::int64_t count) { values_.resize(checked_cast<std::size_t>(count)); }

  void read(Range rows) {
    resize_values(rows.size() * spec_.columns);
    if (spec_.is_vector) {
      read_rectangle(source_.files, tensor_, {0, 1}, rows, values_.data());
    } else {
      read_rectangle(source_.files, tensor_, rows, {0, spec_.columns}, values_.data());
    }
  }

  // Row `row` of the canonical order within a strip that begins with a head: interleaved row 2j+s
  // of a head is half-split row s*d/2 + j.
  std::int64_t source_row(std::int64_t row) const {
    if (!reorders_heads()) return row;
    const std::int64_t d = spec_.band_rows;
    const std::int64_t in_head = row % d;
    return row - in_head + (in_head % 2) * (d / 2) + in_head / 2;
  }

  void encode_row(std::int64_t strip_begin, std::int64_t row) {
    const std::int64_t from = source_row(row);
    const float* values = values_.data() + from * spec_.columns;
    const auto bad = encode_values(values, spec_.columns, dtype_,
                                   out_.data() + row * spec_.columns * element_bytes_);
    if (bad) throw_bad_value(source_, tensor_, strip_begin + from, *bad, values[*bad], dtype_);
  }

  // values_ is [source_rows, stored_rows]; out_ is [stored_rows, columns of the stored tensor].
  void scatter(Range source_rows, Range stored_rows) {
    std::vector<float> gathered(kTileRows);
    for (std::int64_t tile = 0; tile < source_rows.size(); tile += kTileRows) {
      const std::int64_t count = std::min(kTileRows, source_rows.size() - tile);
      for (std::int64_t stored = 0; stored < stored_rows.size(); ++stored) {
        for (std::int64_t i = 0; i < count; ++i) {
          gathered[static_cast<std::size_t>(i)] =
              values_[static_cast<std::size_t>((tile + i) * stored_rows.size() + stored)];
        }
        std::byte* target =
            out_.data() + (stored * spec_.columns + source_rows.begin + tile) * element_bytes_;
        const auto bad = encode_values(gathered.data(), count, dtype_, target);
        if (bad) {
          throw_bad_value(source_, tensor_, source_rows.begin + tile + *bad,
                          stored_rows.begin + stored, gathered[static_cast<std::size_t>(*bad)],
                          dtype_);
        }
      }
    }
  }

  void append(const BytesWritten& written) {
    const std::int64_t bytes = std::ssize(out_);
    writer_.append_rows(std::exchange(out_, {}));
    written(bytes);
  }

  Source& source_;
  const SourceTensor& tensor_;
  const model::TensorSpec& spec_;
  DType dtype_;
  std::int64_t element_bytes_;
  ModelWriter& writer_;
  std::vector<float> values_;
  std::vector<std::byte> out_;
};

}  // namespace

void stream_tensor(Source& source, const model::TensorSpec& spec, DType dtype, ModelWriter& writer,
                   const StreamLimits& limits, const BytesWritten& written) {
  writer.begin_tensor(spec, dtype);
  TensorStream stream(source, spec, dtype, writer);
  if (spec.transposed) {
    stream.transpose(limits, written);
  } else {
    stream.copy_rows(limits, written);
  }
}

}  // namespace caravan::checkpoint
