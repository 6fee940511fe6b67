#include "bpe.h"

#include <algorithm>
#include <limits>

#include "caravan/core/error.h"

namespace caravan::text {
namespace {

constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
/// Up to here the quadratic merge in small arrays is the faster way.
constexpr std::size_t kShortPiece = 48;
constexpr std::size_t kNumKnownPairs = 4096;
constexpr std::int32_t kRoot = 0;

unsigned char byte_at(std::string_view text, std::size_t index) {
  return static_cast<unsigned char>(text[index]);
}

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      whole_pieces_(spec.ignore_merges || spec.kind == TokenizerKind::kTiktoken),
      ranks_(spec.merges.size()) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const std::int32_t id = vocabulary.find(std::string_view(&text, 1));
    byte_ids_[static_cast<std::size_t>(byte)] = id;
    if (id == kNoToken) bytes_missing_ = true;
  }
  // A control token must not come out of text, so an unknown token that is one stays out of use.
  if (spec.unknown_id && !vocabulary.is_special(*spec.unknown_id)) unknown_id_ = *spec.unknown_id;
  if (spec.kind == TokenizerKind::kTiktoken) {
    add_all_splits();
  } else {
    add_listed_merges(spec);
  }
  find_stable_tokens();
  build_trie();
}

void Bpe::add_listed_merges(const TokenizerSpec& spec) {
  results_.reserve(spec.merges.size());
  std::string bytes;
  for (const auto& [left, right] : spec.merges) {
    bytes.assign(vocabulary_->bytes(left));
    bytes.append(vocabulary_->bytes(right));
    ranks_.set(left, right, static_cast<std::int32_t>(results_.size()));
    results_.push_back(vocabulary_->find(bytes));
  }
}

void Bpe::add_all_splits() {
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    results_.push_back(id);  // the rank of a merge is the id of its result
    const std::string_view bytes = vocabulary_->bytes(id);
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const std::int32_t left = vocabulary_->find(bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const std::int32_t right = vocabulary_->find(bytes.substr(cut));
      if (right != kNoToken) ranks_.set(left, right, id);
    }
  }
}

void Bpe::find_stable_tokens() {
  Scratch scratch;
  stable_.assign(static_cast<std::size_t>(vocabulary_->size()), false);
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    const std::string_view bytes = vocabulary_->bytes(id);
    const bool spelled = !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [&](char c) {
      return byte_ids_[static_cast<unsigned char>(c)] != kNoToken;
    });
    if (!spelled) continue;
    start_parts(bytes, scratch);
    merge_parts(scratch, 0);
    stable_[static_cast<std::size_t>(id)] =
        scratch.parts.size() == 1 && scratch.parts.front() == id;
  }
}

void Bpe::build_trie() {
  node_ids_.assign(1, kNoToken);
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    if (!is_stable(id)) continue;
    std::int32_t node = kRoot;
    for (const char c : vocabulary_->bytes(id)) {
      std::int32_t child = edges_.get(node, static_cast<unsigned char>(c));
      if (child == PairMap::kNone) {
        child = static_cast<std::int32_t>(node_ids_.size());
        edges_.set(node, static_cast<unsigned char>(c), child);
        node_ids_.push_back(kNoToken);
      }
      node = child;
    }
    node_ids_[static_cast<std::size_t>(node)] = id;
  }
  shorter_.assign(static_cast<std::size_t>(vocabulary_->size()), kNoToken);
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    if (!is_stable(id)) continue;
    const std::string_view bytes = vocabulary_->bytes(id);
    shorter_[static_cast<std::size_t>(id)] =
        longest_stable_prefix(bytes.substr(0, bytes.size() - 1));
  }
}

std::int32_t Bpe::longest_stable_prefix(std::string_view text) const {
  std::int32_t best = kNoToken;
  std::int32_t node = kRoot;
  for (const char c : text) {
    node = edges_.get(node, static_cast<unsigned char>(c));
    if (node == PairMap::kNone) break;
    const std::int32_t id = node_ids_[static_cast<std::size_t>(node)];
    if (id != kNoToken) best = id;
  }
  return best;
}

void Bpe::start_parts(std::string_view bytes, Scratch& scratch) const {
  scratch.parts.resize(bytes.size());
  scratch.ranks.assign(bytes.size(), kNoRank);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    scratch.parts[i] = byte_ids_[byte_at(bytes, i)];
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    const std::int32_t rank = ranks_.get(scratch.parts[i], scratch.parts[i + 1]);
    if (rank != PairMap::kNone) scratch.ranks[i] = rank;
  }
}

