#include "caravan/checkpoint/tensor_stream.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/aligned_buffer.h"
#include "quantizer.h"
#include "row_encoder.h"
#include "strip_queue.h"
#include "transpose.h"
#include "worker_threads.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 19;  // stored; fits a core's own cache

constexpr std::size_t kStripsAhead = 8;

// Whether the source's bytes are the stored ones.
bool is_stored_as(ElementType type, DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return type == ElementType::kF32;
    case DType::kBFloat16: return type == ElementType::kBF16;
    case DType::kFloat16: return type == ElementType::kF16;
    case DType::kInt8:
    case DType::kInt4: return false;
  }
  return false;
}

/// Where the value at a source position is, for messages.
[[noreturn]] void throw_bad_value(const Source& source, const SourceTensor& tensor,
                                  std::int64_t row, std::int64_t column, float value, DType dtype) {
  const SourceTensor& first = tensor.parts.empty() ? tensor : tensor.parts.front();
  const std::string& path = source.files[checked_cast<std::size_t>(first.file)].path();
  throw InputError(fmt::format("{}{}: tensor \"{}\", row {}, column {}: the value {}", path,
                               tensor.parts.empty() ? "" : " and its further shares", tensor.name,
                               row, column, encoding_fault(value, dtype)));
}

/// Where rows of a tensor go: into the parts that they are stored as, each without gaps.
using PartTargets = std::array<std::byte*, 3>;

/// Bytes of a part that a row of the source becomes.
std::int64_t source_row_bytes(const model::StoredPart& part) {
  return (part.spec.transposed ? part.spec.rows : part.spec.columns) * element_bytes(part.dtype);
}

/// The parts of `rows` source rows one after the other from `begin` on.
PartTargets targets_of(const TensorToWrite& tensor, std::int64_t rows, std::byte* begin) {
  PartTargets targets{};
  for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
    targets[i] = begin;
    begin += rows * source_row_bytes(tensor.parts[i]);
  }
  return targets;
}

PartTargets at_row(const TensorToWrite& tensor, PartTargets targets, std::int64_t row) {
  for (std::size_t i = 0; i < tensor.parts.size(); ++i)
    targets[i] += row * source_row_bytes(tensor.parts[i]);
  return targets;
}

// What all threads share.
struct Stream {
  Source& source;
  std::span<const TensorToWrite> tensors;
  ModelWriter& writer;
  const BytesDone& written;
  StripQueue queue;
  std::mutex written_mutex;
};

// One thread's work, with its buffers.
class StripWorker {
 public:
  explicit StripWorker(Stream& stream) : stream_(stream) {}

  void run() {
    while (const auto strip = stream_.queue.take()) {
      prefetch_later_strip();
      switch (strip->kind) {
        case StripKind::kCopy: copy(*strip); break;
        case StripKind::kLoad: load(*strip); break;
        case StripKind::kTranspose: transpose_rows(*strip); break;
      }
      stream_.queue.done(*strip);
    }
  }

 private:
  const TensorToWrite& target(const Strip& strip) const { return stream_.tensors[strip.tensor]; }

  // So that the disk is read while this thread computes and writes.
  void prefetch_later_strip() {
    const auto later = stream_.queue.ahead(kStripsAhead);
    if (later && later->kind != StripKind::kTranspose) {
      prefetch_rows(stream_.source.files, stream_.source.tensor(target(*later).spec.name),
                    later->rows);
    }
  }

