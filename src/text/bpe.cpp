#include "bpe.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "caravan/core/error.h"
#include "utf8_step.h"

namespace caravan::text {
namespace {

constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
/// Up to here the quadratic merge in small arrays is the faster way.
constexpr std::size_t kShortPiece = 48;
constexpr std::size_t kNumKnownPairs = 4096;
constexpr std::int32_t kRoot = 0;

}  // namespace

Bpe::Bpe(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary),
      whole_pieces_(spec.ignore_merges || spec.kind == TokenizerKind::kTiktoken),
      characters_(spec.kind == TokenizerKind::kSentencePiece),
      merges_(spec.merges.size()) {
  if (characters_) {
    std::copy(spec.byte_ids.begin(), spec.byte_ids.end(), byte_ids_.begin());
    add_character_units();
  } else {
    add_byte_units();
  }
  // A control token must not come out of text, so an unknown token that is one stays out of use.
  if (spec.unknown_id && !vocabulary.is_special(*spec.unknown_id)) unknown_id_ = *spec.unknown_id;
  if (spec.kind == TokenizerKind::kTiktoken || !spec.scores.empty()) {
    add_all_splits();
  } else {
    add_listed_merges(spec);
  }
  if (!spec.scores.empty()) rank_by_score(spec.scores);
  find_stable_tokens();
  build_trie();
  if (characters_) find_word_ends();
}

std::string_view Bpe::bytes(std::int32_t id) const {
  if (id < vocabulary_->size()) return vocabulary_->bytes(id);
  return extra_units_[static_cast<std::size_t>(id - vocabulary_->size())];
}

void Bpe::add_byte_units() {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const std::int32_t id = vocabulary_->find(std::string_view(&text, 1));
    byte_ids_[static_cast<std::size_t>(byte)] = id;
    if (id == kNoToken) bytes_missing_ = true;
  }
}

void Bpe::add_character_units() {
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    std::string_view rest = vocabulary_->bytes(id);
    if (vocabulary_->find(rest) != id) continue;  // unused, or a byte token
    while (!rest.empty()) {
      const std::string_view character = rest.substr(0, character_length(rest.front()));
      rest.remove_prefix(character.size());
      const std::int32_t code_point = code_point_of(character);
      if (units_.get(code_point, 0) != PairMap::kNone) continue;
      std::int32_t unit = vocabulary_->find(character);
      if (unit == kNoToken) {
        unit = num_ids();
        extra_units_.emplace_back(character);
      }
      units_.set(code_point, 0, unit);
    }
  }
}

std::size_t Bpe::unit_length(char first) const { return characters_ ? character_length(first) : 1; }

std::int32_t Bpe::unit_of(std::string_view unit) const {
  if (!characters_) return byte_ids_[static_cast<unsigned char>(unit.front())];
  return units_.get(code_point_of(unit), 0);
}

bool Bpe::all_units_known(std::string_view text) const {
  if (!characters_ && !bytes_missing_) return true;
  for (std::size_t i = 0, length = 0; i < text.size(); i += length) {
    length = unit_length(text[i]);
    if (unit_of(text.substr(i, length)) == kNoToken) return false;
  }
  return true;
}

std::int32_t Bpe::token_or_unit(std::string_view bytes) const {
  const std::int32_t id = vocabulary_->find(bytes);
  const bool may_be_extra =
      id == kNoToken && !extra_units_.empty() && character_length(bytes.front()) == bytes.size();
  return may_be_extra ? unit_of(bytes) : id;
}

void Bpe::add_listed_merges(const TokenizerSpec& spec) {
  results_.reserve(spec.merges.size());
  std::string merged;
  for (const auto& [left, right] : spec.merges) {
    merged.assign(vocabulary_->bytes(left));
    merged.append(vocabulary_->bytes(right));
    merges_.set(left, right, static_cast<std::int32_t>(results_.size()));
    results_.push_back(vocabulary_->find(merged));
  }
}

void Bpe::add_all_splits() {
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    results_.push_back(id);  // the number of a merge is the id of its result
    const std::string_view bytes = vocabulary_->bytes(id);
    if (vocabulary_->find(bytes) != id) continue;
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      if (characters_ && is_continuation(bytes[cut])) continue;
      const std::int32_t left = token_or_unit(bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const std::int32_t right = token_or_unit(bytes.substr(cut));
      if (right != kNoToken) merges_.set(left, right, id);
    }
  }
}

void Bpe::rank_by_score(const std::vector<float>& scores) {
  std::vector<float> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  ranks_.reserve(scores.size());
  for (const float score : scores) {
    const auto found = std::lower_bound(order.begin(), order.end(), score, std::greater<>());
    ranks_.push_back(static_cast<std::int32_t>(found - order.begin()));
  }
}

void Bpe::find_stable_tokens() {
  Scratch scratch;
  stable_.assign(static_cast<std::size_t>(num_ids()), false);
  for (std::int32_t id = 0; id < num_ids(); ++id) {
    const std::string_view text = bytes(id);
    if (text.empty() || token_or_unit(text) != id || !all_units_known(text)) continue;
    start_parts(text, scratch);
    merge_parts(scratch, 0);
    stable_[static_cast<std::size_t>(id)] =
        scratch.parts.size() == 1 && scratch.parts.front() == id;
  }
}

