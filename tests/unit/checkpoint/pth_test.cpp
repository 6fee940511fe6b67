#include "caravan/checkpoint/pth.h"

#include <gtest/gtest.h>

#include <numeric>

#include "caravan/checkpoint/pickle.h"
#include "caravan/checkpoint/source_tensor.h"
#include "caravan/checkpoint/zip_directory.h"
#include "caravan/core/error.h"
#include "generated_pth.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

namespace pickled = test::pickled;
using test::expect_error;
using test::PthBuilder;
using test::TemporaryFolder;
using test::ZipBuilder;

struct ZipDirectory : testing::Test {
  std::vector<ZipEntry> read(const std::string& content) const {
    io::InputFile file(folder.write("a.zip", content));
    return read_zip_directory(file);
  }
  void expect_refusal(const std::string& content, const std::string& words) const {
    expect_error<InputError>([&] { read(content); }, words);
  }
  TemporaryFolder folder;
};

TEST_F(ZipDirectory, FindsTheDataOfPlainAndLargeArchives) {
  for (const auto form : {ZipBuilder::Form::kPlain, ZipBuilder::Form::kZip64}) {
    ZipBuilder zip(form);
    zip.add("a", "first");
    zip.add("folder/b", "");
    zip.add("c", "third one");
    const std::string content = zip.file("a comment with PK\x05\x06 in it");
    const auto entries = read(content);
    ASSERT_EQ(entries.size(), 3U);
    EXPECT_EQ(entries[1].name, "folder/b");
    EXPECT_EQ(content.substr(static_cast<std::size_t>(entries[2].offset),
                             static_cast<std::size_t>(entries[2].bytes)),
              "third one");
  }
}

TEST_F(ZipDirectory, RefusesWhatItCannotReadByName) {
  ZipBuilder compressed;
  compressed.add("a", "data", 0, 8);
  expect_refusal(compressed.file(), "is compressed (entry \"a\", method 8)");
  ZipBuilder encrypted;
  encrypted.add("a", "data", 1, 0);
  expect_refusal(encrypted.file(), "is encrypted (entry \"a\")");
}

TEST_F(ZipDirectory, RefusesPlacesThatCannotBe) {
  ZipBuilder twice;
  twice.add("a", "data");
  twice.add("a", "data");
  expect_refusal(twice.file(), "has \"a\" twice among its entries");
  ZipBuilder overlapping;
  overlapping.add("a", "data");
  overlapping.add_record("b", 4, 0);
  expect_refusal(overlapping.file(), "another name for \"b\"");
  for (const auto form : {ZipBuilder::Form::kPlain, ZipBuilder::Form::kZip64}) {
    ZipBuilder outside(form);
    outside.add("a", "data");
    outside.add_record("b", 4, 1 << 20);
    expect_refusal(outside.file(), "it is truncated");
  }
  ZipBuilder huge(ZipBuilder::Form::kZip64);
  huge.add_record("b", 4, std::uint64_t{1} << 63);
  expect_refusal(huge.file(), "beyond 2^63");
  ZipBuilder no_header;
  no_header.add("a", std::string(100, 'x'));
  no_header.add_record("b", 4, 70);
  expect_refusal(no_header.file(), "has no header of the entry \"b\" at byte 70");
  ZipBuilder long_entry;
  const std::string inner = test::bytes_of_one<std::uint32_t>(0x04034b50) + std::string(22, '\0') +
                            test::bytes_of_one<std::uint16_t>(1) + std::string(2, '\0') + "b";
  long_entry.add("a", inner);
  long_entry.add_record("b", 0, 64);  // a header inside the data of "a"
  expect_refusal(long_entry.file(), "overlapping");
}

TEST_F(ZipDirectory, RefusesEveryTruncation) {
  ZipBuilder zip(ZipBuilder::Form::kZip64);
  zip.add("a", "data");
  zip.add("b", "data");
  const std::string content = zip.file();
  for (std::size_t length = 0; length < content.size(); ++length)
    EXPECT_THROW(read(content.substr(0, length)), InputError) << length;
}

std::vector<PickledTensor> unpickle(const std::string& pickle) {
  return read_pickled_tensors(std::as_bytes(std::span(pickle)), "p");
}

void expect_pickle_refusal(const std::string& pickle, const std::string& words) {
  expect_error<InputError>([&] { unpickle(pickle); }, words);
}

const std::string kStorage = pickled::storage("FloatStorage", "0", 6);
const std::string kTensor = pickled::tensor(kStorage, 2, {2, 2}, {2, 1});

