#include "caravan/checkpoint/model_writer.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/crc32c.h"
#include "caravan/io/hdf5.h"
#include "caravan/io/output_file.h"
#include "file_format.h"
#include "model_index.h"

namespace caravan::checkpoint {
namespace {

std::vector<std::int64_t> stored_shape(const model::TensorSpec& spec) {
  if (spec.is_vector) return {spec.rows};
  return {spec.rows, spec.columns};
}

}  // namespace

struct ModelWriter::State {
  State(const std::string& file_path, std::span<const TensorToWrite> to_write)
      : path(file_path),
        file(io::create_hdf5(file_path)),
        weights(create_weights_group()),
        bytes(file_path) {
    std::int64_t end = 0;
    for (const TensorToWrite& tensor : to_write) {
      first_part.push_back(tensors.size());
      for (const model::StoredPart& part : tensor.parts) {
        create(part);
        end = std::max(end, tensors.back().file_offset + tensors.back().bytes);
      }
    }
    bytes.reserve(end);
  }

  io::QuietHdf5 quiet;
  std::string path;
  io::Hdf5File file;
  io::Hdf5Group weights;
  io::OutputFile bytes;                 // the same file, for the data of the tensors
  std::vector<StoredTensor> tensors;    // all parts of all
  std::vector<std::size_t> first_part;  // of each tensor
  std::vector<io::Hdf5Dataset> datasets;
  std::atomic<std::int64_t> num_written_bands = 0;

  io::Hdf5Group create_weights_group() const {
    return io::Hdf5Group(
        CARAVAN_HDF5(IoError, path,
                     H5Gcreate2(file.get(), kWeightsGroup, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
  }
  io::Hdf5Place place(const std::string& name) const { return {path, "/weights/" + name}; }

  void create(const model::StoredPart& part) {
    const model::TensorSpec& spec = part.spec;
    const io::Hdf5Place where = place(spec.name);
    const io::Hdf5Type type = io::hdf5_type(part.dtype);
    io::Hdf5Dataset dataset =
        io::create_dataset(weights.get(), spec.name, type.get(), stored_shape(spec), where);
    StoredTensor& tensor = tensors.emplace_back();
    tensor.spec = spec;
    tensor.dtype = part.dtype;
    tensor.bytes = part.bytes();
    tensor.file_offset = io::dataset_offset(dataset.get(), where);
    tensor.band_crc32c.assign(checked_cast<std::size_t>(spec.num_bands()), 0);
    datasets.push_back(std::move(dataset));
  }

  void describe(std::size_t index) {
    const StoredTensor& tensor = tensors[index];
    const hid_t dataset = datasets[index].get();
    const io::Hdf5Place where = place(tensor.spec.name);
    io::write_text_attribute(dataset, kSplitAttribute, split_name(tensor.spec.split), where);
    io::write_integer_attribute(dataset, kBandRowsAttribute, tensor.spec.band_rows, where);
    io::write_uint32_array_attribute(dataset, kChecksumAttribute, tensor.band_crc32c, where);
    CARAVAN_HDF5(IoError, where.text(), H5Dclose(datasets[index].release()));
  }
};

ModelWriter::ModelWriter(const std::string& path, std::span<const TensorToWrite> tensors)
    : state_(std::make_unique<State>(path, tensors)) {}

ModelWriter::~ModelWriter() = default;

void ModelWriter::write_bands(std::size_t index, std::size_t part, std::int64_t first_row,
                              std::span<const std::byte> rows) {
  StoredTensor& tensor = state_->tensors[state_->first_part[index] + part];
  const model::TensorSpec& spec = tensor.spec;
  const std::int64_t row_bytes = spec.columns * element_bytes(tensor.dtype);
  const std::int64_t count = std::ssize(rows) / row_bytes;
  CARAVAN_ASSERT(count * row_bytes == std::ssize(rows) && first_row % spec.band_rows == 0 &&
                     (count % spec.band_rows == 0 || first_row + count == spec.rows) &&
                     first_row + count <= spec.rows,
                 "{} bytes from row {} of {}", rows.size(), first_row, spec.name);
  std::int64_t band = first_row / spec.band_rows;
  const std::int64_t first_band = band;
  for (std::int64_t row = 0; row < count; row += spec.band_rows, ++band) {
    const std::int64_t band_rows = std::min(spec.band_rows, count - row);
    tensor.band_crc32c[static_cast<std::size_t>(band)] =
        io::crc32c(rows.subspan(static_cast<std::size_t>(row * row_bytes),
                                static_cast<std::size_t>(band_rows * row_bytes)));
  }
  state_->bytes.write(tensor.file_offset + first_row * row_bytes, rows);
  state_->num_written_bands += band - first_band;
}

void ModelWriter::finish(ModelDescription& description) {
  State& state = *state_;
  const auto parts = model::all_stored_parts(description.config, description.dtype);
  std::int64_t num_bands = 0;
  for (const StoredTensor& tensor : state.tensors) num_bands += tensor.spec.num_bands();
  CARAVAN_ASSERT(
      num_bands == state.num_written_bands &&
          std::equal(parts.begin(), parts.end(), state.tensors.begin(), state.tensors.end(),
                     [](const auto& part, const StoredTensor& tensor) {
                       return part.spec.name == tensor.spec.name;
                     }),
      "{} of {} bands and {} of {} tensors written", state.num_written_bands.load(), num_bands,
      state.tensors.size(), parts.size());
  description.content_hash = content_hash(description, state.tensors);
  for (std::size_t i = 0; i < state.tensors.size(); ++i) state.describe(i);
  write_description(state.file.get(), description, state.path);
  state.weights.reset();
  io::close_hdf5(std::move(state.file), state.path);
}

}  // namespace caravan::checkpoint
