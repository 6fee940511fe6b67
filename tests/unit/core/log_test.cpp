#include "caravan/core/log.h"

#include <gtest/gtest.h>

namespace caravan::log {
namespace {

TEST(Log, EscapesWhatMovesACursor) {
  EXPECT_EQ(escape_line("a\r\x1b[2J\x7f\tb"), "a\\x0d\\x1b[2J\\x7f\\x09b");
  EXPECT_EQ(escape_line("\xc2\x9b"
                        "1m"),
            "\\u009b1m");
  EXPECT_EQ(escape_line("\xc2\xa0\xc3\x9b \xe2\x9b\xb5"), "\xc2\xa0\xc3\x9b \xe2\x9b\xb5");
  EXPECT_EQ(escape_line("\xc2"), "\xc2");
}

TEST(Log, LinesOfAMessageAreIndentedAndLinesOfAUserAreNot) {
  EXPECT_EQ(escape_control("one\ntwo"), "one\n    two");
  EXPECT_EQ(escape_line("one\ntwo"), "one\\ntwo");
}

}  // namespace
}  // namespace caravan::log