TEST(Pickle, ReadsTensorsAndLeavesOutTheRest) {
  const auto tensors = unpickle(pickled::whole(
      pickled::dict(pickled::text("w") + kTensor + pickled::text("epochs") + "K\x03" +
                    pickled::text("rate") + "G12345678" + pickled::text("none") + "N")));
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "w");
  EXPECT_EQ(tensors[0].storage_type, "FloatStorage");
  EXPECT_EQ(tensors[0].storage_key, "0");
  EXPECT_EQ(tensors[0].storage_elements, 6);
  EXPECT_EQ(tensors[0].offset, 2);
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(tensors[0].strides, (std::vector<std::int64_t>{2, 1}));
}

TEST(Pickle, FindsStateDictsInOtherDictsAndOfModules) {
  const std::string inner = pickled::dict(pickled::text("w") + kTensor);
  EXPECT_EQ(unpickle(pickled::whole(pickled::dict(pickled::text("seed") + "K\x03" +
                                                  pickled::text("model") + inner)))
                .size(),
            1U);
  // An OrderedDict with the attributes that Module.state_dict() gives it, holding a Parameter.
  const std::string parameter = pickled::global("torch._utils", "_rebuild_parameter") + "(" +
                                kTensor + "\x88" + pickled::global("collections", "OrderedDict") +
                                ")RtR";
  EXPECT_EQ(unpickle(pickled::whole(pickled::global("collections", "OrderedDict") + ")R(" +
                                    pickled::text("w") + parameter + "u" +
                                    pickled::dict(pickled::text("_metadata") + "}") + "b"))
                .size(),
            1U);
}

TEST(Pickle, ReadsNewerProtocols) {
  const auto name = [](const std::string& text) {
    return "\x8c" + std::string(1, static_cast<char>(text.size())) + text + "\x94";
  };
  const std::string storage = "(" + name("storage") + name("torch") + name("HalfStorage") +
                              "\x93\x94" + name("7") + name("cpu") + "K\x04tQ";
  const std::string pickle = std::string("\x80\x04\x95") + std::string(8, '\0') + "}\x94(" +
                             name("w") + name("torch._utils") + name("_rebuild_tensor_v2") +
                             "\x93(" + storage + std::string("K\0", 2) + "K\x04\x85K\x01\x85" +
                             "\x89}tRu.";
  const auto tensors = unpickle(pickle);
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].storage_type, "HalfStorage");
  EXPECT_EQ(tensors[0].shape, (std::vector<std::int64_t>{4}));
}

TEST(Pickle, RefusesEverythingThatIsNotATensorByName) {
  const auto refused = [](const std::string& value) {
    return pickled::whole(pickled::dict(pickled::text("w") + value));
  };
  expect_pickle_refusal(refused(pickled::global("os", "system") + "(" + pickled::text("ls") + "tR"),
                        "\"os.system\"");
  expect_pickle_refusal(refused(pickled::global("builtins", "eval")), "\"builtins.eval\"");
  expect_pickle_refusal(refused(pickled::global("torch", "load")), "\"torch.load\"");
  expect_pickle_refusal(refused(pickled::global("torch._utils", "_rebuild_qtensor")),
                        "\"torch._utils._rebuild_qtensor\"");
  expect_pickle_refusal(refused(pickled::global("torch", "FloatStorage") + ")R"),
                        "an empty FloatStorage");
  expect_pickle_refusal(refused("ios\nsystem\n"), "the operation 0x69");  // INST
  expect_pickle_refusal(refused("\x82\x01"), "the operation 0x82");       // EXT1
  expect_pickle_refusal(refused(")\x81"), "the operation 0x81");          // NEWOBJ
  expect_pickle_refusal(refused("Vtext\n"), "the operation 0x56");        // UNICODE
}

