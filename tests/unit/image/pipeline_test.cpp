#include "caravan/image/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace caravan::image {
namespace {

constexpr std::int64_t kTileSize = 28;
// One tile: what the smallest pictures make.
constexpr std::int64_t kTileBytes = 3 * kTileSize * kTileSize;

std::string pictures() { return std::string(CARAVAN_TEST_DATA) + "/images"; }

TilingConfig small_tiles() {
  TilingConfig config;
  config.tile_size = kTileSize;
  return config;
}

ImagePipeline make_pipeline(PipelineOptions options = {}) {
  std::vector<ImageSource> sources;
  sources.emplace_back(pictures(), 1 << 20);
  sources.emplace_back("", 1 << 20);
  return ImagePipeline(std::move(sources), {}, small_tiles(), options);
}

PipelineOptions with_threads(int num_threads) {
  PipelineOptions options;
  options.num_threads = num_threads;
  return options;
}

TEST(ImagePipeline, GivesWhatPreparingAloneGivesInAnyOrder) {
  const std::vector<std::string> names = {"rgb.png",       "plain.jpg",    "wide.png",
                                          "rle8.bmp",      "plain.gif",    "lzw.tiff",
                                          "lossless.webp", "one_pixel.png"};
  ImagePipeline pipeline = make_pipeline(with_threads(3));
  std::vector<ImagePipeline::Ticket> tickets;
  for (const std::string& name : names) tickets.push_back(pipeline.submit(name));
  for (std::size_t i = names.size(); i-- > 0;) {
    SCOPED_TRACE(names[i]);
    const ImageOutcome outcome = pipeline.take(tickets[i]);
    ASSERT_TRUE(outcome.image) << outcome.error;
    const std::string file = test::read_whole(pictures() + "/" + names[i]);
    const PreparedImage expected =
        prepare_image(std::as_bytes(std::span(file.data(), file.size())), {}, small_tiles());
    EXPECT_EQ(outcome.image->tiles, expected.tiles);
    EXPECT_EQ(outcome.image->layout.aspect_ratio_id, expected.layout.aspect_ratio_id);
    EXPECT_EQ(outcome.image->content_hash, expected.content_hash);
  }
  EXPECT_EQ(pipeline.ahead_bytes(), 0);
}

TEST(ImagePipeline, GivesFailuresAsValues) {
  ImagePipeline pipeline = make_pipeline(with_threads(2));
  const auto missing = pipeline.submit("missing.png");
  const auto text = pipeline.submit("expected.json");
  const auto network = pipeline.submit("https://host/a.png");
  const auto good = pipeline.submit("rgb.png");
  EXPECT_NE(pipeline.take(missing).error.find("No such file"), std::string::npos);
  EXPECT_NE(pipeline.take(text).error.find("expected a JPEG, PNG"), std::string::npos);
  EXPECT_NE(pipeline.take(network).error.find("no network"), std::string::npos);
  EXPECT_TRUE(pipeline.take(good).image);
  EXPECT_EQ(pipeline.counts().failed, 3);
  EXPECT_EQ(pipeline.ahead_bytes(), 0);
}

TEST(ImagePipeline, ReadsFromTheSourceThatIsAskedFor) {
  ImagePipeline pipeline = make_pipeline();
  EXPECT_TRUE(pipeline.take(pipeline.submit("rgb.png", 0)).image);
  EXPECT_NE(pipeline.take(pipeline.submit("rgb.png", 1)).error.find("no --media-root"),
            std::string::npos);
  test::expect_error<InternalError>([&] { pipeline.submit("rgb.png", 2); }, "source 2 of 2");
}

TEST(ImagePipeline, TellsWhetherTheBytesOfAFailureWereRead) {
  ImagePipeline pipeline = make_pipeline();
  EXPECT_EQ(pipeline.take(pipeline.submit("missing.png")).content_hash, "");
  const ImageOutcome text = pipeline.take(pipeline.submit("expected.json"));
  EXPECT_FALSE(text.image);
  const std::string file = test::read_whole(pictures() + "/expected.json");
  EXPECT_EQ(text.content_hash, content_hash(std::as_bytes(std::span(file.data(), file.size()))));
}

TEST(ImagePipeline, ThrowsWhatIsNoFaultOfTheImage) {
  std::vector<ImageSource> sources;
  sources.emplace_back(pictures(), 1 << 20, [](int, void*, std::size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  });
  ImagePipeline pipeline(std::move(sources), {}, small_tiles(), {});
  test::expect_error<IoError>([&] { pipeline.take(pipeline.submit("rgb.png")); },
                              "rgb.png at byte 0 failed");
  EXPECT_EQ(pipeline.ahead_bytes(), 0);
}

TEST(ImagePipeline, FindsImagesThatAreStillHeld) {
  ImagePipeline pipeline = make_pipeline();
  ImageOutcome held = pipeline.take(pipeline.submit("rgb.png"));
  EXPECT_EQ(pipeline.take(pipeline.submit("./rgb.png")).image.get(), held.image.get());
  EXPECT_EQ(pipeline.counts().decoded, 1);
  held.image = nullptr;
  EXPECT_TRUE(pipeline.take(pipeline.submit("rgb.png")).image);
  EXPECT_EQ(pipeline.counts().decoded, 2);
}

TEST(ImagePipeline, DecodesEqualImagesOnce) {
  ImagePipeline pipeline = make_pipeline(with_threads(4));
  std::vector<ImagePipeline::Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    tickets.push_back(pipeline.submit("rgb.png"));
    tickets.push_back(pipeline.submit("./rgb.png"));
    tickets.push_back(pipeline.submit("file://" + pictures() + "/rgb.png"));
  }
  std::vector<ImageOutcome> held;  // what nobody holds is forgotten
  for (const auto ticket : tickets) held.push_back(pipeline.take(ticket));
  ASSERT_TRUE(held.front().image);
  for (const ImageOutcome& outcome : held) EXPECT_EQ(outcome.image, held.front().image);
  EXPECT_EQ(pipeline.counts().decoded, 1);
  EXPECT_EQ(pipeline.counts().shared, 59);
  EXPECT_EQ(pipeline.counts().submitted, 60);
}

