// What decoding takes of memory, and what happens where there is too little. Each measurement has a
// process of its own, which starts with little and ends at once.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>

#include "caravan/core/error.h"
#include "caravan/image/decode.h"
#include "caravan/image/pipeline.h"
#include "support/temporary_folder.h"

namespace caravan::image {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

const std::string kFolder = std::string(CARAVAN_TEST_DATA) + "/images";

struct Picture {
  explicit Picture(const std::string& name) : text(test::read_whole(kFolder + "/" + name)) {}
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(text)); }
  std::string text;
};

/// Of this process: all addresses, or what is resident.
enum class Memory { kAddresses, kResident };
std::int64_t memory_bytes(Memory kind) {
  std::ifstream file("/proc/self/statm");
  std::int64_t addresses = 0;
  std::int64_t resident = 0;
  file >> addresses >> resident;
  return (kind == Memory::kAddresses ? addresses : resident) * ::sysconf(_SC_PAGESIZE);
}

std::int64_t peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

/// Lets this process have `bytes` more than it has.
void allow(std::int64_t bytes) {
  const auto most = static_cast<rlim_t>(memory_bytes(Memory::kAddresses) + bytes);
  const rlimit limit{most, most};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) std::exit(9);
}

[[noreturn]] void end(bool good, const std::string& words) {
  std::fputs(words.c_str(), stderr);
  std::exit(good ? 0 : 1);
}

[[noreturn]] void measure(const std::string& name) {
  constexpr std::int64_t kSlack = 6 * kMiB;  // code and tables of the libraries
  const Picture picture(name);
  decode(Picture("rgb.png").bytes(), {});  // starts libvips
  const ImageHeader header = read_header(picture.bytes(), {});
  const std::int64_t before = memory_bytes(Memory::kResident);
  const RgbImage image = decode(picture.bytes(), {});
  const std::int64_t used = peak_bytes() - before;
  end(used <= header.decode_bytes + kSlack && used >= std::ssize(image.pixels),
      fmt::format("{} MiB of {} MiB", used / kMiB, header.decode_bytes / kMiB));
}

struct DecodeMemory : testing::Test {
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer keeps what is freed";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(DecodeMemory, IsAtMostWhatTheHeaderSays) {
  for (const char* name :
       {"turned.jpg", "flat.jpg", "progressive.jpg", "progressive_cmyk.jpg", "rgba.png",
        "rgba16_interlaced.png", "lossless.webp", "lossless_alpha.webp", "lossy_alpha.webp",
        "rgb.gif", "strip.tiff", "strip_cmyk.tiff"}) {
    SCOPED_TRACE(name);
    EXPECT_EXIT(measure(std::string("large/") + name), testing::ExitedWithCode(0), "MiB of");
  }
}

// Little enough for the pixels and too little for the decoder, at every stage of its work.
TEST_F(DecodeMemory, ThatIsMissingIsNoDamage) {
  const auto decode_with = [](const std::string& name, std::int64_t bytes) {
    const Picture picture(name);
    decode(Picture("rgb.png").bytes(), {});
    allow(bytes);
    try {
      decode(picture.bytes(), {});
    } catch (const std::bad_alloc&) {
      end(true, "no memory");
    } catch (const InputError& error) {
      end(false, error.what());
    }
    end(false, "decoded");
  };
  for (const char* name : {"progressive.jpg", "rgba16_interlaced.png", "lossless_alpha.webp",
                           "rgb.gif", "strip.tiff"}) {
    for (const std::int64_t bytes : {1 * kMiB, 8 * kMiB, 16 * kMiB, 20 * kMiB}) {
      SCOPED_TRACE(fmt::format("{} with {} MiB", name, bytes / kMiB));
      EXPECT_EXIT(decode_with(std::string("large/") + name, bytes), testing::ExitedWithCode(0),
                  "no memory");
    }
  }
}

TEST_F(DecodeMemory, ThatIsMissingEndsThePipelineAndNotTheRecord) {
  const auto prepare = [] {
    TilingConfig tiling;
    tiling.tile_size = 28;
    std::vector<ImageSource> sources;
    sources.emplace_back(kFolder, 100 * kMiB);
    ImagePipeline pipeline(std::move(sources), {}, tiling, {});
    if (!pipeline.take(pipeline.submit("rgb.png")).image) end(false, "no image");
    allow(16 * kMiB);
    try {
      const ImageOutcome outcome = pipeline.take(pipeline.submit("large/progressive.jpg"));
      end(false, outcome.error);
    } catch (const ConfigError& error) {
      end(true, error.what());
    }
  };
  EXPECT_EXIT(prepare(), testing::ExitedWithCode(0),
              "image large/progressive.jpg: there is not enough memory to decode it");
}

}  // namespace
}  // namespace caravan::image
