#include "caravan/checkpoint/tensor_stream.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/aligned_buffer.h"
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
    const std::int64_t row_bytes = tensor.row_bytes();
    const std::span<std::byte> encoded = encoded_.resized(strip.rows.size() * row_bytes);
    read_encoded(tensor, strip.rows, encoded.data());
    if (!reorders_heads(tensor.spec)) {
      write(strip, encoded);
      return;
    }
    const std::span<std::byte> out = out_.resized(std::ssize(encoded));
    for (std::int64_t row = 0; row < strip.rows.size(); ++row) {
      std::copy_n(encoded.data() + source_row(tensor.spec, row) * row_bytes, row_bytes,
                  out.data() + row * row_bytes);
    }
    write(strip, out);
  }

  void load(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    const std::int64_t source_row_bytes = tensor.spec.rows * element_bytes(tensor.dtype);
    read_encoded(tensor, strip.rows,
                 stream_.queue.staging(strip.tensor) + strip.rows.begin * source_row_bytes);
  }

  void transpose_rows(const Strip& strip) {
    const TensorToWrite& tensor = target(strip);
    const model::TensorSpec& spec = tensor.spec;
    const std::int64_t element = element_bytes(tensor.dtype);
    const std::span<std::byte> out = out_.resized(strip.rows.size() * tensor.row_bytes());
    const std::byte* staged = stream_.queue.staging(strip.tensor);
    transpose({staged + strip.rows.begin * element, spec.columns, strip.rows.size(), spec.rows},
              element, out.data());
    write(strip, out);
  }

  // Rows of the source as the stored type, in pieces that are read and looked at while they are in
  // the cache.
  void read_encoded(const TensorToWrite& target, Range rows, std::byte* out) {
    const std::int64_t row_elements =
        target.spec.transposed ? target.spec.rows : target.spec.columns;
    const std::int64_t row_bytes = row_elements * element_bytes(target.dtype);
    const std::int64_t step = std::max<std::int64_t>(kPieceBytes / row_bytes, 1);
    for (std::int64_t row = rows.begin; row < rows.end; row += step) {
      const Range piece = {row, std::min(row + step, rows.end)};
      read_piece(target, piece, row_elements, out + (row - rows.begin) * row_bytes);
    }
  }

  void read_piece(const TensorToWrite& target, Range rows, std::int64_t row_elements,
                  std::byte* out) {
    const SourceTensor& tensor = stream_.source.tensor(target.spec.name);
    const Range source_rows = target.spec.is_vector ? Range{0, 1} : rows;
    const Range source_columns = target.spec.is_vector ? rows : Range{0, row_elements};
    const std::int64_t count = rows.size() * row_elements;
    std::optional<std::int64_t> bad;
    float value = 0;
    if (is_stored_as(tensor.type, target.dtype)) {
      read_raw_rectangle(stream_.source.files, tensor, source_rows, source_columns, out);
      bad = find_not_finite(out, count, target.dtype);
      if (bad) value = load_element(out, target.dtype, *bad);
    } else {
      values_.resize(checked_cast<std::size_t>(count));
      read_rectangle(stream_.source.files, tensor, source_rows, source_columns, values_.data());
      bad = encode_values(values_.data(), count, target.dtype, out);
      if (bad) value = values_[static_cast<std::size_t>(*bad)];
    }
    if (bad) {
      throw_bad_value(stream_.source, tensor, rows.begin + *bad / row_elements, *bad % row_elements,
                      value, target.dtype);
    }
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

  void write(const Strip& strip, std::span<const std::byte> rows) {
    stream_.writer.write_bands(strip.tensor, strip.rows.begin, rows);
    const std::lock_guard lock(stream_.written_mutex);
    stream_.written(std::ssize(rows));
  }

  Stream& stream_;
  std::vector<float> values_;
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
