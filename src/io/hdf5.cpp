#include "caravan/io/hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/io/input_file.h"

namespace caravan::io {
namespace {

constexpr hsize_t kAlignmentThreshold = 65536;
constexpr hsize_t kAlignment = 4096;
constexpr int kMaxErrorLines = 3;

struct ErrorLines {
  std::string text;
  int count = 0;
};

// Collects the innermost descriptions, where HDF5 quotes the system's error.
herr_t collect_error(unsigned /*level*/, const H5E_error2_t* error, void* data) {
  auto* lines = static_cast<ErrorLines*>(data);
  if (lines->count++ >= kMaxErrorLines || error->desc == nullptr) return 0;
  if (!lines->text.empty()) lines->text += "; ";
  lines->text += error->desc;
  return 0;
}

Hdf5Properties file_access() {
  Hdf5Properties properties(CARAVAN_HDF5(IoError, "HDF5", H5Pcreate(H5P_FILE_ACCESS)));
  CARAVAN_HDF5(IoError, "HDF5",
               H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V110, H5F_LIBVER_V110));
  CARAVAN_HDF5(IoError, "HDF5",
               H5Pset_alignment(properties.get(), kAlignmentThreshold, kAlignment));
  // File systems without flock would refuse the open, and a checkpoint is never changed in place.
  CARAVAN_HDF5(IoError, "HDF5", H5Pset_file_locking(properties.get(), 0, 1));
  return properties;
}

// Files by this program start with the signature; a block of user data before it is refused. The
// superblock of versions 2 and 3 holds the size of the whole file (HDF5 File Format Specification,
// "Level 0A"): the clearest sign of an unfinished copy.
void check_superblock(const std::string& path) {
  constexpr std::array<unsigned char, 8> kSignature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  constexpr std::size_t kVersion = 8;
  constexpr std::size_t kOffsetBytes = 9;
  constexpr std::size_t kEndOfFile = 28;
  InputFile file(path);
  std::array<unsigned char, 48> head{};
  CARAVAN_CHECK(file.size() >= static_cast<std::int64_t>(head.size()), ConfigError,
                "{} has {} bytes: it is not an HDF5 file, or was cut short", path, file.size());
  file.read(0, std::as_writable_bytes(std::span(head)));
  CARAVAN_CHECK(std::equal(kSignature.begin(), kSignature.end(), head.begin()), ConfigError,
                "{} is not an HDF5 file (its first bytes differ); expected a MODEL.h5: `caravan "
                "convert SOURCE MODEL.h5` makes one of a GGUF file or of a folder with safetensors",
                path);
  if ((head[kVersion] != 2 && head[kVersion] != 3) || head[kOffsetBytes] != 8) return;
  std::uint64_t end = 0;
  std::memcpy(&end, head.data() + kEndOfFile, sizeof(end));
  CARAVAN_CHECK(std::cmp_greater_equal(file.size(), end), ConfigError,
                "{} is truncated: it has {} bytes of {}; copy or convert it again", path,
                file.size(), end);
}

}  // namespace

void log_failed_hdf5_close(const char* kind) noexcept {
  try {
    log::warning("closing an {} failed: {}", kind,
                 hdf5_failure("HDF5", "close", __FILE__, __LINE__));
  } catch (...) {  // a destructor's last word; nothing more can be said
  }
}

QuietHdf5::QuietHdf5() noexcept {
  // Every id has an owner here, so that HDF5 need not clean up at exit, where it prints complaints
  // about what it lost itself in damaged files. Only the first call, before any other, counts;
  // later ones fail, which says nothing.
  static_cast<void>(H5dont_atexit());
  if (H5Eget_auto2(H5E_DEFAULT, &function_, &data_) < 0 ||
      H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) < 0)
    log_failed_hdf5_close("error handler");
}

QuietHdf5::~QuietHdf5() {
  if (H5Eset_auto2(H5E_DEFAULT, function_, data_) < 0) log_failed_hdf5_close("error handler");
}

std::string hdf5_failure(std::string_view where, const char* call, const char* file, int line) {
  ErrorLines lines;
  if (H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect_error, &lines) < 0 || lines.text.empty())
    lines.text = "HDF5 gives no reason";
  if (H5Eclear2(H5E_DEFAULT) < 0) lines.text += " (and its error stack cannot be cleared)";
  return fmt::format("{}: {} failed: {} [{}:{}]", where, call, lines.text,
                     std::filesystem::path(file).filename().string(), line);
}

Hdf5File open_hdf5(const std::string& path) {
  const QuietHdf5 quiet;
  check_superblock(path);
  const Hdf5Properties access = file_access();
  return Hdf5File(
      CARAVAN_HDF5(ConfigError, path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get())));
}

