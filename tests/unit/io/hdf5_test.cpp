#include "caravan/io/hdf5.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <array>
#include <filesystem>

#include "caravan/core/error.h"
#include "caravan/io/input_file.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::io {
namespace {

using test::expect_error;
using test::TemporaryFolder;

struct Hdf5Test : testing::Test {
  TemporaryFolder folder;
  QuietHdf5 quiet;
  std::string path = folder.file("f.h5");
  Hdf5Place place{path, "/x"};
};

TEST_F(Hdf5Test, FloatTypesAreToldApartByTheirBits) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const Hdf5Type type = hdf5_type(dtype);
    EXPECT_EQ(dtype_of(type.get()), dtype) << dtype_name(dtype);
    EXPECT_EQ(static_cast<std::int64_t>(H5Tget_size(type.get())), element_bytes(dtype));
  }
  EXPECT_EQ(dtype_of(H5T_IEEE_F64LE), std::nullopt);
  EXPECT_EQ(dtype_of(H5T_IEEE_F32BE), std::nullopt);
  EXPECT_EQ(dtype_of(H5T_STD_U16LE), std::nullopt);
}

TEST_F(Hdf5Test, AttributesAndSmallDatasetsComeBack) {
  const std::vector<std::int32_t> ints = {3, -1, 7, 2};
  const std::vector<std::uint32_t> many(40000, 0xdeadbeefU);  // beyond 64 KiB
  {
    Hdf5File file = create_hdf5(path);
    write_text_attribute(file.get(), "text", "Größe", place);
    write_text_attribute(file.get(), "empty", "", place);
    write_integer_attribute(file.get(), "integer", -5, place);
    write_real_attribute(file.get(), "real", 0.1, place);
    write_int32_array_attribute(file.get(), "ints", ints, place);
    write_uint32_array_attribute(file.get(), "many", many, place);
    write_bytes_dataset(file.get(), "bytes", std::string("a\0b", 3), place);
    write_bytes_dataset(file.get(), "no_bytes", "", place);
    write_text_dataset(file.get(), "long", std::string(70000, 'q'), place);
    write_int32_dataset(file.get(), "pairs", ints, 2, place);
    const std::array<std::int64_t, 2> wide = {std::int64_t{1} << 40, -1};
    write_int64_dataset(file.get(), "wide", wide, place);
    close_hdf5(std::move(file), path);
  }
  const Hdf5File file = open_hdf5(path);
  EXPECT_EQ(read_text_attribute(file.get(), "text", 100, place), "Größe");
  EXPECT_EQ(read_text_attribute(file.get(), "empty", 100, place), "");
  EXPECT_EQ(read_text_attribute(file.get(), "absent", 100, place), std::nullopt);
  EXPECT_EQ(read_integer_attribute(file.get(), "integer", place), -5);
  EXPECT_EQ(read_real_attribute(file.get(), "real", place), 0.1);
  EXPECT_EQ(read_int32_array_attribute(file.get(), "ints", 4, place), ints);
  EXPECT_EQ(read_uint32_array_attribute(file.get(), "many", 40000, place), many);
  EXPECT_EQ(read_bytes_dataset(file.get(), "bytes", 3, place), std::string("a\0b", 3));
  EXPECT_EQ(read_bytes_dataset(file.get(), "no_bytes", 3, place), "");
  EXPECT_EQ(read_text_dataset(file.get(), "long", 70000, place), std::string(70000, 'q'));
  EXPECT_EQ(read_int32_dataset(file.get(), "pairs", 2, 4, place), ints);
  EXPECT_EQ(read_int64_dataset(file.get(), "wide", 2, place)[0], std::int64_t{1} << 40);
}

TEST_F(Hdf5Test, RefusesOtherTypesShapesAndSizes) {
  {
    Hdf5File file = create_hdf5(path);
    write_text_attribute(file.get(), "text", "0123456789", place);
    write_real_attribute(file.get(), "real", 1, place);
    const std::vector<std::int32_t> ints(6);
    write_int32_array_attribute(file.get(), "ints", ints, place);
    write_int32_dataset(file.get(), "pairs", ints, 2, place);
    close_hdf5(std::move(file), path);
  }
  const Hdf5File file = open_hdf5(path);
  expect_error<ConfigError>([&] { read_text_attribute(file.get(), "text", 9, place); },
                            "attribute text has 10 bytes, expected at most 9");
  expect_error<ConfigError>([&] { read_text_attribute(file.get(), "real", 9, place); },
                            "is not one text");
  expect_error<ConfigError>([&] { read_integer_attribute(file.get(), "real", place); },
                            "is not one 64-bit integer");
  expect_error<ConfigError>([&] { read_int32_array_attribute(file.get(), "ints", 5, place); },
                            "has 6 elements, expected at most 5");
  expect_error<ConfigError>([&] { read_uint32_array_attribute(file.get(), "ints", 9, place); },
                            "another element type");
  expect_error<ConfigError>([&] { read_int32_dataset(file.get(), "pairs", 1, 9, place); },
                            "has shape [3, 2], expected 1 columns");
  expect_error<ConfigError>([&] { read_int64_dataset(file.get(), "pairs", 9, place); },
                            "another element type");
}

