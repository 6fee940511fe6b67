#include "caravan/batch/image_stage.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "caravan/core/error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "unit/batch/image_rig.h"

namespace caravan::batch {
namespace {

using test::image_record;

class ImageStageTest : public testing::Test {
 protected:
  ImageStageTest() {
    for (const char* name : {"rgb.png", "wide.png", "tall.png"}) {
      folder_.write(name, test::read_whole(test::pictures() + "/" + name));
    }
    catalog_.source_of(folder_.path());
  }
  void start(const ImageStageOptions& options = {}) {
    image::PipelineOptions pipeline;
    pipeline.num_threads = 2;
    pipeline.max_ahead_bytes = 1;  // one image at a time
    pipeline_.emplace(catalog_.open_sources(), catalog_.options().decoding,
                      catalog_.options().tiling, pipeline);
    stage_.emplace(*pipeline_, catalog_, options);
  }
  void add(std::int64_t index, const std::vector<std::string>& urls) {
    StagedRecord staged;
    staged.index = index;
    staged.record = image_record(urls);
    const auto checked = catalog_.check(staged.record, index);
    ASSERT_TRUE(std::holds_alternative<ImageBlocks>(checked));
    stage_->add(std::move(staged));
  }
  StagedRecord wait() {
    while (true) {
      if (auto staged = stage_->next()) return std::move(*staged);
      stage_->wait();
    }
  }
  /// A PNG that ends in the middle of its pixels: its header is good.
  void write_cut_image() {
    const std::string whole = test::read_whole(test::pictures() + "/noise.png");
    folder_.write("cut.png", whole.substr(0, whole.size() / 2));
  }

  test::TemporaryFolder folder_;
  ImageCatalog catalog_{test::tiny_images()};
  std::optional<image::ImagePipeline> pipeline_;
  std::optional<ImageStage> stage_;
};

TEST_F(ImageStageTest, GivesRecordsWithTheirImagesInOrder) {
  start();
  add(7, {"wide.png", "rgb.png", "wide.png"});
  add(8, {"tall.png"});
  const StagedRecord first = wait();
  EXPECT_EQ(first.index, 7);
  ASSERT_EQ(first.images.size(), 3U);
  EXPECT_EQ(first.images[0].get(), first.images[2].get());
  const auto prompt = prompt_images(first);
  EXPECT_EQ(prompt[1].content_hash, first.images[1]->content_hash);
  EXPECT_EQ(prompt[0].grid, catalog_.facts(0, "wide.png").grid);
  EXPECT_EQ(prompt[0].pixels->size(),
            static_cast<std::size_t>(4 * 3 * test::kTinyTile * test::kTinyTile));
  stage_->release(first.images);
  EXPECT_EQ(wait().index, 8);
  EXPECT_TRUE(stage_->empty());
}

TEST_F(ImageStageTest, OneRecordGoesOnHoweverSmallTheBound) {
  ImageStageOptions options;
  options.max_bytes = 0;
  options.max_records = 2;
  start(options);
  add(0, {"wide.png", "rgb.png"});
  EXPECT_TRUE(stage_->has_room());
  add(1, {"tall.png"});
  EXPECT_FALSE(stage_->has_room());
  const StagedRecord first = wait();
  EXPECT_EQ(first.index, 0);
  // The other waits until the images of the first are no longer used.
  EXPECT_FALSE(stage_->next());
  EXPECT_EQ(pipeline_->counts().submitted, 2);
  stage_->release(first.images);
  EXPECT_EQ(wait().index, 1);
}

TEST_F(ImageStageTest, SaysWhichRecordShowsAnImageNext) {
  ImageStageOptions options;
  options.is_done = [](std::int64_t index) { return index == 4; };
  start(options);
  // All are known before the first one runs.
  for (const auto& [index, name] :
       {std::pair{2, "rgb.png"}, {4, "wide.png"}, {9, "./wide.png"}, {10, "rgb.png"}}) {
    catalog_.check(image_record({name}), index);
  }
  add(11, {"tall.png"});
  EXPECT_EQ(prompt_images(wait()).at(0).next_use, engine::PromptImage::kNeverAgain);
  StagedRecord first;
  first.index = 1;
  first.record = image_record({"rgb.png", "wide.png"});
  stage_->add(first);
  const auto images = prompt_images(wait());
  EXPECT_EQ(images.at(0).next_use, 2);
  EXPECT_EQ(images.at(1).next_use, 9);
}

TEST_F(ImageStageTest, AnImageThatCannotBeDecodedIsTheFaultOfItsRecord) {
  write_cut_image();
  start();
  add(0, {"rgb.png", "cut.png", "wide.png"});
  add(1, {"rgb.png"});
  const StagedRecord faulty = wait();
  ASSERT_TRUE(faulty.fault);
  EXPECT_EQ(faulty.fault->code, "invalid_image");
  EXPECT_EQ(faulty.fault->param, "messages.0.content.1");
  EXPECT_NE(faulty.fault->message.find("image cut.png: the PNG image is truncated"),
            std::string::npos)
      << faulty.fault->message;
  EXPECT_TRUE(faulty.images.empty());
  const StagedRecord good = wait();
  EXPECT_FALSE(good.fault);
  EXPECT_EQ(good.index, 1);
}

TEST_F(ImageStageTest, ImagesThatAreGoneOrChangedEndTheRun) {
  start();
  StagedRecord staged;
  staged.record = image_record({"rgb.png"});
  const StagedRecord changed = staged;
  catalog_.check(staged.record);
  std::filesystem::remove(folder_.file("rgb.png"));
  stage_->add(std::move(staged));
  test::expect_error<IoError>([&] { wait(); }, "could be read when the input was checked");
  start();
  folder_.write("rgb.png", test::read_whole(test::pictures() + "/wide.png"));
  stage_->add(changed);
  test::expect_error<IoError>([&] { wait(); }, "image rgb.png has changed since");
}

}  // namespace
}  // namespace caravan::batch