bool Bpe::merge_parts(Scratch& scratch, std::size_t num_left) const {
  std::vector<std::int32_t>& parts = scratch.parts;
  std::vector<std::int32_t>& ranks = scratch.ranks;  // ranks[i]: of (parts[i], parts[i + 1])
  const auto rank_of = [&](std::size_t i) {
    if (i + 1 >= parts.size()) return kNoRank;
    const std::int32_t rank = ranks_.get(parts[i], parts[i + 1]);
    return rank == PairMap::kNone ? kNoRank : rank;
  };
  while (parts.size() > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) break;
    const auto index = static_cast<std::size_t>(best - ranks.begin());
    if (index + 1 == num_left) return false;
    if (index + 1 < num_left) --num_left;
    parts[index] = results_[static_cast<std::size_t>(*best)];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(index) + 1);
    ranks.erase(best);
    ranks[index] = rank_of(index);
    if (index > 0) ranks[index - 1] = rank_of(index - 1);
  }
  return true;
}

bool Bpe::compatible(std::int32_t left, std::int32_t right, Scratch& scratch) const {
  const auto slot =
      (static_cast<std::size_t>(left) * 31 + static_cast<std::size_t>(right) * 17) % kNumKnownPairs;
  Scratch::KnownPair& known = scratch.known_pairs[slot];
  if (known.left == left && known.right == right) return known.compatible;
  const std::string_view left_bytes = vocabulary_->bytes(left);
  scratch.known_bytes.assign(left_bytes);
  scratch.known_bytes.append(vocabulary_->bytes(right));
  start_parts(scratch.known_bytes, scratch);
  known = {left, right, merge_parts(scratch, left_bytes.size())};
  return known.compatible;
}

void Bpe::encode_long(std::string_view piece, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
  scratch.known_pairs.resize(kNumKnownPairs);
  scratch.open.assign(piece.size() / 64 + 1, ~std::uint64_t{0});
  const auto is_open = [&](std::size_t position) {
    return ((scratch.open[position / 64] >> (position % 64)) & 1U) != 0;
  };
  const std::size_t first = ids.size();
  std::size_t position = 0;
  std::int32_t candidate = longest_stable_prefix(piece);
  while (position < piece.size()) {
    if (candidate == kNoToken) {  // a dead end: give up the last token, try a shorter one
      CARAVAN_ASSERT(ids.size() > first, "no encoding of a piece of {} bytes", piece.size());
      scratch.open[position / 64] &= ~(std::uint64_t{1} << (position % 64));
      const std::int32_t last = ids.back();
      ids.pop_back();
      position -= vocabulary_->bytes(last).size();
      candidate = shorter_[static_cast<std::size_t>(last)];
      continue;
    }
    const std::size_t end = position + vocabulary_->bytes(candidate).size();
    if (is_open(end) && (ids.size() == first || compatible(ids.back(), candidate, scratch))) {
      ids.push_back(candidate);
      position = end;
      candidate = longest_stable_prefix(piece.substr(position));
    } else {
      candidate = shorter_[static_cast<std::size_t>(candidate)];
    }
  }
}

void Bpe::encode_known(std::string_view piece, Scratch& scratch,
                       std::vector<std::int32_t>& ids) const {
  if (piece.size() > kShortPiece) {
    encode_long(piece, scratch, ids);
    return;
  }
  start_parts(piece, scratch);
  merge_parts(scratch, 0);
  ids.insert(ids.end(), scratch.parts.begin(), scratch.parts.end());
}

void Bpe::encode_with_missing_bytes(std::string_view piece, Scratch& scratch,
                                    std::vector<std::int32_t>& ids) const {
  // As Hugging Face: a character without a token disappears before merging, so that its neighbours
  // meet; with an unknown token it becomes that, and nothing merges across it.
  std::string known;
  for (const char c : piece) {
    if (byte_ids_[static_cast<unsigned char>(c)] != kNoToken) {
      known.push_back(c);
    } else if (unknown_id_ != kNoToken) {
      if (!known.empty()) encode_known(known, scratch, ids);
      known.clear();
      ids.push_back(unknown_id_);
    }
  }
  if (!known.empty()) encode_known(known, scratch, ids);
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = vocabulary_->find(piece);
  if (whole != kNoToken && (whole_pieces_ || is_stable(whole))) {
    ids.push_back(whole);
    return;
  }
  const bool missing = bytes_missing_ && std::any_of(piece.begin(), piece.end(), [&](char c) {
                         return byte_ids_[static_cast<unsigned char>(c)] == kNoToken;
                       });
  if (missing) {
    encode_with_missing_bytes(piece, scratch, ids);
  } else {
    encode_known(piece, scratch, ids);
  }
}

}  // namespace caravan::text
