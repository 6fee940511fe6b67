#include <gtest/gtest.h>

#include <string>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/unique_handle.h"

namespace caravan {
namespace {

TEST(Format, DurationsAndBytesReadWell) {
  EXPECT_EQ(format_duration(0), "00:00:00");
  EXPECT_EQ(format_duration(3661.4), "01:01:01");
  EXPECT_EQ(format_duration(400000), "111:06:40");
  EXPECT_EQ(format_duration(-1), "--:--:--");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(utc_timestamp().size(), std::string("2026-12-01T01:24:55Z").size());
}

TEST(CheckedCast, ThrowsInsteadOfChangingTheValue) {
  EXPECT_EQ(checked_cast<int>(std::int64_t{5}), 5);
  EXPECT_THROW(checked_cast<int>(std::int64_t{1} << 40), InternalError);
  EXPECT_THROW(checked_cast<unsigned>(-1), InternalError);
}

TEST(Check, ThrowsTheNamedTypeWithItsExitCodeAndText) {
  try {
    CARAVAN_CHECK(1 + 1 == 3, ConfigError, "expected {}, found {}", 3, 2);
    FAIL() << "did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_STREQ(error.what(), "expected 3, found 2");
  }
}

struct CountingTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void release(Handle handle) noexcept { released += handle; }
  static inline int released = 0;
};

TEST(UniqueHandle, ReleasesOnceAndIsNullAfterMove) {
  CountingTraits::released = 0;
  {
    UniqueHandle<CountingTraits> first(5);
    UniqueHandle<CountingTraits> second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): null after move is the contract
    EXPECT_TRUE(second);
    UniqueHandle<CountingTraits> third(7);
    third = std::move(second);
    EXPECT_EQ(CountingTraits::released, 7);
    UniqueHandle<CountingTraits> given_up(100);
    EXPECT_EQ(given_up.release(), 100);
  }
  EXPECT_EQ(CountingTraits::released, 12);
}

}  // namespace
}  // namespace caravan
