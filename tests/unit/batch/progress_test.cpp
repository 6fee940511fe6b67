#include "caravan/batch/progress.h"

#include <gtest/gtest.h>

namespace caravan::batch {
namespace {

TEST(Progress, LineHasTheFigures) {
  ProgressFigures figures;
  figures.seconds = 100;
  figures.done = 1234;
  figures.done_now = 1000;
  figures.total = 50000;
  figures.kv_share = 0.71;
  figures.engine.running = 64;
  figures.engine.prompt_tokens = 18200;
  figures.engine.generated_tokens = 305500;
  EXPECT_EQ(
      progress_line(figures, 3120),
      "progress 1234/50000 req (2.5%), running 64, 18.2k tok in, 306k tok out, 3120 tok/s (avg "
      "3055), kv 71%, eta 01:21:17");
  figures.engine.images_encoded = 12345;
  EXPECT_NE(progress_line(figures, 3120).find("3055), 12.3k images encoded, kv 71%, eta"),
            std::string::npos);
}

TEST(Progress, UnknownEtaIsNotANumber) {
  ProgressFigures figures;
  figures.total = 10;
  EXPECT_NE(progress_line(figures, 0).find("eta --:--:--"), std::string::npos);
}

TEST(Progress, ComesOnceAnInterval) {
  Progress progress(30);
  ProgressFigures figures;
  figures.total = 1;
  figures.seconds = 29;
  EXPECT_FALSE(progress.tick(figures).has_value());
  figures.seconds = 31;
  figures.engine.generated_tokens = 62;
  const auto line = progress.tick(figures);
  ASSERT_TRUE(line.has_value());
  EXPECT_NE(line->find(" 2 tok/s"), std::string::npos) << *line;
  EXPECT_FALSE(progress.tick(figures).has_value());
  EXPECT_FALSE(Progress(0).due(1e6));
}

TEST(Progress, CountsAreShort) {
  EXPECT_EQ(short_count(9999), "9999");
  EXPECT_EQ(short_count(18234), "18.2k");
  EXPECT_EQ(short_count(951000), "951k");
  EXPECT_EQ(short_count(3050000), "3.05M");
}

}  // namespace
}  // namespace caravan::batch