TEST(Pickle, RefusesMalformedPickles) {
  const std::string good = pickled::whole(pickled::dict(pickled::text("w") + kTensor));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(unpickle(good.substr(0, length)), InputError) << length;
  expect_pickle_refusal("\x80\x01.", "protocol 1, expected 2 to 5");
  expect_pickle_refusal(pickled::whole("}}"), "leaves 2 values");
  expect_pickle_refusal(pickled::whole("K\x01"), "holds no dict of tensors");
  expect_pickle_refusal(pickled::whole("}"), "holds no tensors");
  expect_pickle_refusal(pickled::whole("h\x05"), "the remembered value 5 is missing");
  expect_pickle_refusal(pickled::whole("}(N" + kTensor + "u"), "where a text is expected");
  expect_pickle_refusal(pickled::whole("}(Nu"), "a key without a value");
  expect_pickle_refusal(pickled::whole("N(NNu"), "added to what is not a dict");
  expect_pickle_refusal(pickled::whole("(s"), "a value is missing");
  expect_pickle_refusal(pickled::whole("t"), "a mark is missing");
  expect_pickle_refusal(pickled::whole("NQ"), "a tuple of 5 to 5 values");
  expect_pickle_refusal(
      pickled::whole(pickled::dict(pickled::text("w") + pickled::tensor("N", 0, {1}, {1}))),
      "a tensor without a storage");
  expect_pickle_refusal(
      pickled::whole(pickled::dict(pickled::text("w") + pickled::tensor(kStorage, 0, {1}, {}))),
      "1 extents and 0 strides");
  expect_pickle_refusal(
      pickled::whole(pickled::dict(pickled::text("w") + kTensor + pickled::text("w") + kTensor)),
      "the tensor \"w\" twice");
  expect_pickle_refusal("\x80\x02X" + test::bytes_of_one(0x7fffffffU), "a text of 2147483647");
}

TEST(Pickle, BoundsWhatAShortPickleMakes) {
  // A dict that is doubled again and again through the memo: not deep, but wide.
  std::string pickle = "\x80\x02}q" + std::string(1, '\0') + "(";
  pickle += std::string(40'000'000, 'N');
  expect_pickle_refusal(pickle, "expected at most");
  expect_pickle_refusal("\x80\x02" + std::string(5'000'000, 'N') + ".", "more than 4194304 values");
  std::string cyclic =
      "}q" + std::string(1, '\0') + pickled::text("self") + "h" + std::string(1, '\0') + "s";
  expect_pickle_refusal(pickled::whole(cyclic), "holds no tensors");
}

struct PthFile : testing::Test {
  std::vector<PthEntry> read(const std::string& content) const {
    io::InputFile file(folder.write("m.pth", content));
    return read_pth(file);
  }
  void expect_refusal(const std::string& content, const std::string& words) const {
    expect_error<InputError>([&] { read(content); }, words);
  }
  TemporaryFolder folder;
};

TEST_F(PthFile, HonoursOffsetsAndStridesOfSharedStorages) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0F);
  PthBuilder builder;
  builder.add("unused", {24}, values);
  const std::string storage = pickled::storage("FloatStorage", "0", 24);
  const std::string content = builder.file_of(pickled::whole(
      pickled::dict(pickled::text("rows") + pickled::tensor(storage, 1, {3, 2}, {6, 1}) +
                    pickled::text("columns") + pickled::tensor(storage, 2, {2, 3}, {1, 4}) +
                    pickled::text("dense") + pickled::tensor(storage, 4, {2, 2}, {2, 1}))));
  const auto entries = read(content);
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_TRUE(entries[2].strides.empty());
  io::InputFile file(folder.file("m.pth"));
  const std::vector<std::vector<float>> expected = {
      {1, 2, 7, 8, 13, 14}, {2, 6, 10, 3, 7, 11}, {4, 5, 6, 7}};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    SourceTensor tensor = {entries[i].name, *entries[i].type, entries[i].shape, 0,
                           entries[i].offset};
    tensor.strides = entries[i].strides;
    std::vector<float> got(expected[i].size());
    read_rectangle(file, tensor, {0, tensor.shape[0]}, {0, tensor.shape[1]}, got.data());
    EXPECT_EQ(got, expected[i]) << tensor.name;
    std::vector<float> corner(1);
    read_rectangle(file, tensor, {1, 2}, {1, 2}, corner.data());
    EXPECT_EQ(corner[0], expected[i][static_cast<std::size_t>(tensor.shape[1] + 1)]) << tensor.name;
  }
}

