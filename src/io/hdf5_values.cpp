// Typed attributes and small datasets of hdf5.h.

#include <fmt/format.h>

#include <algorithm>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/hdf5.h"

namespace caravan::io {
namespace {

std::string attribute_place(const Hdf5Place& place, const char* name) {
  return place.text() + ", attribute " + name;
}

// Fixed-length text: HDF5 knows no empty string type, so that "" is one NUL.
Hdf5Type text_type(std::size_t bytes, const std::string& where) {
  Hdf5Type type(CARAVAN_HDF5(IoError, where, H5Tcopy(H5T_C_S1)));
  CARAVAN_HDF5(IoError, where, H5Tset_size(type.get(), std::max<std::size_t>(bytes, 1)));
  CARAVAN_HDF5(IoError, where, H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  CARAVAN_HDF5(IoError, where, H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

void strip_padding(std::string& text) {
  const std::size_t last = text.find_last_not_of('\0');
  text.resize(last == std::string::npos ? 0 : last + 1);
}

// At least one byte, so that an empty text has something to point at.
std::string padded(std::string_view text) {
  return text.empty() ? std::string(1, '\0') : std::string(text);
}

void write_attribute(hid_t object, const char* name, hid_t type, const Hdf5Space& space,
                     const void* data, const std::string& where) {
  const Hdf5Attribute attribute(CARAVAN_HDF5(
      IoError, where, H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  CARAVAN_HDF5(IoError, where, H5Awrite(attribute.get(), type, data));
}

Hdf5Space scalar_space(const std::string& where) {
  return Hdf5Space(CARAVAN_HDF5(IoError, where, H5Screate(H5S_SCALAR)));
}

void write_array_attribute(hid_t object, const char* name, hid_t type, const void* data,
                           std::size_t count, const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const hsize_t dims = count;
  const Hdf5Space space(CARAVAN_HDF5(IoError, where, H5Screate_simple(1, &dims, nullptr)));
  write_attribute(object, name, type, space, data, where);
}

struct OpenAttribute {
  Hdf5Attribute attribute;
  Hdf5Type type;
  std::int64_t count = 0;
};

std::optional<OpenAttribute> open_attribute(hid_t object, const char* name,
                                            const std::string& where) {
  if (CARAVAN_HDF5(ConfigError, where, H5Aexists(object, name)) == 0) return std::nullopt;
  OpenAttribute open;
  open.attribute =
      Hdf5Attribute(CARAVAN_HDF5(ConfigError, where, H5Aopen(object, name, H5P_DEFAULT)));
  open.type = Hdf5Type(CARAVAN_HDF5(ConfigError, where, H5Aget_type(open.attribute.get())));
  const Hdf5Space space(CARAVAN_HDF5(ConfigError, where, H5Aget_space(open.attribute.get())));
  open.count = CARAVAN_HDF5(ConfigError, where, H5Sget_simple_extent_npoints(space.get()));
  return open;
}

void check_is_fixed_text(hid_t type, std::int64_t count, std::int64_t max_bytes,
                         const std::string& where) {
  CARAVAN_CHECK(H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && count == 1,
                ConfigError, "{} is not one text of fixed length", where);
  CARAVAN_CHECK(std::cmp_less_equal(H5Tget_size(type), max_bytes), ConfigError,
                "{} has {} bytes, expected at most {}", where, H5Tget_size(type), max_bytes);
}

template <typename T>
std::optional<std::vector<T>> read_array_attribute(hid_t object, const char* name, hid_t type,
                                                   std::int64_t max_count, const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const auto open = open_attribute(object, name, where);
  if (!open) return std::nullopt;
  CARAVAN_CHECK(H5Tequal(open->type.get(), type) > 0, ConfigError,
                "{} has another element type than expected", where);
  CARAVAN_CHECK(open->count <= max_count, ConfigError, "{} has {} elements, expected at most {}",
                where, open->count, max_count);
  std::vector<T> values(checked_cast<std::size_t>(open->count));
  if (!values.empty())
    CARAVAN_HDF5(ConfigError, where, H5Aread(open->attribute.get(), type, values.data()));
  return values;
}

void write_dataset(hid_t parent, const std::string& name, hid_t type,
                   std::span<const std::int64_t> shape, const void* data, const Hdf5Place& place) {
  const Hdf5Dataset dataset = create_dataset(parent, name, type, shape, place);
  CARAVAN_HDF5(IoError, place.text(),
               H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
}

template <typename T>
std::vector<T> read_dataset(hid_t parent, const std::string& name, hid_t type, std::int64_t columns,
                            std::int64_t max_count, const Hdf5Place& place) {
  if (!has_link(parent, name, place)) return {};
  const Hdf5DatasetInfo info = open_dataset(parent, name, place);
  CARAVAN_CHECK(H5Tequal(info.type.get(), type) > 0, ConfigError,
                "{} has another element type than expected", place.text());
  const bool shape_fits =
      columns == 1 ? info.shape.size() == 1 : info.shape.size() == 2 && info.shape[1] == columns;
  CARAVAN_CHECK(shape_fits, ConfigError, "{} has shape [{}], expected {} columns", place.text(),
                fmt::join(info.shape, ", "), columns);
  const std::int64_t count = info.bytes / static_cast<std::int64_t>(sizeof(T));
  CARAVAN_CHECK(count <= max_count, ConfigError, "{} has {} elements, expected at most {}",
                place.text(), count, max_count);
  std::vector<T> values(checked_cast<std::size_t>(count));
  CARAVAN_HDF5(ConfigError, place.text(),
               H5Dread(info.dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return values;
}

}  // namespace

std::optional<std::string> read_text_attribute(hid_t object, const char* name,
                                               std::int64_t max_bytes, const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const auto open = open_attribute(object, name, where);
  if (!open) return std::nullopt;
  check_is_fixed_text(open->type.get(), open->count, max_bytes, where);
  std::string text(H5Tget_size(open->type.get()), '\0');
  CARAVAN_HDF5(ConfigError, where, H5Aread(open->attribute.get(), open->type.get(), text.data()));
  strip_padding(text);
  return text;
}

std::optional<std::int64_t> read_integer_attribute(hid_t object, const char* name,
                                                   const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const auto open = open_attribute(object, name, where);
  if (!open) return std::nullopt;
  CARAVAN_CHECK(H5Tequal(open->type.get(), H5T_STD_I64LE) > 0 && open->count == 1, ConfigError,
                "{} is not one 64-bit integer", where);
  std::int64_t value = 0;
  CARAVAN_HDF5(ConfigError, where, H5Aread(open->attribute.get(), H5T_NATIVE_INT64, &value));
  return value;
}

std::optional<double> read_real_attribute(hid_t object, const char* name, const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const auto open = open_attribute(object, name, where);
  if (!open) return std::nullopt;
  CARAVAN_CHECK(H5Tequal(open->type.get(), H5T_IEEE_F64LE) > 0 && open->count == 1, ConfigError,
                "{} is not one 64-bit real number", where);
  double value = 0;
  CARAVAN_HDF5(ConfigError, where, H5Aread(open->attribute.get(), H5T_NATIVE_DOUBLE, &value));
  return value;
}

std::optional<std::vector<std::int32_t>> read_int32_array_attribute(hid_t object, const char* name,
                                                                    std::int64_t max_count,
                                                                    const Hdf5Place& place) {
  return read_array_attribute<std::int32_t>(object, name, H5T_STD_I32LE, max_count, place);
}

std::optional<std::vector<std::uint32_t>> read_uint32_array_attribute(hid_t object,
                                                                      const char* name,
                                                                      std::int64_t max_count,
                                                                      const Hdf5Place& place) {
  return read_array_attribute<std::uint32_t>(object, name, H5T_STD_U32LE, max_count, place);
}

void write_text_attribute(hid_t object, const char* name, std::string_view value,
                          const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  const Hdf5Type type = text_type(value.size(), where);
  write_attribute(object, name, type.get(), scalar_space(where), padded(value).data(), where);
}

void write_integer_attribute(hid_t object, const char* name, std::int64_t value,
                             const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  write_attribute(object, name, H5T_STD_I64LE, scalar_space(where), &value, where);
}

void write_real_attribute(hid_t object, const char* name, double value, const Hdf5Place& place) {
  const std::string where = attribute_place(place, name);
  write_attribute(object, name, H5T_IEEE_F64LE, scalar_space(where), &value, where);
}

void write_int32_array_attribute(hid_t object, const char* name,
                                 std::span<const std::int32_t> values, const Hdf5Place& place) {
  write_array_attribute(object, name, H5T_STD_I32LE, values.data(), values.size(), place);
}

void write_uint32_array_attribute(hid_t object, const char* name,
                                  std::span<const std::uint32_t> values, const Hdf5Place& place) {
  write_array_attribute(object, name, H5T_STD_U32LE, values.data(), values.size(), place);
}

void write_bytes_dataset(hid_t parent, const std::string& name, std::string_view bytes,
                         const Hdf5Place& place) {
  if (bytes.empty()) return;
  const auto count = static_cast<std::int64_t>(bytes.size());
  write_dataset(parent, name, H5T_STD_U8LE, std::span(&count, 1), bytes.data(), place);
}

void write_text_dataset(hid_t parent, const std::string& name, std::string_view text,
                        const Hdf5Place& place) {
  if (text.empty()) return;
  const Hdf5Type type = text_type(text.size(), place.text());
  const std::int64_t one = 1;
  write_dataset(parent, name, type.get(), std::span(&one, 1), text.data(), place);
}

void write_int32_dataset(hid_t parent, const std::string& name,
                         std::span<const std::int32_t> values, std::int64_t columns,
                         const Hdf5Place& place) {
  if (values.empty()) return;
  const auto count = static_cast<std::int64_t>(values.size());
  CARAVAN_ASSERT(count % columns == 0, "{} values in {} columns", count, columns);
  const std::vector<std::int64_t> shape =
      columns == 1 ? std::vector{count} : std::vector{count / columns, columns};
  write_dataset(parent, name, H5T_STD_I32LE, shape, values.data(), place);
}

void write_int64_dataset(hid_t parent, const std::string& name,
                         std::span<const std::int64_t> values, const Hdf5Place& place) {
  if (values.empty()) return;
  const auto count = static_cast<std::int64_t>(values.size());
  write_dataset(parent, name, H5T_STD_I64LE, std::span(&count, 1), values.data(), place);
}

std::string read_bytes_dataset(hid_t parent, const std::string& name, std::int64_t max_bytes,
                               const Hdf5Place& place) {
  const auto bytes = read_dataset<unsigned char>(parent, name, H5T_STD_U8LE, 1, max_bytes, place);
  return std::string(bytes.begin(), bytes.end());
}

std::string read_text_dataset(hid_t parent, const std::string& name, std::int64_t max_bytes,
                              const Hdf5Place& place) {
  if (!has_link(parent, name, place)) return {};
  const Hdf5DatasetInfo info = open_dataset(parent, name, place);
  const std::int64_t elements =
      info.bytes / static_cast<std::int64_t>(H5Tget_size(info.type.get()));
  check_is_fixed_text(info.type.get(), elements, max_bytes, place.text());
  std::string text(H5Tget_size(info.type.get()), '\0');
  CARAVAN_HDF5(
      ConfigError, place.text(),
      H5Dread(info.dataset.get(), info.type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()));
  strip_padding(text);
  return text;
}

std::vector<std::int32_t> read_int32_dataset(hid_t parent, const std::string& name,
                                             std::int64_t columns, std::int64_t max_count,
                                             const Hdf5Place& place) {
  return read_dataset<std::int32_t>(parent, name, H5T_STD_I32LE, columns, max_count, place);
}

std::vector<std::int64_t> read_int64_dataset(hid_t parent, const std::string& name,
                                             std::int64_t max_count, const Hdf5Place& place) {
  return read_dataset<std::int64_t>(parent, name, H5T_STD_I64LE, 1, max_count, place);
}

}  // namespace caravan::io
