#pragma once
// Owners of HDF5 handles, the check of its calls, and typed access to small values, with nothing
// trusted.
//
// Leaves out: what a checkpoint contains (checkpoint/). HDF5 is used by one thread at a time.

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/core/unique_handle.h"

namespace caravan::io {

void log_failed_hdf5_close(const char* kind) noexcept;

/// One kind of handle: its own type although HDF5 has a single one.
#define CARAVAN_DECLARE_HDF5_HANDLE(Name, close)              \
  struct Name##Traits {                                       \
    using Handle = hid_t;                                     \
    static Handle null() noexcept { return H5I_INVALID_HID; } \
    static void release(Handle handle) noexcept {             \
      if (close(handle) < 0) log_failed_hdf5_close(#Name);    \
    }                                                         \
  };                                                          \
  using Name = UniqueHandle<Name##Traits>

CARAVAN_DECLARE_HDF5_HANDLE(Hdf5File, H5Fclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Group, H5Gclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Dataset, H5Dclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Attribute, H5Aclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Space, H5Sclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Type, H5Tclose);
CARAVAN_DECLARE_HDF5_HANDLE(Hdf5Properties, H5Pclose);

#undef CARAVAN_DECLARE_HDF5_HANDLE

/// Silences HDF5's automatic printing of its error stack while it lives.
class QuietHdf5 {
 public:
  QuietHdf5() noexcept;
  ~QuietHdf5();
  QuietHdf5(const QuietHdf5&) = delete;
  QuietHdf5& operator=(const QuietHdf5&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// "<where>: <call> failed: <HDF5's own words> [file:line]"; empties HDF5's error stack.
std::string hdf5_failure(std::string_view where, const char* call, const char* file, int line);

template <typename ErrorType, typename Result>
Result check_hdf5(Result result, std::string_view where, const char* call, const char* file,
                  int line) {
  if (result < 0) throw ErrorType(hdf5_failure(where, call, file, line));
  return result;
}

/// Evaluates an HDF5 call and throws `ErrorType` if it reports a failure.
#define CARAVAN_HDF5(ErrorType, where, call) \
  ::caravan::io::check_hdf5<ErrorType>((call), (where), #call, __FILE__, __LINE__)

/// Opens an existing file for reading, without file locks.
/// @throws MissingInputError if it does not exist; ConfigError if it is not an HDF5 file or is
/// truncated.
Hdf5File open_hdf5(const std::string& path);

/// Creates (or empties) a file in the format of HDF5 1.10, large objects aligned to 4096 bytes.
/// @throws IoError.
Hdf5File create_hdf5(const std::string& path);

/// Flushes and closes, which is where a full disk shows.
/// @throws IoError.
void close_hdf5(Hdf5File file, const std::string& path);

/// The file type of an element: IEEE little-endian, bf16 as a 16-bit float type; int8, and uint8
/// for pairs of int4.
Hdf5Type hdf5_type(DType dtype);
/// Inverse, by the bit layout and not by name; empty for any other type.
std::optional<DType> dtype_of(hid_t type);

/// Where an object is, for messages: "MODEL.h5: /weights/text.embed".
struct Hdf5Place {
  std::string file;
  std::string object;
  std::string text() const { return file + ": " + object; }
};

/// What a contiguous, unfiltered dataset of this file is.
struct Hdf5DatasetInfo {
  Hdf5Dataset dataset;
  Hdf5Type type;
  std::vector<std::int64_t> shape;
  std::int64_t file_offset = 0;
  std::int64_t bytes = 0;
};

/// Opens `name` (one path component) of `parent`. Refused with ConfigError: links that leave the
/// file or point elsewhere, chunked, compact, virtual, filtered or external storage, more than two
/// dimensions, storage that the file does not hold.
Hdf5DatasetInfo open_dataset(hid_t parent, const std::string& name, const Hdf5Place& place);

/// Opens group `name` of `parent`; hard links only. @throws ConfigError.
Hdf5Group open_group(hid_t parent, const std::string& name, const Hdf5Place& place);

/// Whether `parent` has a link of this name.
bool has_link(hid_t parent, const std::string& name, const Hdf5Place& place);

/// Number of links of a group. There is no list of their names: HDF5 1.10 frees memory that it
/// never had when it fails while it lists a damaged group, so that callers ask for the names they
/// know.
std::int64_t num_links(hid_t group, const Hdf5Place& place);

// Attributes. Readers give nothing when there is no such attribute.
// @throws ConfigError for another type, shape or a size above the limit.
std::optional<std::string> read_text_attribute(hid_t object, const char* name,
                                               std::int64_t max_bytes, const Hdf5Place& place);
std::optional<std::int64_t> read_integer_attribute(hid_t object, const char* name,
                                                   const Hdf5Place& place);
std::optional<double> read_real_attribute(hid_t object, const char* name, const Hdf5Place& place);
std::optional<std::vector<std::int32_t>> read_int32_array_attribute(hid_t object, const char* name,
                                                                    std::int64_t max_count,
                                                                    const Hdf5Place& place);
std::optional<std::vector<std::uint32_t>> read_uint32_array_attribute(hid_t object,
                                                                      const char* name,
                                                                      std::int64_t max_count,
                                                                      const Hdf5Place& place);

// Writers. @throws IoError.
void write_text_attribute(hid_t object, const char* name, std::string_view value,
                          const Hdf5Place& place);
void write_integer_attribute(hid_t object, const char* name, std::int64_t value,
                             const Hdf5Place& place);
void write_real_attribute(hid_t object, const char* name, double value, const Hdf5Place& place);
void write_int32_array_attribute(hid_t object, const char* name,
                                 std::span<const std::int32_t> values, const Hdf5Place& place);
void write_uint32_array_attribute(hid_t object, const char* name,
                                  std::span<const std::uint32_t> values, const Hdf5Place& place);

// Small datasets, contiguous. An empty value is stored as no dataset, and absence reads as empty.
// @throws IoError on writing, ConfigError on reading.
void write_bytes_dataset(hid_t parent, const std::string& name, std::string_view bytes,
                         const Hdf5Place& place);
void write_text_dataset(hid_t parent, const std::string& name, std::string_view text,
                        const Hdf5Place& place);
void write_int32_dataset(hid_t parent, const std::string& name,
                         std::span<const std::int32_t> values, std::int64_t columns,
                         const Hdf5Place& place);
void write_int64_dataset(hid_t parent, const std::string& name,
                         std::span<const std::int64_t> values, const Hdf5Place& place);
std::string read_bytes_dataset(hid_t parent, const std::string& name, std::int64_t max_bytes,
                               const Hdf5Place& place);
std::string read_text_dataset(hid_t parent, const std::string& name, std::int64_t max_bytes,
                              const Hdf5Place& place);
/// Row-major values of a dataset with `columns` columns (1: one dimension).
std::vector<std::int32_t> read_int32_dataset(hid_t parent, const std::string& name,
                                             std::int64_t columns, std::int64_t max_count,
                                             const Hdf5Place& place);
std::vector<std::int64_t> read_int64_dataset(hid_t parent, const std::string& name,
                                             std::int64_t max_count, const Hdf5Place& place);

/// Creates a contiguous dataset with early allocation, no fill, and attributes of any size.
/// @throws IoError.
Hdf5Dataset create_dataset(hid_t parent, const std::string& name, hid_t type,
                           std::span<const std::int64_t> shape, const Hdf5Place& place);

/// Where the data of such a dataset is, in bytes from the start of the file.
/// @throws IoError.
std::int64_t dataset_offset(hid_t dataset, const Hdf5Place& place);

}  // namespace caravan::io
