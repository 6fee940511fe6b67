#include "caravan/checkpoint/zip_checksums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "caravan/checkpoint/convert.h"
#include "caravan/core/error.h"
#include "generated_model.h"
#include "generated_pth.h"
#include "support/expect_error.h"
#include "support/small_random.h"
#include "support/temporary_folder.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;
using test::HfFolder;
using test::PthBuilder;
using test::TemporaryFolder;
using test::TorchTensor;

/// An archive of three entries, perhaps with a byte changed.
struct ChecksumTest : testing::Test {
  ChecksumTest() {
    std::string data(5000, '\0');
    std::iota(data.begin(), data.end(), '\1');
    test::ZipBuilder zip;
    zip.add("first", data.substr(0, 700));
    zip.add("second", data);
    zip.add("empty", "");
    content = zip.file();
  }
  io::InputFile opened() const { return io::InputFile(folder.write("a.zip", content)); }
  ZipEntry second() const {
    io::InputFile file = opened();
    return read_zip_directory(file).at(1);
  }
  void damage(std::int64_t offset) {
    content[static_cast<std::size_t>(offset)] =
        static_cast<char>(content[static_cast<std::size_t>(offset)] ^ 16);
  }

  static void read(io::InputFile& file, std::int64_t offset, std::int64_t bytes) {
    std::vector<std::byte> buffer(static_cast<std::size_t>(bytes));
    file.read(offset, buffer);
  }
  /// Has every read of `file` checked.
  static std::unique_ptr<ZipChecksums> watch(io::InputFile& file) {
    auto checksums = std::make_unique<ZipChecksums>("a.zip", read_zip_directory(file));
    file.observe([seen = checksums.get()](std::int64_t offset, std::span<const std::byte> bytes) {
      seen->see(offset, bytes);
    });
    return checksums;
  }

  TemporaryFolder folder;
  std::string content;
};

const std::string kFault = "a.zip: the checksum of its entry \"second\" is ";

TEST_F(ChecksumTest, AcceptsPiecesInAnyOrderAlsoAgain) {
  test::SmallRandom random(11);
  for (int round = 0; round < 30; ++round) {
    io::InputFile file = opened();
    const auto checksums = watch(file);
    const std::int64_t step = 1 + static_cast<std::int64_t>(random.next() % 900);
    std::vector<std::int64_t> offsets;
    for (std::int64_t at = 0; at < file.size(); at += step) offsets.push_back(at);
    for (std::size_t i = offsets.size(); i > 1; --i)
      std::swap(offsets[i - 1], offsets[random.next() % i]);
    for (const std::int64_t at : offsets) {
      const std::int64_t bytes = static_cast<std::int64_t>(random.next() % 1000) + step;
      EXPECT_NO_THROW(read(file, at, std::min(bytes, file.size() - at))) << "round " << round;
    }
    EXPECT_NO_THROW(checksums->finish(file));
  }
}

TEST_F(ChecksumTest, FindsAnyChangedByte) {
  const ZipEntry entry = second();
  test::SmallRandom random(12);
  for (int round = 0; round < 30; ++round) {
    const auto place = static_cast<std::int64_t>(random.next() % 5000);
    damage(entry.offset + place);
    io::InputFile file = opened();
    const auto checksums = watch(file);
    const std::int64_t cut = 1 + static_cast<std::int64_t>(random.next() % 4999);
    EXPECT_NO_THROW(read(file, entry.offset + cut, 5000 - cut));
    expect_error<InputError>([&] { read(file, entry.offset, cut); }, kFault);
    damage(entry.offset + place);  // mends it
  }
}

TEST_F(ChecksumTest, CompletesWhatWasReadInPart) {
  const ZipEntry entry = second();
  damage(entry.offset + 4321);
  io::InputFile file = opened();
  const auto checksums = watch(file);
  EXPECT_NO_THROW(checksums->finish(file));  // nothing was read of it
  read(file, entry.offset + 10, 20);
  read(file, entry.offset + 4000, 100);
  expect_error<InputError>([&] { checksums->finish(file); }, kFault);
}

