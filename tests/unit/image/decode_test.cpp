// What is refused, and how. What pictures decode to is compared in tests/oracle/image.

#include "caravan/image/decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "caravan/image/decoders.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::image {
namespace {

using test::expect_error;

std::string picture(const std::string& name) {
  return test::read_whole(std::string(CARAVAN_TEST_DATA) + "/images/" + name);
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

RgbImage decode_text(const std::string& text, DecodeOptions options = {}) {
  return decode(bytes_of(text), options);
}

void expect_refused(const std::string& bytes, const std::string& words) {
  expect_error<InputError>([&] { decode_text(bytes); }, words);
  const DecodeOptions options;
  try {
    EXPECT_GT(read_header(bytes_of(bytes), options).decode_bytes, 0);  // the header may be good
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(value >> shift);
  return text;
}

/// plain PNG with other sides in its header (and a checksum that is wrong then).
std::string png_of_size(std::uint32_t width, std::uint32_t height) {
  std::string png = picture("rgb.png");
  return png.replace(16, 8, big_endian(width) + big_endian(height));
}

TEST(Decode, RefusesWhatIsNoKnownImage) {
  expect_refused("", "empty (0 bytes)");
  expect_refused("this is text", "12 bytes that begin with 74 68 69 73");
  expect_refused("<svg xmlns='http://www.w3.org/2000/svg'/>", "found SVG");
  expect_refused("%PDF-1.7", "found PDF");
  expect_refused("<!DOCTYPE html>", "found HTML");
  expect_refused("version https://git-lfs.github.com/spec/v1", "git lfs pull");
  expect_refused(std::string("\0\0\0\x1c", 4) + "ftypavif", "found AVIF");
  expect_refused("P6 1 1 255 abc", "begin with 50 36");  // libvips would read it
}

TEST(Decode, RefusesEveryFormatCutAnywhere) {
  for (const char* name : {"rgb.png", "plain.jpg", "progressive.jpg", "lossless.webp", "plain.webp",
                           "plain.gif", "plain.bmp", "rle8.bmp", "palette4.bmp", "lzw.tiff"}) {
    const std::string whole = picture(name);
    for (const double part : {0.0, 0.1, 0.5, 0.9}) {
      const auto size = std::max<std::size_t>(
          3, static_cast<std::size_t>(part * static_cast<double>(whole.size())));
      SCOPED_TRACE(fmt::format("{}: {} of {} bytes", name, size, whole.size()));
      EXPECT_THROW(decode_text(whole.substr(0, size)), InputError);
    }
  }
}

TEST(Decode, NamesTheRowWhereATruncatedImageEnds) {
  const std::string whole = picture("noise.png");
  expect_refused(whole.substr(0, whole.size() / 2), "the PNG image is truncated or damaged");
  expect_refused(whole.substr(0, whole.size() / 2), "of 45 x 31 pixels, those from row 0 on");
}

TEST(Decode, SaysThatAFileEndsEarlyWhereItsLengthShowsIt) {
  for (const char* name : {"lossless.webp", "plain.webp"}) {
    const std::string whole = picture(name);
    expect_refused(whole.substr(0, 40), "the WebP image ends early: its header");
  }
  const std::string gif = picture("plain.gif");
  expect_refused(gif.substr(0, gif.size() * 9 / 10), "the GIF image ends early");
  std::string damaged = picture("lossless.webp");
  damaged.replace(12, 4, "XXXX");
  expect_refused(damaged, "truncated or damaged: its header cannot be read");
}

TEST(Decode, RefusesDamagedData) {
  std::string png = picture("noise.png");
  png[png.size() / 2] = static_cast<char>(png[png.size() / 2] ^ 0x10);
  expect_refused(png, "truncated or damaged");
}

TEST(Decode, AcceptsBytesBehindTheImage) {
  for (const char* name : {"plain.jpg", "rgb.png", "plain.gif", "plain.bmp"}) {
    const RgbImage image = decode_text(picture(name));
    EXPECT_EQ(decode_text(picture(name) + "trailing bytes").pixels, image.pixels) << name;
  }
}

// The probe throws where one of its pictures cannot be decoded.
TEST(Decoders, AreNamedWithVersionsAndByWhatTheyDecode) {
  const std::string versions = decoder_versions();
  EXPECT_EQ(versions.find("libvips 8."), 0U) << versions;
  EXPECT_NE(versions.find("libjpeg"), std::string::npos) << versions;
  EXPECT_EQ(decoder_probe().size(), 16U);
  EXPECT_EQ(decoder_probe(), decoder_probe());
}

TEST(ReadHeader, GivesTheSizeThatDecodingGives) {
  int compared = 0;
  for (const char* name : {"rgb.png", "wide.png", "plain.bmp", "partial.gif", "lossless.webp",
                           "lzw.tiff", "orientation1.jpg", "orientation3.jpg", "orientation5.jpg",
                           "orientation6.jpg", "orientation7.jpg", "orientation8.jpg"}) {
    SCOPED_TRACE(name);
    const std::string bytes = picture(name);
    const ImageHeader header = read_header(bytes_of(bytes), {});
    const RgbImage image = decode_text(bytes);
    EXPECT_EQ(header.width, image.width);
    EXPECT_EQ(header.height, image.height);
    EXPECT_GE(header.decode_bytes, std::ssize(image.pixels));
    if (header.width != header.height) ++compared;
  }
  EXPECT_GT(compared, 8);
}

TEST(Decode, LimitsPixelsFromTheHeader) {
  DecodeOptions options;
  options.max_pixels = 37 * 23;
  for (const char* name :
       {"rgb.png", "plain.jpg", "lossless.webp", "plain.gif", "plain.bmp", "plain.tiff"}) {
    EXPECT_EQ(decode_text(picture(name), options).width, 37) << name;
    expect_error<InputError>([&] { decode_text(picture(name), {37 * 23 - 1}); },
                             "too large: 37 x 23 pixels, the limit is 850");
  }
}

TEST(Decode, RefusesBombsWithoutAllocating) {
  expect_refused(png_of_size(60000, 60000), "too large: 60000 x 60000");
  expect_refused(png_of_size(0x7fffffff, 0x7fffffff), "too large: 2147483647 x 2147483647");
  expect_refused(png_of_size(0xffffffff, 1), "too large: 4294967295 x 1");
  expect_refused(png_of_size(0, 4), "0 x 4 pixels");
  const std::string size = "\xff\xff\xff\xff";
  const std::string gif = "GIF89a" + size + std::string("\x80\0\0abcdef,\0\0\0\0", 14) + size +
                          std::string("\0\x02\x02\x44\x01\0;", 7);
  expect_refused(gif, "too large: 65535 x 65535");
  std::string bmp = picture("plain.bmp");
  bmp.replace(18, 8, std::string("\0\0\0\x40\0\0\0\x40", 8));
  expect_refused(bmp, "too large: 1073741824 x 1073741824");
}

TEST(DecodeBmp, RefusesHeadersThatCannotBe) {
  const std::string whole = picture("plain.bmp");
  const auto with = [&](std::size_t offset, const std::string& bytes) {
    std::string changed = whole;
    return changed.replace(offset, bytes.size(), bytes);
  };
  expect_refused(with(14, std::string("\x10\0\0\0", 4)), "header of 16 bytes");
  expect_refused(with(28, std::string("\x07\0", 2)), "7 bits per pixel");
  expect_refused(with(30, std::string("\x04\0\0\0", 4)), "compression 4");
  expect_refused(with(18, std::string("\xff\xff\xff\xff", 4)), "-1 x 23 pixels");
  expect_refused(with(22, std::string("\0\0\0\x80", 4)), "");  // the height has no positive form
  expect_refused(with(10, std::string("\xff\xff\xff\xff", 4)), "truncated");
  expect_refused("BM", "truncated");
  std::string masks = picture("rgb565.bmp");
  expect_refused(masks.replace(54, 4, std::string(4, '\0')), "bit mask 0x0");
  masks = picture("rgb565.bmp");
  expect_refused(masks.replace(54, 4, std::string("\0\xa0\0\0", 4)), "bit mask 0xa000");
}

TEST(DecodeBmp, HasAlphaWhereItsHeaderHasAMaskForIt) {
  // One pixel of B 0, G 100, R 200, alpha 51 (a fifth).
  const auto file = [](char header_bytes, char compression) {
    std::string bmp("BM\0\0\0\0\0\0\0\0\x46\0\0\0", 14);
    bmp += header_bytes;
    bmp += std::string("\0\0\0\1\0\0\0\1\0\0\0\1\0\x20\0", 15);
    bmp += compression;
    bmp.resize(54);
    bmp += std::string("\0\0\xff\0\0\xff\0\0\xff\0\0\0\0\0\0\xff", 16);
    return bmp + std::string("\0\x64\xc8\x33", 4);
  };
  const std::vector<std::uint8_t> stored = {200, 100, 0};
  const std::vector<std::uint8_t> over_white = {244, 224, 204};
  DecodeOptions white;
  white.alpha = Alpha::kWhite;
  EXPECT_EQ(decode_text(file(56, 3)).pixels, stored);
  EXPECT_EQ(decode_text(file(56, 3), white).pixels, over_white);
  EXPECT_EQ(decode_text(file(40, 6), white).pixels, over_white);
  EXPECT_EQ(decode_text(file(56, 0), white).pixels, stored);  // the fourth byte has no meaning
  EXPECT_EQ(decode_text(file(52, 3), white).pixels, stored);
}

TEST(DecodeBmp, RunsBeyondTheRowOrTheImageDoNoHarm) {
  std::string rle = picture("rle8.bmp");
  const std::size_t begin = rle.size() - 400;
  for (std::size_t i = begin; i + 2 < rle.size(); ++i)
    rle[i] = static_cast<char>(i % 2 == 0 ? 255 : 7);
  try {
    EXPECT_EQ(decode_text(rle).pixels.size(), 37U * 23U * 3U);
  } catch (const InputError&) {
  }
}

TEST(Decode, GivesTheSameFromManyThreads) {
  const std::string bytes = picture("progressive.jpg");
  const std::string broken = bytes.substr(0, bytes.size() / 2);
  const RgbImage expected = decode_text(bytes);
  std::string text;
  try {
    decode_text(broken);
  } catch (const InputError& error) {
    text = error.what();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        EXPECT_EQ(decode_text(bytes).pixels, expected.pixels);
        expect_error<InputError>([&] { decode_text(broken); }, text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace caravan::image