void Bpe::build_trie() {
  node_ids_.assign(1, kNoToken);
  for (std::int32_t id = 0; id < num_ids(); ++id) {
    if (!is_stable(id)) continue;
    std::int32_t node = kRoot;
    for (const char c : bytes(id)) {
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
  shorter_.assign(static_cast<std::size_t>(num_ids()), kNoToken);
  for (std::int32_t id = 0; id < num_ids(); ++id) {
    if (!is_stable(id)) continue;
    const std::string_view text = bytes(id);
    shorter_[static_cast<std::size_t>(id)] = longest_stable_prefix(text.substr(0, text.size() - 1));
  }
}

void Bpe::find_word_ends() {
  cuts_words_ = true;
  for (std::int32_t id = 0; id < vocabulary_->size(); ++id) {
    const std::string_view text = vocabulary_->bytes(id);
    const std::size_t word = text.find_first_not_of(' ');
    if (word != std::string_view::npos && text.find(' ', word) != std::string_view::npos) {
      cuts_words_ = false;
    }
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

std::int32_t Bpe::rank_of(std::int32_t left, std::int32_t right) const {
  const std::int32_t merge = merges_.get(left, right);
  if (merge == PairMap::kNone) return kNoRank;
  return ranks_.empty() ? merge : ranks_[static_cast<std::size_t>(merge)];
}

void Bpe::start_parts(std::string_view bytes, Scratch& scratch) const {
  std::vector<std::int32_t>& parts = scratch.parts;
  parts.clear();
  for (std::size_t i = 0, length = 0; i < bytes.size(); i += length) {
    length = unit_length(bytes[i]);
    parts.push_back(unit_of(bytes.substr(i, length)));
  }
  scratch.ranks.assign(parts.size(), kNoRank);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    scratch.ranks[i] = rank_of(parts[i], parts[i + 1]);
  }
}

bool Bpe::merge_parts(Scratch& scratch, std::size_t num_left) const {
  std::vector<std::int32_t>& parts = scratch.parts;
  std::vector<std::int32_t>& ranks = scratch.ranks;  // ranks[i]: of (parts[i], parts[i + 1])
  const auto update = [&](std::size_t i) {
    ranks[i] = i + 1 < parts.size() ? rank_of(parts[i], parts[i + 1]) : kNoRank;
  };
  while (parts.size() > 1) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) break;
    const auto index = static_cast<std::size_t>(best - ranks.begin());
    if (index + 1 == num_left) return false;
    if (index + 1 < num_left) --num_left;
    // Where ranks can be equal they do not tell the merge.
    const std::int32_t merge = ranks_.empty() ? *best : merges_.get(parts[index], parts[index + 1]);
    parts[index] = results_[static_cast<std::size_t>(merge)];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(index) + 1);
    ranks.erase(best);
    update(index);
    if (index > 0) update(index - 1);
  }
  return true;
}

bool Bpe::compatible(std::int32_t left, std::int32_t right, Scratch& scratch) const {
  const auto slot =
      (static_cast<std::size_t>(left) * 31 + static_cast<std::size_t>(right) * 17) % kNumKnownPairs;
  Scratch::KnownPair& known = scratch.known_pairs[slot];
  if (known.left == left && known.right == right) return known.compatible;
  scratch.known_bytes.assign(bytes(left));
  start_parts(scratch.known_bytes, scratch);
  const std::size_t num_left = scratch.parts.size();
  scratch.known_bytes.append(bytes(right));
  start_parts(scratch.known_bytes, scratch);
  known = {left, right, merge_parts(scratch, num_left)};
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
      position -= bytes(last).size();
      candidate = shorter_[static_cast<std::size_t>(last)];
      continue;
    }
    const std::size_t end = position + bytes(candidate).size();
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

void Bpe::encode_with_missing_characters(std::string_view piece, Scratch& scratch,
                                         std::vector<std::int32_t>& ids) const {
  std::size_t begin = 0;  // of the characters that are known
  for (std::size_t i = 0, length = 0; i < piece.size(); i += length) {
    length = character_length(piece[i]);
    if (unit_of(piece.substr(i, length)) != kNoToken) continue;
    if (i > begin) encode_known(piece.substr(begin, i - begin), scratch, ids);
    for (const char c : piece.substr(i, length)) {
      ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    }
    begin = i + length;
  }
  if (begin < piece.size()) encode_known(piece.substr(begin), scratch, ids);
}

void Bpe::spell_extra_units(std::vector<std::int32_t>& ids, std::size_t first) const {
  const auto is_extra = [this](std::int32_t id) { return id >= vocabulary_->size(); };
  const auto start = ids.begin() + static_cast<std::ptrdiff_t>(first);
  if (std::none_of(start, ids.end(), is_extra)) return;
  const std::vector<std::int32_t> encoded(start, ids.end());
  ids.resize(first);
  for (const std::int32_t id : encoded) {
    if (!is_extra(id)) {
      ids.push_back(id);
      continue;
    }
    for (const char c : bytes(id)) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  }
}

void Bpe::encode_word(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = vocabulary_->find(word);
  if (whole != kNoToken && is_stable(whole)) {
    ids.push_back(whole);
    return;
  }
  const std::size_t first = ids.size();
  if (all_units_known(word)) {
    encode_known(word, scratch, ids);
  } else if (characters_) {
    encode_with_missing_characters(word, scratch, ids);
  } else {
    encode_with_missing_bytes(word, scratch, ids);
  }
  if (!extra_units_.empty()) spell_extra_units(ids, first);
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  const std::int32_t whole = whole_pieces_ ? vocabulary_->find(piece) : kNoToken;
  if (whole != kNoToken) {
    ids.push_back(whole);
    return;
  }
  if (!cuts_words_) {
    encode_word(piece, scratch, ids);
    return;
  }
  // Nothing merges across the end of a word.
  while (!piece.empty()) {
    const std::size_t word = std::min(piece.find_first_not_of(' '), piece.size());
    const std::size_t end = std::min(piece.find(' ', word), piece.size());
    encode_word(piece.substr(0, end), scratch, ids);
    piece.remove_prefix(end);
  }
}

}  // namespace caravan::text
