#include "caravan/io/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace caravan::io {
namespace {

// FIPS 180-4 example vectors.
TEST(Sha256, EqualsThePublishedVectors) {
  Sha256 abc;
  abc.update("abc");
  EXPECT_EQ(abc.hex_digest(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().hex_digest(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Sha256 million;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 1000; ++i) million.update(piece);
  EXPECT_EQ(million.hex_digest(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace caravan::io