TEST_F(PthFile, RefusesTensorsOutsideOfTheirStorage) {
  PthBuilder builder;
  builder.add("w", {6}, std::vector<float>(6));
  const auto with = [&](const std::string& tensor) {
    return builder.file_of(pickled::whole(pickled::dict(pickled::text("w") + tensor)));
  };
  expect_refusal(with(pickled::tensor(kStorage, 1, {6}, {1})), "reaches beyond its storage");
  expect_refusal(with(pickled::tensor(kStorage, -1, {2}, {1})), "reaches beyond its storage");
  expect_refusal(with(pickled::tensor(kStorage, 0, {2, 2}, {5, 1})), "reaches beyond its storage");
  expect_refusal(with(pickled::tensor(kStorage, 0, {2, 2}, {1L << 62, 1L << 62})),
                 "impossible strides");
  expect_refusal(with(pickled::tensor(kStorage, 0, {2, 2}, {-1, 1})), "impossible strides");
  expect_refusal(with(pickled::tensor(kStorage, 0, {0, 2}, {2, 1})), "impossible shape [0, 2]");
  expect_refusal(with(pickled::tensor(kStorage, 0, {1L << 40, 1L << 40}, {0, 0})),
                 "impossible shape");
  expect_refusal(with(pickled::tensor(kStorage, 0, {2, 2}, {2, 2})), "has the strides [2, 2]");
  expect_refusal(with(pickled::tensor(pickled::storage("FloatStorage", "0", 7), 0, {2}, {1})),
                 "a storage of 24 bytes, expected 7 elements");
  expect_refusal(with(pickled::tensor(pickled::storage("DoubleStorage", "0", 6), 0, {2}, {1})),
                 "a storage of 24 bytes, expected 6 elements");
  expect_refusal(with(pickled::tensor(pickled::storage("FloatStorage", "1", 6), 0, {2}, {1})),
                 "storage \"1\", which the archive does not have");
}

TEST_F(PthFile, RefusesOtherArchives) {
  ZipBuilder other;
  other.add("word/document.xml", "x");
  expect_refusal(other.file(), "no data.pkl");
  ZipBuilder two;
  two.add("a/data.pkl", "x");
  two.add("b/data.pkl", "x");
  expect_refusal(two.file(), "several pickles");
  ZipBuilder big_endian;
  big_endian.add("a/data.pkl", pickled::whole(pickled::dict(pickled::text("w") + kTensor)));
  big_endian.add("a/byteorder", "big");
  expect_refusal(big_endian.file(), "big-endian machine");
}

TEST(JoinedTensors, AreReadAcrossTheirParts) {
  const TemporaryFolder folder;
  std::vector<io::InputFile> files;
  std::vector<SourceTensor> parts;
  // Part p of a 4 x 5 matrix, cut along either axis, holds 10 * row + column of the whole.
  for (const std::size_t axis : {0U, 1U}) {
    files.clear();
    parts.clear();
    const std::vector<Range> cuts =
        axis == 0 ? std::vector<Range>{{0, 1}, {1, 4}} : std::vector<Range>{{0, 2}, {2, 3}, {3, 5}};
    for (std::size_t p = 0; p < cuts.size(); ++p) {
      const Range rows = axis == 0 ? cuts[p] : Range{0, 4};
      const Range columns = axis == 1 ? cuts[p] : Range{0, 5};
      std::vector<float> values;
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        for (std::int64_t c = columns.begin; c < columns.end; ++c)
          values.push_back(static_cast<float>(10 * r + c));
      }
      files.emplace_back(folder.write("part" + std::to_string(p), test::bytes_of(values)));
      parts.push_back(
          {"t", ElementType::kF32, {rows.size(), columns.size()}, static_cast<std::int64_t>(p)});
    }
    const SourceTensor whole = joined(parts, axis, "here");
    EXPECT_EQ(whole.shape, (std::vector<std::int64_t>{4, 5}));
    for (const Range rows : {Range{0, 4}, Range{0, 1}, Range{1, 3}}) {
      for (const Range columns : {Range{0, 5}, Range{1, 4}, Range{2, 3}}) {
        std::vector<float> got(static_cast<std::size_t>(rows.size() * columns.size()), -1);
        read_rectangle(files, whole, rows, columns, got.data());
        std::vector<float> expected;
        for (std::int64_t r = rows.begin; r < rows.end; ++r) {
          for (std::int64_t c = columns.begin; c < columns.end; ++c)
            expected.push_back(static_cast<float>(10 * r + c));
        }
        EXPECT_EQ(got, expected) << axis << ", row " << rows.begin << ", column " << columns.begin;
      }
    }
    EXPECT_TRUE(same_values(files, whole, whole));
    EXPECT_FALSE(same_values(files, parts[0], parts[1]));
  }
  parts[0].shape[0] = 3;
  expect_error<InputError>([&] { joined(parts, 1, "here"); }, "do not fit together");
}

}  // namespace
}  // namespace caravan::checkpoint
