#include "caravan/batch/image_catalog.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "unit/batch/image_rig.h"

namespace caravan::batch {
namespace {

using test::image_record;

class ImageCatalogTest : public testing::Test {
 protected:
  ImageBlocks blocks(const Record& record) {
    const auto checked = catalog_.check(record);
    if (const auto* fault = std::get_if<RecordFault>(&checked)) ADD_FAILURE() << fault->message;
    return std::get<ImageBlocks>(checked);
  }
  std::string fault(Record record, std::size_t source = 0) {
    record.image_source = source;
    const auto checked = catalog_.check(record);
    const auto* fault = std::get_if<RecordFault>(&checked);
    if (fault == nullptr) return "none";
    EXPECT_EQ(fault->code, "invalid_image");
    EXPECT_EQ(fault->status, 400);
    return fault->message;
  }

  ImageCatalog catalog_{test::tiny_images()};
  std::size_t source_ = catalog_.source_of(test::pictures());
};

TEST_F(ImageCatalogTest, KnowsTheTilesOfEveryImage) {
  // One tile has 5 tokens and four have 20, in blocks of 16.
  EXPECT_EQ(blocks(image_record({"one_pixel.png"})).all, 1);
  EXPECT_EQ(blocks(image_record({"wide.png"})).all, 2);
  const ImageFacts& facts = catalog_.facts(source_, "wide.png");
  EXPECT_EQ(facts.grid.num_tiles(), 4);
  // Turned by its EXIF orientation.
  blocks(image_record({"orientation1.jpg", "orientation6.jpg"}));
  EXPECT_EQ(catalog_.facts(source_, "orientation1.jpg").grid, (model::TileGrid{1, 2}));
  EXPECT_EQ(catalog_.facts(source_, "orientation6.jpg").grid, (model::TileGrid{2, 1}));
}

TEST_F(ImageCatalogTest, CountsEqualImagesOfARecordOnce) {
  const ImageBlocks once = blocks(image_record({"wide.png", "./wide.png", "wide.png"}));
  EXPECT_EQ(once.all, 2);
  EXPECT_EQ(once.largest_group, 2);
  EXPECT_EQ(once.most_seen, 6);
  const ImageBlocks together = blocks(image_record({"wide.png", "one_pixel.png", "tall.png"}));
  EXPECT_EQ(together.all, 5);
  EXPECT_EQ(together.largest_group, 5);
  const ImageBlocks apart = blocks(image_record({"wide.png", "one_pixel.png", "tall.png"}, true));
  EXPECT_EQ(apart.all, 5);
  EXPECT_EQ(apart.largest_group, 2);
  EXPECT_EQ(apart.most_seen, 2);
  EXPECT_EQ(apart.group_image, 0U);
  const Record last = image_record({"one_pixel.png", "wide.png"}, true);
  EXPECT_EQ(blocks(last).group_image, 1U);
  EXPECT_EQ(catalog_.blocks_of(last).largest_group, 2);
  EXPECT_EQ(catalog_.num_distinct(), 3);
  EXPECT_EQ(catalog_.distinct_blocks(), 5);
  EXPECT_EQ(catalog_.num_checked(), 11);
}

TEST_F(ImageCatalogTest, PlansTheRecordWithTheMostImagesWhole) {
  const std::int64_t tile = 3 * test::kTinyTile * test::kTinyTile;
  blocks(image_record({"wide.png"}));  // four tiles
  const std::int64_t decoding = catalog_.preparation_bytes(0) - 4 * tile;
  EXPECT_GT(decoding, 0);
  EXPECT_EQ(catalog_.preparation_bytes(1 << 20), 4 * tile + decoding);
  blocks(image_record({"wide.png", "wide.png", "tall.png"}));
  blocks(image_record({"one_pixel.png"}));
  // Whatever the bound: equal images once, the largest record whole.
  const std::int64_t together = catalog_.preparation_bytes(1 << 20);
  EXPECT_EQ(together - catalog_.preparation_bytes(0), 3 * 4 * tile - 8 * tile);
}

TEST_F(ImageCatalogTest, KnowsHowManyImagesComeAgain) {
  const auto at = [&](std::int64_t index, const std::string& name) {
    catalog_.check(image_record({name}), index);
  };
  // Blocks: 2, 2, 1. wide at 0 to 3, tall at 1 to 2, one_pixel at 5 to 6; rgb once.
  at(0, "wide.png");
  at(1, "tall.png");
  at(2, "tall.png");
  at(3, "wide.png");
  at(4, "rgb.png");
  EXPECT_EQ(catalog_.most_recurring_blocks(), 4);
  at(5, "one_pixel.png");
  at(6, "one_pixel.png");
  EXPECT_EQ(catalog_.most_recurring_blocks(), 4);
  catalog_.forget_uses(2, image_record({"tall.png"}));
  EXPECT_EQ(catalog_.most_recurring_blocks(), 2);
  Record nothing = image_record({"rgb.png"});
  nothing.max_tokens = 0;
  catalog_.check(nothing, 7);
  EXPECT_EQ(catalog_.next_use(catalog_.facts(source_, "rgb.png"), 4, {}),
            engine::PromptImage::kNeverAgain);
}

TEST_F(ImageCatalogTest, LooksAtAnImageOnce) {
  test::TemporaryFolder folder;
  const std::string name = folder.write("a.png", test::read_whole(test::pictures() + "/rgb.png"));
  const std::size_t source = catalog_.source_of(folder.path());
  EXPECT_EQ(fault(image_record({"a.png"}), source), "none");
  std::filesystem::remove(name);
  EXPECT_EQ(fault(image_record({"a.png"}), source), "none");
  EXPECT_NE(fault(image_record({"./a.png"}), source), "none");
}

TEST_F(ImageCatalogTest, NamesTheImageAndItsFault) {
  EXPECT_NE(fault(image_record({"wide.png", "expected.json"})).find("image expected.json: "),
            std::string::npos);
  EXPECT_NE(fault(image_record({"missing.png"})).find("No such file"), std::string::npos);
  EXPECT_NE(fault(image_record({"../README.md"})).find("not below the media root"),
            std::string::npos);
  EXPECT_NE(fault(image_record({"https://host/a.png"})).find("no network"), std::string::npos);
  EXPECT_NE(fault(image_record({"data:image/png;base64,!"})).find("data: URI of 23 characters"),
            std::string::npos);
  EXPECT_NE(fault(image_record({"rgb.png"}), catalog_.source_of("")).find("no --media-root"),
            std::string::npos);
}

TEST_F(ImageCatalogTest, LimitsBytesAndPixels) {
  ImageOptions options = test::tiny_images();
  options.max_bytes = 100;
  options.media_root = test::pictures();
  ImageCatalog small(options);
  EXPECT_EQ(small.source_of("elsewhere"), 0U);  // one root for all
  const auto bytes = small.check(image_record({"noise.png"}));
  EXPECT_NE(std::get<RecordFault>(bytes).message.find("the limit is 100"), std::string::npos);
  options.max_bytes = 1 << 20;
  options.decoding.max_pixels = 3;
  ImageCatalog few(options);
  const auto pixels = few.check(image_record({"noise.png"}));
  EXPECT_NE(std::get<RecordFault>(pixels).message.find("pixels"), std::string::npos);
}

TEST_F(ImageCatalogTest, HashDependsOnContentsAndFaults) {
  const auto hash = [](const std::vector<std::string>& urls) {
    ImageCatalog catalog(test::tiny_images());
    catalog.source_of(test::pictures());
    for (const std::string& url : urls) catalog.check(image_record({url}));
    return catalog.content_hash();
  };
  EXPECT_EQ(hash({"rgb.png", "wide.png"}), hash({"./rgb.png", "./wide.png"}));
  EXPECT_NE(hash({"rgb.png"}), hash({"wide.png"}));
  EXPECT_NE(hash({"rgb.png"}), hash({"rgb.png", "missing.png"}));
}

TEST(ImageCatalog, NeedsAMediaRootThatIsThere) {
  ImageOptions options = test::tiny_images();
  options.media_root = "/no/such/folder";
  test::expect_error<MissingInputError>([&] { ImageCatalog catalog(options); }, "/no/such/folder");
}

}  // namespace
}  // namespace caravan::batch
