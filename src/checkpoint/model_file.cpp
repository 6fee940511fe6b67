#include "caravan/checkpoint/model_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/io/aligned_buffer.h"
#include "caravan/io/crc32c.h"
#include "caravan/io/hdf5.h"
#include "caravan/io/input_file.h"
#include "caravan/model/stored_parts.h"
#include "file_format.h"
#include "model_index.h"
#include "worker_threads.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFaults = 20;
// Bands are read and checked in pieces of about this size, while they are in the cache.
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

void refuse_other_formats(const std::string& path) {
  std::error_code failure;
  CARAVAN_CHECK(!fs::is_directory(path, failure), MissingInputError,
                "{} is a folder, expected a MODEL.h5; `caravan convert {} MODEL.h5` makes one of a "
                "model folder",
                path, path);
  io::InputFile file(path);
  std::array<char, 4> head{};
  if (file.size() < std::ssize(head)) return;
  file.read(0, std::as_writable_bytes(std::span(head)));
  CARAVAN_CHECK(
      head[0] != '{', ConfigError,
      "{} is a JSON file, expected a MODEL.h5, which `caravan convert` makes of the folder "
      "with the weights (`caravan plan` also takes a config.json)",
      path);
  CARAVAN_CHECK(std::string_view(head.data(), head.size()) != "GGUF", ConfigError,
                "{} is a GGUF file, expected a MODEL.h5; `caravan convert {} MODEL.h5` makes one",
                path, path);
}

void check_shape(const model::TensorSpec& spec, const io::Hdf5DatasetInfo& info,
                 const std::string& where) {
  const std::vector<std::int64_t> expected =
      spec.is_vector ? std::vector{spec.rows} : std::vector{spec.rows, spec.columns};
  CARAVAN_CHECK(info.shape == expected, ConfigError, "{} has shape [{}], expected [{}]", where,
                fmt::join(info.shape, ", "), fmt::join(expected, ", "));
}

StoredTensor read_tensor(hid_t weights, const model::StoredPart& part, const std::string& path) {
  const model::TensorSpec& spec = part.spec;
  const io::Hdf5Place place = {path, "/weights/" + spec.name};
  const std::string where = place.text();
  const io::Hdf5DatasetInfo info = io::open_dataset(weights, spec.name, place);
  const auto dtype = io::dtype_of(info.type.get());
  CARAVAN_CHECK(dtype.has_value(), ConfigError,
                "{} has an element type that is none of fp32, bf16, fp16, int8 and uint8 (pairs of "
                "int4)",
                where);
  CARAVAN_CHECK(spec.is_vector ? !is_quantized(*dtype) : dtype == part.dtype, ConfigError,
                "{} is stored in {}, expected {} in this model", where, dtype_name(*dtype),
                spec.is_vector ? "a float type" : dtype_name(part.dtype));
  check_shape(spec, info, where);
  const hid_t dataset = info.dataset.get();
  CARAVAN_CHECK(
      io::read_text_attribute(dataset, kSplitAttribute, 64, place) == split_name(spec.split) &&
          io::read_integer_attribute(dataset, kBandRowsAttribute, place) == spec.band_rows,
      ConfigError, "{} must be split by {} in bands of {} rows", where, split_name(spec.split),
      spec.band_rows);
  auto checksums =
      io::read_uint32_array_attribute(dataset, kChecksumAttribute, spec.num_bands(), place);
  CARAVAN_CHECK(checksums && std::ssize(*checksums) == spec.num_bands(), ConfigError,
                "{} must have {} checksums", where, spec.num_bands());
  return {spec, *dtype, info.file_offset, info.bytes, *std::move(checksums)};
}

void add_fault(std::vector<std::string>& faults, std::string fault) {
  if (faults.size() < kMaxFaults) faults.push_back(std::move(fault));
}

void throw_if_any(const std::vector<std::string>& faults, const std::string& path) {
  if (faults.empty()) return;
  throw ConfigError(fmt::format("{} is damaged:\n{}", path, fmt::join(faults, "\n")));
}

void check_no_overlap(const std::vector<StoredTensor>& tensors, const std::string& path) {
  std::map<std::int64_t, const StoredTensor*> by_offset;
  for (const StoredTensor& tensor : tensors) {
    const auto [other, is_new] = by_offset.emplace(tensor.file_offset, &tensor);
    CARAVAN_CHECK(is_new, ConfigError, "{}: {} and {} share their data", path,
                  other->second->spec.name, tensor.spec.name);
  }
  const StoredTensor* before = nullptr;
  for (const auto& [offset, tensor] : by_offset) {
    CARAVAN_CHECK(before == nullptr || before->file_offset + before->bytes <= offset, ConfigError,
                  "{}: the data of {} and {} overlap", path, before->spec.name, tensor->spec.name);
    before = tensor;
  }
}

