#include "caravan/checkpoint/model_writer.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/crc32c.h"
#include "caravan/io/hdf5.h"
#include "caravan/io/input_file.h"
#include "file_format.h"
#include "model_index.h"
#include "write_queue.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxPieceBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMaxQueuedBytes = std::int64_t{96} << 20;

std::vector<std::int64_t> stored_shape(const model::TensorSpec& spec) {
  if (spec.is_vector) return {spec.rows};
  return {spec.rows, spec.columns};
}

// Sends written pages to the disk while more are made: the sync at the end finds little to do.
class Flusher {
 public:
  explicit Flusher(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  // A mere hint: where it fails, the sync at the end reports.
  void start_writing() const {
    if (descriptor_) (void)::sync_file_range(descriptor_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }

 private:
  io::FileDescriptor descriptor_;
};

}  // namespace

struct ModelWriter::State {
  explicit State(const std::string& file_path)
      : path(file_path), file(io::create_hdf5(file_path)), weights(create_weights_group()) {}

  io::QuietHdf5 quiet;
  std::string path;
  io::Hdf5File file;
  io::Hdf5Group weights;
  std::vector<StoredTensor> tensors;

  // The tensor that is being written.
  io::Hdf5Dataset dataset;
  io::Hdf5Type type;
  std::int64_t rows_written = 0;

  Flusher flusher{path};
  WriteQueue queue{kMaxQueuedBytes};  // last: its thread uses the others

  io::Hdf5Group create_weights_group() const {
    return io::Hdf5Group(
        CARAVAN_HDF5(IoError, path,
                     H5Gcreate2(file.get(), kWeightsGroup, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  }
  io::Hdf5Place place(const std::string& name) const { return {path, "/weights/" + name}; }
  std::int64_t row_bytes() const {
    return tensors.back().spec.columns * element_bytes(tensors.back().dtype);
  }

  void write_rows(std::span<const std::byte> bytes, std::int64_t count) {
    const model::TensorSpec& spec = tensors.back().spec;
    const std::string where = place(spec.name).text();
    const std::array<hsize_t, 2> start = {static_cast<hsize_t>(rows_written), 0};
    const std::array<hsize_t, 2> extent = {static_cast<hsize_t>(count),
                                           static_cast<hsize_t>(spec.columns)};
    const int rank = spec.is_vector ? 1 : 2;
    const io::Hdf5Space target(CARAVAN_HDF5(IoError, where, H5Dget_space(dataset.get())));
    CARAVAN_HDF5(IoError, where,
                 H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, start.data(), nullptr,
                                     extent.data(), nullptr));
    const io::Hdf5Space memory(
        CARAVAN_HDF5(IoError, where, H5Screate_simple(rank, extent.data(), nullptr)));
    // Memory type = file type: raw bits, never HDF5's own conversion.
    CARAVAN_HDF5(
        IoError, where,
        H5Dwrite(dataset.get(), type.get(), memory.get(), target.get(), H5P_DEFAULT, bytes.data()));
    rows_written += count;
  }

  void add_checksums(std::span<const std::byte> bytes) {
    StoredTensor& tensor = tensors.back();
    std::int64_t row = rows_written;
    while (!bytes.empty()) {
      const std::int64_t band = row / tensor.spec.band_rows;
      const std::int64_t band_end = std::min((band + 1) * tensor.spec.band_rows, tensor.spec.rows);
      const auto piece =
          std::min(checked_cast<std::size_t>((band_end - row) * row_bytes()), bytes.size());
      std::uint32_t& crc = tensor.band_crc32c[checked_cast<std::size_t>(band)];
      crc = io::crc32c(bytes.first(piece), crc);
      bytes = bytes.subspan(piece);
      row += static_cast<std::int64_t>(piece) / row_bytes();
    }
  }

  void begin(const model::TensorSpec& spec, DType dtype) {
    end_tensor();
    StoredTensor& tensor = tensors.emplace_back();
    tensor.spec = spec;
    tensor.dtype = dtype;
    tensor.bytes = spec.num_elements() * element_bytes(dtype);
    tensor.band_crc32c.assign(checked_cast<std::size_t>(spec.num_bands()), 0);
    rows_written = 0;
    type = io::hdf5_type(dtype);
    dataset = io::create_dataset(weights.get(), spec.name, type.get(), stored_shape(spec),
                                 place(spec.name));
  }

  void append(std::span<const std::byte> rows) {
    CARAVAN_ASSERT(!tensors.empty(), "rows before the first tensor");
    const std::int64_t count = std::ssize(rows) / row_bytes();
    CARAVAN_ASSERT(
        count * row_bytes() == std::ssize(rows) && rows_written + count <= tensors.back().spec.rows,
        "{} bytes behind row {} of {}", rows.size(), rows_written, tensors.back().spec.name);
    add_checksums(rows);
    const std::int64_t piece_rows = std::max<std::int64_t>(kMaxPieceBytes / row_bytes(), 1);
    for (std::int64_t row = 0; row < count; row += piece_rows) {
      const std::int64_t piece = std::min(piece_rows, count - row);
      write_rows(rows.subspan(checked_cast<std::size_t>(row * row_bytes()),
                              checked_cast<std::size_t>(piece * row_bytes())),
                 piece);
    }
    flusher.start_writing();
  }

  void end_tensor() {
    if (tensors.empty()) return;
    const StoredTensor& tensor = tensors.back();
    CARAVAN_ASSERT(rows_written == tensor.spec.rows, "{} of {} rows of {} written", rows_written,
                   tensor.spec.rows, tensor.spec.name);
    const io::Hdf5Place where = place(tensor.spec.name);
    io::write_text_attribute(dataset.get(), kSplitAttribute, split_name(tensor.spec.split), where);
    io::write_integer_attribute(dataset.get(), kBandRowsAttribute, tensor.spec.band_rows, where);
    io::write_uint32_array_attribute(dataset.get(), kChecksumAttribute, tensor.band_crc32c, where);
    CARAVAN_HDF5(IoError, where.text(), H5Dclose(dataset.release()));
  }
};

ModelWriter::ModelWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}

ModelWriter::~ModelWriter() = default;

void ModelWriter::begin_tensor(const model::TensorSpec& spec, DType dtype) {
  State& state = *state_;
  state.queue.post(std::packaged_task<void()>([&state, spec, dtype] { state.begin(spec, dtype); }),
                   0);
}

void ModelWriter::append_rows(std::vector<std::byte> rows) {
  State& state = *state_;
  const std::int64_t bytes = std::ssize(rows);
  state.queue.post(
      std::packaged_task<void()>([&state, held = std::move(rows)] { state.append(held); }), bytes);
}

void ModelWriter::finish(ModelDescription& description) {
  state_->queue.drain();
  state_->end_tensor();
  const auto specs = model::tensor_specs(description.config);
  CARAVAN_ASSERT(
      std::equal(specs.begin(), specs.end(), state_->tensors.begin(), state_->tensors.end(),
                 [](const auto& spec, const StoredTensor& tensor) {
                   return spec.name == tensor.spec.name;
                 }),
      "{} tensors written, expected {} in their order", state_->tensors.size(), specs.size());
  description.content_hash = content_hash(description, state_->tensors);
  write_description(state_->file.get(), description, state_->path);
  state_->weights.reset();
  io::close_hdf5(std::move(state_->file), state_->path);
}

}  // namespace caravan::checkpoint
