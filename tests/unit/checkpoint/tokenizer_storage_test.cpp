// A tokenizer of every kind through the file and through the broadcast between ranks.

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "caravan/io/hdf5.h"
#include "file_format.h"
#include "generated_model.h"
#include "model_index.h"
#include "support/expect_error.h"

namespace caravan::checkpoint {
namespace {

using test::expect_error;
using text::SpacePrefix;
using text::TokenizerKind;
using text::TokenizerSpec;

/// The bytes, a few pieces, a control token and an added word.
TokenizerSpec sentencepiece_spec() {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePiece;
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(1, static_cast<char>(byte));
    spec.byte_ids.push_back(byte);
  }
  spec.tokens.insert(spec.tokens.end(), {" ", "a", " a", "", "word"});
  spec.added_tokens = {{259, "<s>"}, {260, " word", false, true}};
  spec.scores.assign(spec.tokens.size(), -0.1F);
  spec.scores[256] = -1e-30F;
  spec.space_prefix = SpacePrefix::kFirstSegmentUnlessSpaced;
  spec.remove_extra_spaces = true;
  spec.bos_id = 259;
  return spec;
}

struct TokenizerStorage : testing::Test {
  ModelDescription description_with(const TokenizerSpec& spec) const {
    ModelDescription description;
    description.name = "small";
    description.config = test::small_config();
    description.tokenizer = spec;
    return description;
  }
  void write(const TokenizerSpec& spec) const {
    io::Hdf5File file = io::create_hdf5(path);
    write_description(file.get(), description_with(spec), path);
    io::close_hdf5(std::move(file), path);
  }
  TokenizerSpec read() const {
    const io::Hdf5File file = io::open_hdf5(path);
    return read_description(file.get(), path).tokenizer;
  }
  void change_group(const std::function<void(hid_t)>& with_group) const {
    io::Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS));
    ASSERT_GE(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), 0);
    const io::Hdf5File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get()));
    const io::Hdf5Group group(H5Gopen2(file.get(), "tokenizer", H5P_DEFAULT));
    ASSERT_TRUE(group);
    with_group(group.get());
  }

  test::TemporaryFolder folder;
  std::string path = folder.file("model.h5");
};

TEST_F(TokenizerStorage, KeepsSentencePieceInTheFile) {
  TokenizerSpec spec = sentencepiece_spec();
  for (const SpacePrefix prefix :
       {SpacePrefix::kNone, SpacePrefix::kEverySegment, SpacePrefix::kEverySegmentUnlessSpaced,
        SpacePrefix::kFirstSegmentUnlessSpaced}) {
    spec.space_prefix = prefix;
    write(spec);
    EXPECT_EQ(read(), spec) << static_cast<int>(prefix);
  }
  spec.scores.clear();
  spec.merges = {{256, 257}};
  spec.remove_extra_spaces = false;
  write(spec);
  EXPECT_EQ(read(), spec);
}

TEST_F(TokenizerStorage, KeepsSentencePieceBetweenRanks) {
  ModelIndex index;
  index.path = path;
  index.description = description_with(sentencepiece_spec());
  for (const model::TensorSpec& tensor : model::tensor_specs(index.description.config)) {
    index.tensors.push_back({tensor});
  }
  ByteWriter out;
  put_index(out, index);
  const std::vector<std::byte> bytes = out.take();
  ByteReader in(bytes);
  ModelIndex received;
  get_index(in, received);
  EXPECT_EQ(received.description.tokenizer, index.description.tokenizer);
}

TEST_F(TokenizerStorage, EveryFieldCountsInTheHash) {
  const auto hash = [&](const TokenizerSpec& spec) {
    return content_hash(description_with(spec), {});
  };
  const TokenizerSpec spec = sentencepiece_spec();
  TokenizerSpec other = spec;
  other.scores[257] = 0;
  EXPECT_NE(hash(other), hash(spec));
  other = spec;
  other.space_prefix = SpacePrefix::kNone;
  EXPECT_NE(hash(other), hash(spec));
  other = spec;
  other.remove_extra_spaces = false;
  EXPECT_NE(hash(other), hash(spec));
  other = spec;
  other.added_tokens[1].normalized = false;
  EXPECT_NE(hash(other), hash(spec));
  for (bool text::AddedToken::*option : {&text::AddedToken::special, &text::AddedToken::single_word,
                                         &text::AddedToken::lstrip, &text::AddedToken::rstrip}) {
    other = spec;
    other.added_tokens[1].*option = !(other.added_tokens[1].*option);
    EXPECT_NE(hash(other), hash(spec));
    write(other);
    EXPECT_EQ(read(), other);
  }
  EXPECT_EQ(hash(spec), hash(sentencepiece_spec()));
}

TEST_F(TokenizerStorage, OtherKindsHaveNoneOfTheFields) {
  TokenizerSpec spec;
  spec.tokens = {"a", "b", "ab"};
  spec.merges = {{0, 1}};
  write(spec);
  EXPECT_EQ(read(), spec);
  change_group([](hid_t group) {
    EXPECT_EQ(H5Lexists(group, "scores", H5P_DEFAULT), 0);
    EXPECT_EQ(H5Lexists(group, "byte_ids", H5P_DEFAULT), 0);
    EXPECT_EQ(H5Aexists(group, "space_prefix"), 0);
  });
}

TEST_F(TokenizerStorage, NamesDamagedFields) {
  write(sentencepiece_spec());
  change_group([](hid_t group) { ASSERT_GE(H5Adelete(group, "space_prefix"), 0); });
  expect_error<ConfigError>([&] { read(); }, "the attribute space_prefix is missing");
  write(sentencepiece_spec());
  change_group([](hid_t group) {
    ASSERT_GE(H5Adelete(group, "space_prefix"), 0);
    io::write_text_attribute(group, "space_prefix", "sometimes", {});
  });
  expect_error<ConfigError>([&] { read(); }, "the space_prefix \"sometimes\" is unknown");
  write(sentencepiece_spec());
  change_group([](hid_t group) {
    ASSERT_GE(H5Ldelete(group, "scores", H5P_DEFAULT), 0);
    io::write_int32_dataset(group, "scores", std::vector<std::int32_t>{1, 2}, 1, {});
  });
  expect_error<ConfigError>([&] { read(); }, "scores must be a list of at most");
}

}  // namespace
}  // namespace caravan::checkpoint