std::vector<StoredTensor> read_tensors(hid_t file, const ModelDescription& description,
                                       const std::string& path) {
  const io::Hdf5Place place = {path, "/weights"};
  const io::Hdf5Group weights = io::open_group(file, kWeightsGroup, place);
  if (const auto problems = model::quantization_problems(description.config);
      is_quantized(description.dtype) && !problems.empty()) {
    throw ConfigError(fmt::format("{}: matrices in {}: {}", path, dtype_name(description.dtype),
                                  fmt::join(problems, "; ")));
  }
  const auto parts = model::all_stored_parts(description.config, description.dtype);
  std::vector<std::string> faults;
  if (const auto count = io::num_links(weights.get(), place); count != std::ssize(parts)) {
    add_fault(faults, fmt::format("{} has {} tensors, expected the {} of the model", place.text(),
                                  count, parts.size()));
  }
  std::vector<StoredTensor> tensors;
  for (const model::StoredPart& part : parts) {
    try {
      tensors.push_back(read_tensor(weights.get(), part, path));
    } catch (const ConfigError& error) {  // all faults are reported together
      add_fault(faults, error.what());
      if (faults.size() == kMaxFaults) break;
    }
  }
  throw_if_any(faults, path);
  check_no_overlap(tensors, path);
  return tensors;
}

ModelIndex read_index(const std::string& path) {
  const io::QuietHdf5 quiet;
  refuse_other_formats(path);
  const io::Hdf5File file = io::open_hdf5(path);
  ModelIndex index;
  index.path = path;
  index.file_bytes = io::InputFile(path).size();
  index.description = read_description(file.get(), path);
  index.tensors = read_tensors(file.get(), index.description, path);
  const std::string hash = content_hash(index.description, index.tensors);
  std::string& stored = index.description.content_hash;
  if (stored.empty()) stored = hash;  // a file that another program wrote
  CARAVAN_CHECK(hash == stored, ConfigError,
                "{} is damaged: its description hashes to {}, expected {}", path, hash, stored);
  if (const auto problems = index.description.tokenizer.problems(); !problems.empty())
    throw ConfigError(fmt::format("{}: tokenizer: {}", path, fmt::join(problems, "; ")));
  return index;
}

/// Some bands of the tensor of this index.
struct Piece {
  std::size_t tensor = 0;
  Range bands;
};

std::int64_t row_bytes(const StoredTensor& tensor) {
  return tensor.spec.columns * element_bytes(tensor.dtype);
}

/// Runs of bands of about kPieceBytes, at least one band each.
std::vector<Range> pieces_of(const StoredTensor& tensor) {
  const std::int64_t step =
      std::max<std::int64_t>(kPieceBytes / (tensor.spec.band_rows * row_bytes(tensor)), 1);
  std::vector<Range> pieces;
  for (std::int64_t band = 0; band < tensor.spec.num_bands(); band += step)
    pieces.push_back({band, std::min(band + step, tensor.spec.num_bands())});
  return pieces;
}

/// Rows [first band's begin, last band's end).
Range rows_of_bands(const model::TensorSpec& spec, Range bands) {
  return {bands.begin * spec.band_rows, std::min(bands.end * spec.band_rows, spec.rows)};
}

}  // namespace

struct ModelFile::State {
  explicit State(ModelIndex the_index) : index(std::move(the_index)) {
    for (std::size_t i = 0; i < index.tensors.size(); ++i)
      by_name.emplace(index.tensors[i].spec.name, i);
  }

  ModelIndex index;
  std::map<std::string, std::size_t> by_name;
  std::unique_ptr<io::InputFile> file;  // opened by the first read
  bool verify = true;

  const StoredTensor& tensor(const model::TensorSpec& spec) const {
    const auto found = by_name.find(spec.name);
    CARAVAN_CHECK(found != by_name.end(), ConfigError, "{} has no tensor {}", index.path,
                  spec.name);
    return index.tensors[found->second];
  }

  io::InputFile& opened() {
    if (!file) {
      file = std::make_unique<io::InputFile>(index.path);
      // Another rank may see an older or newer file of this name.
      CARAVAN_CHECK(file->size() == index.file_bytes, IoError,
                    "{} has {} bytes here, expected {} as on rank 0: it changed, or this node sees "
                    "another file",
                    index.path, file->size(), index.file_bytes);
    }
    return *file;
  }