Hdf5File create_hdf5(const std::string& path) {
  const QuietHdf5 quiet;
  const Hdf5Properties access = file_access();
  return Hdf5File(CARAVAN_HDF5(IoError, path,
                               H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

void close_hdf5(Hdf5File file, const std::string& path) {
  const QuietHdf5 quiet;
  CARAVAN_HDF5(IoError, path, H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  CARAVAN_HDF5(IoError, path, H5Fclose(file.release()));
}

Hdf5Type hdf5_type(DType dtype) {
  if (is_quantized(dtype)) {
    return Hdf5Type(CARAVAN_HDF5(IoError, "HDF5",
                                 H5Tcopy(dtype == DType::kInt8 ? H5T_STD_I8LE : H5T_STD_U8LE)));
  }
  Hdf5Type type(CARAVAN_HDF5(IoError, "HDF5", H5Tcopy(H5T_IEEE_F32LE)));
  if (dtype == DType::kFloat32) return type;
  // Sign, exponent and mantissa first, then the size: HDF5 insists on fields that fit.
  const bool brain = dtype == DType::kBFloat16;
  const std::size_t mantissa_bits = brain ? 7 : 10;
  CARAVAN_HDF5(IoError, "HDF5",
               H5Tset_fields(type.get(), 15, mantissa_bits, 15 - mantissa_bits, 0, mantissa_bits));
  CARAVAN_HDF5(IoError, "HDF5", H5Tset_size(type.get(), 2));
  CARAVAN_HDF5(IoError, "HDF5", H5Tset_ebias(type.get(), brain ? 127 : 15));
  return type;
}

std::optional<DType> dtype_of(hid_t type) {
  if (H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 1) {
    return H5Tget_sign(type) == H5T_SGN_NONE ? DType::kInt4 : DType::kInt8;
  }
  if (H5Tget_class(type) != H5T_FLOAT || H5Tget_order(type) != H5T_ORDER_LE) return std::nullopt;
  const std::size_t size = H5Tget_size(type);
  std::size_t sign = 0;
  std::size_t exponent = 0;
  std::size_t exponent_bits = 0;
  std::size_t mantissa = 0;
  std::size_t mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
    return std::nullopt;
  const std::size_t bias = H5Tget_ebias(type);
  const auto is = [&](std::size_t bytes, std::size_t bits, std::size_t wanted_bias) {
    return size == bytes && mantissa == 0 && mantissa_bits == bits && exponent == bits &&
           sign == 8 * bytes - 1 && exponent_bits == sign - bits && bias == wanted_bias;
  };
  if (is(4, 23, 127)) return DType::kFloat32;
  if (is(2, 7, 127)) return DType::kBFloat16;
  if (is(2, 10, 15)) return DType::kFloat16;
  return std::nullopt;
}

bool has_link(hid_t parent, const std::string& name, const Hdf5Place& place) {
  return CARAVAN_HDF5(ConfigError, place.text(), H5Lexists(parent, name.c_str(), H5P_DEFAULT)) > 0;
}

namespace {

void check_hard_link(hid_t parent, const std::string& name, const Hdf5Place& place) {
  CARAVAN_CHECK(has_link(parent, name, place), ConfigError, "{} is missing", place.text());
  H5L_info_t info = {};
  CARAVAN_HDF5(ConfigError, place.text(), H5Lget_info(parent, name.c_str(), &info, H5P_DEFAULT));
  CARAVAN_CHECK(info.type == H5L_TYPE_HARD, ConfigError,
                "{} is a soft or external link, expected the object itself", place.text());
}

void check_storage(const Hdf5DatasetInfo& info, const Hdf5Place& place) {
  const std::string where = place.text();
  const Hdf5Properties properties(
      CARAVAN_HDF5(ConfigError, where, H5Dget_create_plist(info.dataset.get())));
  const auto layout = CARAVAN_HDF5(ConfigError, where, H5Pget_layout(properties.get()));
  CARAVAN_CHECK(layout == H5D_CONTIGUOUS, ConfigError,
                "{} is stored {}, expected contiguous storage", where,
                layout == H5D_CHUNKED   ? "in chunks"
                : layout == H5D_COMPACT ? "compactly"
                                        : "virtually");
  CARAVAN_CHECK(CARAVAN_HDF5(ConfigError, where, H5Pget_nfilters(properties.get())) == 0,
                ConfigError, "{} has filters, expected none", where);
  CARAVAN_CHECK(CARAVAN_HDF5(ConfigError, where, H5Pget_external_count(properties.get())) == 0,
                ConfigError, "{} is stored in another file", where);
}

}  // namespace

Hdf5DatasetInfo open_dataset(hid_t parent, const std::string& name, const Hdf5Place& place) {
  const std::string where = place.text();
  check_hard_link(parent, name, place);
  Hdf5DatasetInfo info;
  info.dataset =
      Hdf5Dataset(CARAVAN_HDF5(ConfigError, where, H5Dopen2(parent, name.c_str(), H5P_DEFAULT)));
  check_storage(info, place);
  info.type = Hdf5Type(CARAVAN_HDF5(ConfigError, where, H5Dget_type(info.dataset.get())));
  const Hdf5Space space(CARAVAN_HDF5(ConfigError, where, H5Dget_space(info.dataset.get())));
  const int rank = CARAVAN_HDF5(ConfigError, where, H5Sget_simple_extent_ndims(space.get()));
  CARAVAN_CHECK(rank <= 2, ConfigError, "{} has {} dimensions, expected at most 2", where, rank);
  std::array<hsize_t, 2> dims{};
  if (rank > 0)
    CARAVAN_HDF5(ConfigError, where, H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr));
  const std::size_t element = H5Tget_size(info.type.get());
  CARAVAN_CHECK(element > 0, ConfigError, "{} has elements of no size", where);
  auto bytes = static_cast<std::int64_t>(element);
  for (int i = 0; i < rank; ++i) {
    std::int64_t extent = 0;
    const bool overflow = __builtin_add_overflow(dims[static_cast<std::size_t>(i)], 0U, &extent) ||
                          __builtin_mul_overflow(bytes, extent, &bytes);
    CARAVAN_CHECK(!overflow && extent > 0, ConfigError, "{} has an impossible shape", where);
    info.shape.push_back(extent);
  }
  const haddr_t offset = H5Dget_offset(info.dataset.get());
  CARAVAN_CHECK(offset != HADDR_UNDEF &&
                    H5Dget_storage_size(info.dataset.get()) == static_cast<hsize_t>(bytes),
                ConfigError, "{} has no storage of {} bytes in this file", where, bytes);
  std::error_code failure;
  const auto file_bytes = std::filesystem::file_size(place.file, failure);
  CARAVAN_CHECK(
      !failure && offset <= file_bytes && static_cast<std::uint64_t>(bytes) <= file_bytes - offset,
      ConfigError, "{} reaches beyond the end of the file: it is truncated or damaged", where);
  info.file_offset = static_cast<std::int64_t>(offset);
  info.bytes = bytes;
  return info;
}

Hdf5Group open_group(hid_t parent, const std::string& name, const Hdf5Place& place) {
  check_hard_link(parent, name, place);
  return Hdf5Group(
      CARAVAN_HDF5(ConfigError, place.text(), H5Gopen2(parent, name.c_str(), H5P_DEFAULT)));
}

std::int64_t num_links(hid_t group, const Hdf5Place& place) {
  H5G_info_t info = {};
  CARAVAN_HDF5(ConfigError, place.text(), H5Gget_info(group, &info));
  CARAVAN_CHECK(std::in_range<std::int64_t>(info.nlinks), ConfigError, "{} has {} entries",
                place.text(), info.nlinks);
  return static_cast<std::int64_t>(info.nlinks);
}

Hdf5Dataset create_dataset(hid_t parent, const std::string& name, hid_t type,
                           std::span<const std::int64_t> shape, const Hdf5Place& place) {
  const std::string where = place.text();
  std::vector<hsize_t> dims(shape.begin(), shape.end());
  const Hdf5Space space(CARAVAN_HDF5(
      IoError, where, H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr)));
  const Hdf5Properties properties(CARAVAN_HDF5(IoError, where, H5Pcreate(H5P_DATASET_CREATE)));
  CARAVAN_HDF5(IoError, where, H5Pset_layout(properties.get(), H5D_CONTIGUOUS));
  CARAVAN_HDF5(IoError, where, H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER));
  CARAVAN_HDF5(IoError, where, H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY));
  return Hdf5Dataset(CARAVAN_HDF5(IoError, where,
                                  H5Dcreate2(parent, name.c_str(), type, space.get(), H5P_DEFAULT,
                                             properties.get(), H5P_DEFAULT)));
}

std::int64_t dataset_offset(hid_t dataset, const Hdf5Place& place) {
  const haddr_t offset = H5Dget_offset(dataset);
  CARAVAN_CHECK(offset != HADDR_UNDEF && std::in_range<std::int64_t>(offset), IoError,
                "{}: HDF5 gives the data no place in the file", place.text());
  return static_cast<std::int64_t>(offset);
}

}  // namespace caravan::io