TEST(ImagePipeline, RefusesMoreThanItsBoundAhead) {
  PipelineOptions options;
  options.max_ahead_bytes = 3 * 4 * kTileBytes;
  ImagePipeline pipeline = make_pipeline(options);
  std::vector<ImagePipeline::Ticket> tickets;
  while (tickets.size() < 1000) {
    std::string url = tickets.size() % 2 == 0 ? "tall.png" : "wide.png";
    const auto ticket = pipeline.try_submit(std::move(url));
    if (!ticket) {
      EXPECT_FALSE(url.empty()) << "a refused address must stay";
      break;
    }
    tickets.push_back(*ticket);
    EXPECT_LE(pipeline.ahead_bytes(), options.max_ahead_bytes);
  }
  ASSERT_GE(tickets.size(), 2U);
  ASSERT_LT(tickets.size(), 1000U);
  for (const auto ticket : tickets) EXPECT_TRUE(pipeline.take(ticket).image);
  EXPECT_EQ(pipeline.ahead_bytes(), 0);
  EXPECT_TRUE(pipeline.try_submit("tall.png"));
}

TEST(ImagePipeline, AcceptsOneImageHoweverSmallItsBounds) {
  PipelineOptions options = with_threads(3);
  options.max_ahead_bytes = 0;
  options.max_decode_bytes = 0;
  ImagePipeline pipeline = make_pipeline(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pipeline.take(pipeline.submit("rgb.png")).image);
}

TEST(ImagePipeline, SubmitWaitsForRoom) {
  PipelineOptions options;
  options.max_ahead_bytes = 1;
  ImagePipeline pipeline = make_pipeline(options);
  const auto first = pipeline.submit("rgb.png");
  auto second = std::async(std::launch::async, [&] { return pipeline.submit("wide.png"); });
  EXPECT_EQ(second.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  EXPECT_TRUE(pipeline.take(first).image);
  EXPECT_TRUE(pipeline.take(second.get()).image);
}

TEST(ImagePipeline, TryTakeDoesNotWait) {
  ImagePipeline pipeline = make_pipeline();
  const auto ticket = pipeline.submit("rgb.png");
  std::optional<ImageOutcome> outcome;
  while (!outcome) outcome = pipeline.try_take(ticket);
  EXPECT_TRUE(outcome->image);
  test::expect_error<InternalError>([&] { pipeline.try_take(ticket); }, "unknown or was taken");
  test::expect_error<InternalError>([&] { pipeline.take(ticket); }, "unknown or was taken");
  test::expect_error<InternalError>([&] { pipeline.discard(77); }, "ticket 77");
}

TEST(ImagePipeline, DiscardedImagesMakeRoomAtAnyTime) {
  ImagePipeline pipeline = make_pipeline(with_threads(2));
  for (int round = 0; round < 20; ++round) {
    std::vector<ImagePipeline::Ticket> tickets;
    for (const char* name : {"tall.png", "wide.png", "tall.png", "missing.png"})
      tickets.push_back(pipeline.submit(name));
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
    for (const auto ticket : tickets) pipeline.discard(ticket);
    EXPECT_EQ(pipeline.ahead_bytes(), 0);
  }
  EXPECT_TRUE(pipeline.take(pipeline.submit("tall.png")).image);
}

TEST(ImagePipeline, EndsWithImagesWaitingAndInWork) {
  for (int round = 0; round < 10; ++round) {
    ImagePipeline pipeline = make_pipeline(with_threads(2));
    for (int i = 0; i < 50; ++i) pipeline.submit(i % 2 == 0 ? "noise.png" : "progressive.jpg");
  }
}

TEST(ImagePipeline, KeepsNoBytesOverManyImages) {
  ImagePipeline pipeline = make_pipeline(with_threads(2));
  std::atomic<int> prepared = 0;
  std::vector<std::thread> users;
  for (int user = 0; user < 3; ++user) {
    users.emplace_back([&, user] {
      for (int i = 0; i < 100; ++i) {
        const char* name = (i + user) % 3 == 0 ? "rgb.png" : "plain.jpg";
        if (pipeline.take(pipeline.submit(name)).image) ++prepared;
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(prepared, 300);
  EXPECT_EQ(pipeline.ahead_bytes(), 0);
}

TEST(ImagePipeline, RefusesOptionsThatCannotBe) {
  test::expect_error<ConfigError>([] { make_pipeline(with_threads(0)); }, "0 threads");
  PipelineOptions negative;
  negative.max_decode_bytes = -1;
  test::expect_error<ConfigError>([&] { make_pipeline(negative); }, "-1 in decoding");
}

}  // namespace
}  // namespace caravan::image