  /// Reads whole bands; gives the bands whose checksum differs.
  std::vector<std::int64_t> read_bands(const StoredTensor& tensor, Range bands,
                                       std::byte* destination) {
    const std::int64_t row_bytes = tensor.spec.columns * element_bytes(tensor.dtype);
    const std::int64_t bands_per_piece =
        std::max<std::int64_t>(kPieceBytes / (tensor.spec.band_rows * row_bytes), 1);
    std::vector<std::int64_t> bad;
    for (std::int64_t band = bands.begin; band < bands.end; band += bands_per_piece) {
      const Range piece = {band, std::min(band + bands_per_piece, bands.end)};
      const Range rows = rows_of_bands(tensor.spec, piece);
      opened().read(tensor.file_offset + rows.begin * row_bytes,
                    {destination, checked_cast<std::size_t>(rows.size() * row_bytes)});
      for (std::int64_t i = piece.begin; verify && i < piece.end; ++i) {
        const Range one = rows_of_bands(tensor.spec, {i, i + 1});
        const std::span<const std::byte> bytes(destination + (one.begin - rows.begin) * row_bytes,
                                               checked_cast<std::size_t>(one.size() * row_bytes));
        if (io::crc32c(bytes) != tensor.band_crc32c[checked_cast<std::size_t>(i)]) bad.push_back(i);
      }
      destination += rows.size() * row_bytes;
    }
    return bad;
  }

  std::string checksum_fault(const StoredTensor& tensor, std::int64_t band) const {
    const Range rows = rows_of_bands(tensor.spec, {band, band + 1});
    return fmt::format(
        "{}: the checksum of {} band {} (rows {} to {}) differs: the file is damaged", index.path,
        tensor.spec.name, band, rows.begin, rows.end - 1);
  }
};

ModelFile::ModelFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

ModelFile ModelFile::open(const std::string& path) {
  return ModelFile(std::make_unique<State>(read_index(path)));
}

std::vector<std::byte> ModelFile::serialize() const {
  ByteWriter out;
  put_index(out, state_->index);
  return out.take();
}

ModelFile ModelFile::deserialize(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  ModelIndex index;
  get_index(in, index);
  return ModelFile(std::make_unique<State>(std::move(index)));
}

const std::string& ModelFile::path() const { return state_->index.path; }
const ModelDescription& ModelFile::description() const { return state_->index.description; }
const std::vector<StoredTensor>& ModelFile::tensors() const { return state_->index.tensors; }
std::int64_t ModelFile::file_bytes() const { return state_->index.file_bytes; }

DType ModelFile::dtype(const model::TensorSpec& spec) const { return state_->tensor(spec).dtype; }

void ModelFile::read_rows(const model::TensorSpec& spec, Range rows, void* destination) {
  if (rows.empty()) return;
  const StoredTensor& tensor = state_->tensor(spec);
  const std::int64_t band_rows = tensor.spec.band_rows;
  CARAVAN_ASSERT(rows.begin >= 0 && rows.end <= tensor.spec.rows && rows.begin % band_rows == 0 &&
                     (rows.end % band_rows == 0 || rows.end == tensor.spec.rows),
                 "rows [{}, {}) of {} are not whole bands of {}", rows.begin, rows.end,
                 tensor.spec.name, band_rows);
  const Range bands = {rows.begin / band_rows, ceil_div(rows.end, band_rows)};
  const auto bad = state_->read_bands(tensor, bands, static_cast<std::byte*>(destination));
  if (!bad.empty()) throw ConfigError(state_->checksum_fault(tensor, bad.front()));
}

std::int64_t ModelFile::bytes_read() const { return state_->file ? state_->file->bytes_read() : 0; }

void ModelFile::set_verify(bool verify) { state_->verify = verify; }

VerifyResult ModelFile::verify_all(const BytesDone& done) {
  const Stopwatch watch;
  VerifyResult result;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < state_->index.tensors.size(); ++i) {
    const StoredTensor& tensor = state_->index.tensors[i];
    for (const Range& bands : pieces_of(tensor)) pieces.push_back({i, bands});
    result.tensors += 1;
    result.bytes += tensor.bytes;
  }
  // All threads go on after a fault, so that every one is told, in the order of the file.
  std::vector<std::vector<std::int64_t>> bad(pieces.size());
  std::atomic<std::size_t> next = 0;
  const bool verify_before = std::exchange(state_->verify, true);
  state_->opened().bypass_cache();
  std::mutex done_mutex;
  const auto read_pieces = [&] {
    io::AlignedBuffer buffer;
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      const StoredTensor& tensor = state_->index.tensors[pieces[i].tensor];
      const Range rows = rows_of_bands(tensor.spec, pieces[i].bands);
      const std::span<std::byte> bytes = buffer.resized(rows.size() * row_bytes(tensor));
      bad[i] = state_->read_bands(tensor, pieces[i].bands, bytes.data());
      const std::lock_guard lock(done_mutex);
      if (done) done(std::ssize(bytes));
    }
  };
  run_workers(num_worker_threads(), [&] {
    try {
      read_pieces();
    } catch (...) {
      next = pieces.size();  // the others end, too
      throw;
    }
  });
  state_->verify = verify_before;
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (const std::int64_t band : bad[i])
      add_fault(faults, state_->checksum_fault(state_->index.tensors[pieces[i].tensor], band));
  }
  throw_if_any(faults, state_->index.path);
  result.seconds = watch.seconds();
  return result;
}

VerifyResult verify(const std::string& path) { return ModelFile::open(path).verify_all(); }

}  // namespace caravan::checkpoint
