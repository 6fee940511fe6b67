// Encoding of one piece against the plain definition: merge the pair of lowest rank, leftmost
// first, until none is left.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "caravan/text/tokenizer.h"
#include "unit/text/byte_spec.h"

namespace caravan::text {
namespace {

using Ids = std::vector<std::int32_t>;

std::map<std::string, std::int32_t> ids_by_bytes(const TokenizerSpec& spec) {
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    ids.emplace(spec.tokens[id], static_cast<std::int32_t>(id));
  }
  return ids;
}

/// Rank of joining two tokens, for both kinds.
class Ranks {
 public:
  explicit Ranks(const TokenizerSpec& spec) : spec_(spec), ids_(ids_by_bytes(spec)) {
    for (std::size_t i = 0; i < spec.merges.size(); ++i) {
      listed_[spec.merges[i]] = static_cast<std::int64_t>(i);
    }
  }
  std::int32_t id(const std::string& bytes) const {
    const auto found = ids_.find(bytes);
    return found == ids_.end() ? -1 : found->second;
  }
  std::int64_t rank(const std::string& left, const std::string& right) const {
    if (spec_.kind == TokenizerKind::kTiktoken) {
      const std::int32_t joined = id(left + right);
      return joined < 0 ? kNone : joined;
    }
    const auto found = listed_.find({id(left), id(right)});
    return found == listed_.end() ? kNone : found->second;
  }
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

 private:
  const TokenizerSpec& spec_;
  std::map<std::string, std::int32_t> ids_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> listed_;
};

Ids reference_encoding(const TokenizerSpec& spec, const Ranks& ranks, const std::string& piece) {
  const bool whole = spec.ignore_merges || spec.kind == TokenizerKind::kTiktoken;
  if (whole && ranks.id(piece) >= 0) return {ranks.id(piece)};
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = 0;
    std::int64_t best_rank = Ranks::kNone;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int64_t rank = ranks.rank(parts[i], parts[i + 1]);
      if (rank < best_rank) {
        best = i;
        best_rank = rank;
      }
    }
    if (best_rank == Ranks::kNone) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(ranks.id(part));
  return ids;
}

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

/// Text over few letters, with runs: many merges apply and overlap.
std::string random_text(Random& random, std::size_t length) {
  std::string text;
  while (text.size() < length) {
    text.append(1 + (below(random, 4) == 0 ? below(random, 9) : 0),
                static_cast<char>('a' + below(random, 3)));
  }
  text.resize(length);
  return text;
}

/// Tokens over few letters in any order: also some that no merges reach, and some that are made of
/// tokens with higher ranks.
TokenizerSpec random_tiktoken_spec(Random& random) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kTiktoken;
  spec.tokens = test::byte_spec().tokens;
  std::set<std::string> words;
  for (std::size_t count = 1 + below(random, 40); count > 0; --count) {
    words.insert(random_text(random, 2 + below(random, 7)));
  }
  spec.tokens.insert(spec.tokens.end(), words.begin(), words.end());
  std::shuffle(spec.tokens.begin(), spec.tokens.end(), random);
  return spec;
}

/// Merges of known tokens, listed in any order.
TokenizerSpec random_listed_spec(Random& random) {
  TokenizerSpec spec = test::byte_spec();
  std::vector<std::string> known = {"a", "b", "c"};
  for (std::size_t count = 1 + below(random, 40); count > 0; --count) {
    const std::string joined =
        known[below(random, known.size())] + known[below(random, known.size())];
    if (joined.size() > 9) continue;
    if (std::find(known.begin(), known.end(), joined) == known.end()) {
      known.push_back(joined);
      test::add_token(spec, joined);
    }
  }
  const auto ids = ids_by_bytes(spec);
  for (const std::string& word : known) {
    for (std::size_t cut = 1; cut < word.size(); ++cut) {
      const auto left = ids.find(word.substr(0, cut)), right = ids.find(word.substr(cut));
      if (left == ids.end() || right == ids.end() || below(random, 3) == 0) continue;
      spec.merges.emplace_back(left->second, right->second);
    }
  }
  std::shuffle(spec.merges.begin(), spec.merges.end(), random);
  spec.ignore_merges = below(random, 2) == 0;
  return spec;
}

template <typename MakeSpec>
void expect_reference(const MakeSpec& make_spec) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const TokenizerSpec spec = make_spec(random);
    const Tokenizer tokenizer(spec);
    const Ranks ranks(spec);
    for (int i = 0; i < 12; ++i) {
      // Short pieces and long ones are encoded in different ways.
      const std::string text = random_text(random, 1 + below(random, i < 6 ? 30 : 300));
      ASSERT_EQ(tokenizer.encode(text), reference_encoding(spec, ranks, text))
          << "seed " << seed << ", text " << text;
    }
  }
}

TEST(Bpe, TiktokenMergesAsDefinedForAnyVocabulary) { expect_reference(random_tiktoken_spec); }

TEST(Bpe, ListedMergesAsDefinedInAnyOrder) { expect_reference(random_listed_spec); }

TEST(Bpe, EmitsWholePiecesOnlyWhereAsked) {
  TokenizerSpec spec = test::byte_spec();
  const std::int32_t word = test::add_token(spec, "word");  // no merges reach it
  EXPECT_EQ(Tokenizer(spec).encode("word"), (Ids{'w', 'o', 'r', 'd'}));
  spec.ignore_merges = true;
  EXPECT_EQ(Tokenizer(spec).encode("word"), (Ids{word}));
  EXPECT_EQ(Tokenizer(spec).encode("words"), (Ids{'w', 'o', 'r', 'd', 's'}));
}

TEST(Bpe, LeavesOutBytesWithoutTokenBeforeMerging) {
  TokenizerSpec spec = test::byte_spec();
  const std::int32_t joined = test::add_token(spec, "ab");
  spec.merges = {{'a', 'b'}};
  spec.tokens['x'].clear();
  EXPECT_EQ(Tokenizer(spec).encode("axb"), (Ids{joined}));
  EXPECT_EQ(Tokenizer(spec).encode("xx"), Ids());
}

TEST(Bpe, UsesTheUnknownTokenUnlessItIsControl) {
  TokenizerSpec spec = test::byte_spec();
  test::add_token(spec, "ab");
  spec.merges = {{'a', 'b'}};
  spec.tokens['x'].clear();
  spec.unknown_id = 'u';
  EXPECT_EQ(Tokenizer(spec).encode("axb"), (Ids{'a', 'u', 'b'}));
  spec.unknown_id = test::add_named(spec, "<unk>");
  EXPECT_EQ(Tokenizer(spec).encode("axbx"), (Ids{256}));
}

}  // namespace
}  // namespace caravan::text