  // As in the source, but for the order of rows within a head. A vector is a column of rows.
  void copy(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    const std::int64_t count = strip.rows.size();
    const std::int64_t bytes = tensor.bytes() / tensor.spec.rows * count;
    const PartTargets encoded = targets_of(tensor, count, encoded_.resized(bytes).data());
    read_encoded(tensor, strip.rows, encoded);
    for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
      const std::int64_t row_bytes = tensor.parts[i].row_bytes();
      const std::span<const std::byte> rows(encoded[i],
                                            static_cast<std::size_t>(count * row_bytes));
      if (!reorders_heads(tensor.spec)) {
        write(strip, i, rows);
        continue;
      }
      const std::span<std::byte> out = out_.resized(std::ssize(rows));
      for (std::int64_t row = 0; row < count; ++row) {
        std::copy_n(rows.data() + source_row(tensor.spec, row) * row_bytes, row_bytes,
                    out.data() + row * row_bytes);
      }
      write(strip, i, out);
    }
  }

  void load(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    read_encoded(tensor, strip.rows, at_row(tensor, staged(strip), strip.rows.begin));
  }

  void transpose_rows(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
      const model::StoredPart& part = tensor.parts[i];
      const std::int64_t element = element_bytes(part.dtype);
      const Range rows = part.rows_of(strip.rows);
      const std::span<std::byte> out = out_.resized(rows.size() * part.row_bytes());
      transpose(
          {staged(strip)[i] + rows.begin * element, part.spec.columns, rows.size(), part.spec.rows},
          element, out.data());
      write(strip, i, out);
    }
  }

  PartTargets staged(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    return targets_of(tensor, tensor.spec.columns, stream_.queue.staging(strip.tensor));
  }

  // Rows of the source as the stored type, in pieces that are read and looked at while they are in
  // the cache.
  void read_encoded(const TensorToWrite& target, Range rows, const PartTargets& out) {
    const std::int64_t row_elements =
        target.spec.transposed ? target.spec.rows : target.spec.columns;
    const std::int64_t step =
        std::max<std::int64_t>(kPieceBytes / (row_elements * element_bytes(target.dtype)), 1);
    for (std::int64_t row = rows.begin; row < rows.end; row += step) {
      const Range piece = {row, std::min(row + step, rows.end)};
      read_piece(target, piece, row_elements, at_row(target, out, row - rows.begin));
    }
  }

  void read_piece(const TensorToWrite& target, Range rows, std::int64_t row_elements,
                  const PartTargets& out) {
    const SourceTensor& tensor = stream_.source.tensor(target.spec.name);
    const Range source_rows = target.spec.is_vector ? Range{0, 1} : rows;
    const Range source_columns = target.spec.is_vector ? rows : Range{0, row_elements};
    const std::int64_t count = rows.size() * row_elements;
    std::optional<std::int64_t> bad;
    float value = 0;
    const QuantizedTarget quantized = {out[0], out[1], out[2]};
    if (has_quantized_form(tensor.type, target.dtype)) {
      const BlockLayout layout = block_layout(tensor.type);
      const std::int64_t blocks = count / layout.elements;
      std::byte* const read = blocks_.resized(blocks * layout.bytes).data();
      read_blocks(stream_.source.files, tensor, rows, read);
      bad = import_blocks(tensor.type, read, blocks, target.dtype, quantized);
      if (bad) value = std::numeric_limits<float>::infinity();
    } else if (is_stored_as(tensor.type, target.dtype)) {
      read_raw_rectangle(stream_.source.files, tensor, source_rows, source_columns, out[0]);
      bad = find_not_finite(out[0], count, target.dtype);
      if (bad) value = load_element(out[0], target.dtype, *bad);
    } else {
      values_.resize(checked_cast<std::size_t>(count));
      read_rectangle(stream_.source.files, tensor, source_rows, source_columns, values_.data());
      bad = is_quantized(target.dtype) ? quantize_finite(count, target.dtype, quantized)
                                       : encode_values(values_.data(), count, target.dtype, out[0]);
      if (bad) value = values_[static_cast<std::size_t>(*bad)];
    }
    if (bad) {
      throw_bad_value(stream_.source, tensor, rows.begin + *bad / row_elements, *bad % row_elements,
                      value, target.dtype);
    }
  }

  std::optional<std::int64_t> quantize_finite(std::int64_t count, DType dtype,
                                              const QuantizedTarget& out) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(values_.data());
    const auto bad = find_not_finite(bytes, count, DType::kFloat32);
    return bad ? bad : quantize_values(values_.data(), count, dtype, out);
  }

  // Only the decoder's self-attention has rotary pairs.
  bool reorders_heads(const model::TensorSpec& spec) const {
    if (!spec.name.starts_with("text.layer.")) return false;
    const bool is_q_or_k = spec.name.ends_with(".wq") || spec.name.ends_with(".wk") ||
                           spec.name.ends_with(".wq.bias") || spec.name.ends_with(".wk.bias");
    return is_q_or_k && stream_.source.head_order == HeadOrder::kHalfSplit;
  }

  // Row `row` of the canonical order, both counted from the begin of a head: interleaved row 2j+s
  // of a head is half-split row s*d/2 + j.
  static std::int64_t source_row(const model::TensorSpec& spec, std::int64_t row) {
    const std::int64_t d = spec.band_rows;
    const std::int64_t in_head = row % d;
    return row - in_head + (in_head % 2) * (d / 2) + in_head / 2;
  }

  void write(const Strip& strip, std::size_t part, std::span<const std::byte> rows) {
    const std::int64_t first = target(strip).parts[part].rows_of(strip.rows).begin;
    stream_.writer.write_bands(strip.tensor, part, first, rows);
    const std::lock_guard lock(stream_.written_mutex);
    stream_.written(std::ssize(rows));
  }

  Stream& stream_;
  std::vector<float> values_;
  io::AlignedBuffer blocks_;
  io::AlignedBuffer encoded_;
  io::AlignedBuffer out_;
};

}  // namespace

void stream_tensors(Source& source, std::span<const TensorToWrite> tensors, ModelWriter& writer,
                    const StreamLimits& limits, const BytesDone& written) {
  Stream stream{source, tensors, writer, written, {tensors, limits.strip_bytes}, {}};
  run_workers(num_worker_threads(), [&] {
    try {
      StripWorker(stream).run();
    } catch (...) {
      stream.queue.stop();
      throw;
    }
  });
}

}  // namespace caravan::checkpoint