// Creates dataset "d" with 64 int32 elements in a layout that is set by `change`.
template <typename Change>
void write_strange_dataset(const std::string& path, Change&& change) {
  const Hdf5File file = create_hdf5(path);
  const hsize_t dims = 64;
  const Hdf5Space space(CARAVAN_HDF5(IoError, path, H5Screate_simple(1, &dims, nullptr)));
  const Hdf5Properties properties(CARAVAN_HDF5(IoError, path, H5Pcreate(H5P_DATASET_CREATE)));
  change(properties.get());
  const Hdf5Dataset dataset(CARAVAN_HDF5(IoError, path,
                                         H5Dcreate2(file.get(), "d", H5T_STD_I32LE, space.get(),
                                                    H5P_DEFAULT, properties.get(), H5P_DEFAULT)));
}

TEST_F(Hdf5Test, RefusesDatasetsThatAreNotPlain) {
  const hsize_t chunk = 16;
  const auto expect_refusal = [&](const std::string& words) {
    const Hdf5File file = open_hdf5(path);
    expect_error<ConfigError>([&] { open_dataset(file.get(), "d", place); }, words);
  };
  write_strange_dataset(path, [&](hid_t p) { ASSERT_GE(H5Pset_chunk(p, 1, &chunk), 0); });
  expect_refusal("in chunks");
  write_strange_dataset(path, [&](hid_t p) { ASSERT_GE(H5Pset_layout(p, H5D_COMPACT), 0); });
  expect_refusal("compactly");
  write_strange_dataset(path,
                        [&](hid_t p) { ASSERT_GE(H5Pset_external(p, "other.bin", 0, 256), 0); });
  expect_refusal("another file");
  write_strange_dataset(path, [](hid_t) {});  // late allocation: nothing was stored
  expect_refusal("has no storage of 256 bytes");
}

TEST_F(Hdf5Test, RefusesLinksThatAreNotTheObjectItself) {
  {
    Hdf5File file = create_hdf5(path);
    write_bytes_dataset(file.get(), "d", "abc", place);
    ASSERT_GE(H5Lcreate_soft("/d", file.get(), "soft", H5P_DEFAULT, H5P_DEFAULT), 0);
    ASSERT_GE(H5Lcreate_external("g.h5", "/d", file.get(), "outside", H5P_DEFAULT, H5P_DEFAULT), 0);
    close_hdf5(std::move(file), path);
  }
  const Hdf5File file = open_hdf5(path);
  for (const char* name : {"soft", "outside"}) {
    expect_error<ConfigError>([&] { open_dataset(file.get(), name, place); },
                              "is a soft or external link");
    expect_error<ConfigError>([&] { open_group(file.get(), name, place); },
                              "is a soft or external link");
  }
  expect_error<ConfigError>([&] { open_group(file.get(), "none", place); }, "is missing");
  expect_error<ConfigError>([&] { open_group(file.get(), "d", place); }, "H5Gopen2");
  EXPECT_EQ(num_links(file.get(), place), 3);
}

// File systems without locks refuse flock(2), as a lock that somebody holds does.
TEST_F(Hdf5Test, NeedsNoFileLocks) {
  close_hdf5(create_hdf5(path), path);
  const FileDescriptor holder(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(holder.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_NO_THROW(open_hdf5(path));
  EXPECT_NO_THROW(close_hdf5(create_hdf5(path), path));
}

TEST_F(Hdf5Test, RefusesWhatIsNoHdf5FileOrIsCut) {
  expect_error<MissingInputError>([&] { open_hdf5(folder.file("none")); }, "No such file");
  expect_error<ConfigError>([&] { open_hdf5(folder.write("t", "hello")); }, "has 5 bytes");
  expect_error<ConfigError>([&] { open_hdf5(folder.write("t", std::string(100, 'x'))); },
                            "is not an HDF5 file (");
  {
    Hdf5File file = create_hdf5(path);
    write_text_dataset(file.get(), "long", std::string(70000, 'q'), place);
    close_hdf5(std::move(file), path);
  }
  const auto size = std::filesystem::file_size(path);
  for (const auto length : {size - 1, size / 2, std::uintmax_t{100}}) {
    std::filesystem::resize_file(path, length);
    expect_error<ConfigError>([&] { open_hdf5(path); }, "is truncated");
  }
  std::filesystem::resize_file(path, 20);
  expect_error<ConfigError>([&] { open_hdf5(path); }, "has 20 bytes");
  std::filesystem::resize_file(path, size);  // as long as before, but zeros
  expect_error<ConfigError>([&] { open_hdf5(path); }, "H5Fopen");
}

TEST_F(Hdf5Test, QuotesTheSystemsErrorWhenWritingFails) {
  expect_error<IoError>([&] { create_hdf5(folder.file("no/f.h5")); }, "No such file or directory");
}

}  // namespace
}  // namespace caravan::io