TEST_F(ChecksumTest, ThreadsMayReadAtTheSameTime) {
  const ZipEntry entry = second();
  for (const bool damaged : {false, true}) {
    if (damaged) damage(entry.offset + 77);
    io::InputFile file = opened();
    const auto checksums = watch(file);
    std::atomic<int> refusals = 0;
    {
      std::vector<std::jthread> threads;
      for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
          for (std::int64_t i = thread / 2; i < 100; i += 2) {  // two threads read the same
            try {
              read(file, entry.offset + i * 50, 50);
            } catch (const InputError&) {
              ++refusals;
            }
          }
        });
      }
    }
    EXPECT_EQ(refusals, damaged ? 1 : 0);
  }
}

TEST_F(ChecksumTest, EntriesWithoutAChecksumAreAccepted) {
  io::InputFile file = opened();
  std::vector<ZipEntry> entries = read_zip_directory(file);
  for (ZipEntry& entry : entries) {
    EXPECT_EQ(entry.crc32 == 0, entry.bytes == 0) << entry.name;
    entry.crc32 = 0;
  }
  ZipChecksums checksums("a.zip", entries);
  std::vector<std::byte> zeros(static_cast<std::size_t>(file.size()));
  EXPECT_NO_THROW(checksums.see(0, zeros));
}

// A pickled Hugging Face folder whose archive is damaged or has no checksums.
struct DamagedArchive : testing::Test {
  DamagedArchive() {
    for (const TorchTensor& tensor : test::torch_tensors(test::small_config())) {
      weights.add(source_tensor_name(tensor.canonical_name, NameStyle::kHuggingFace), tensor.shape,
                  tensor.values);
    }
    folder.write();
    folder.remove("model.safetensors");
    options.source = folder.path();
    options.target = folder.beside("m.h5");
    options.overwrite = true;
  }
  std::vector<ZipEntry> entries(const std::string& content) const {
    folder.write("pytorch_model.bin", content);
    io::InputFile file(folder.file("pytorch_model.bin"));
    return read_zip_directory(file);
  }

  HfFolder folder;
  PthBuilder weights;
  ConvertOptions options;
};

TEST_F(DamagedArchive, IsRefusedWhicheverTensorItIs) {
  const std::string sound = weights.file();
  const std::vector<ZipEntry> all = entries(sound);
  EXPECT_NO_THROW(convert(options));
  test::SmallRandom random(13);
  for (const ZipEntry& entry : all) {
    if (entry.name.ends_with("byteorder")) continue;
    // The lowest bits of a value: nothing but the checksum can tell.
    const auto values = static_cast<std::uint64_t>(entry.bytes) / 4;
    const std::uint64_t place = entry.name.ends_with("data.pkl") ? 30 : random.next() % values * 4;
    std::string damaged = sound;
    char& byte = damaged[static_cast<std::size_t>(entry.offset) + place];
    byte = static_cast<char>(byte ^ 1);
    folder.write("pytorch_model.bin", damaged);
    expect_error<InputError>([&] { convert(options); },
                             "pytorch_model.bin: the checksum of its entry \"" + entry.name + "\"");
  }
}

// As torch.save writes it with torch.serialization.set_crc32_options(False).
TEST_F(DamagedArchive, IsConvertedWithoutChecksums) {
  std::string content = weights.file();
  for (std::size_t at = content.find("PK\1\2"); at != std::string::npos;
       at = content.find("PK\1\2", at + 1))
    content.replace(at + 16, 4, 4, '\0');
  for (const ZipEntry& entry : entries(content)) EXPECT_EQ(entry.crc32, 0U) << entry.name;
  EXPECT_NO_THROW(convert(options));
}

}  // namespace
}  // namespace caravan::checkpoint
