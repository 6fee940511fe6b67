#include "vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace caravan::text {
namespace {

std::uint32_t hash_of(std::string_view bytes) {
  const std::uint64_t hash = std::hash<std::string_view>{}(bytes);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

Vocabulary::Vocabulary(const TokenizerSpec& spec)
    : tokens_(&spec.tokens),
      kinds_(spec.tokens.size(), Kind::kOrdinary),
      slots_(std::bit_ceil(2 * spec.tokens.size() + 2)) {
  for (const std::int32_t id : spec.byte_ids) {
    if (id >= 0 && id < size()) kinds_[static_cast<std::size_t>(id)] = Kind::kByte;
  }
  for (const AddedToken& added : spec.added_tokens) {
    if (added.id < 0 || added.id >= size()) continue;
    Kind& kind = kinds_[static_cast<std::size_t>(added.id)];
    if (kind != Kind::kSpecial) kind = added.special ? Kind::kSpecial : Kind::kAdded;
  }
  // Added words may repeat an ordinary token, which then keeps its bytes.
  for (const Kind pass : {Kind::kOrdinary, Kind::kAdded}) {
    for (std::int32_t id = 0; id < size(); ++id) {
      if (kinds_[static_cast<std::size_t>(id)] == pass) insert(id);
    }
  }
}

std::string_view Vocabulary::bytes(std::int32_t id) const {
  if (id < 0 || id >= size() || is_special(id)) return {};
  return (*tokens_)[static_cast<std::size_t>(id)];
}

bool Vocabulary::is_special(std::int32_t id) const {
  return id >= 0 && id < size() && kinds_[static_cast<std::size_t>(id)] == Kind::kSpecial;
}

std::size_t Vocabulary::slot_of(std::string_view bytes, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t index = hash & mask;
  while (slots_[index].id != kNoToken) {
    const Slot& slot = slots_[index];
    if (slot.hash == hash && (*tokens_)[static_cast<std::size_t>(slot.id)] == bytes) break;
    index = (index + 1) & mask;
  }
  return index;
}

std::int32_t Vocabulary::find(std::string_view bytes) const {
  if (bytes.size() > max_bytes_) return kNoToken;  // also saves hashing a huge piece
  return slots_[slot_of(bytes, hash_of(bytes))].id;
}

void Vocabulary::insert(std::int32_t id) {
  const std::string_view token = (*tokens_)[static_cast<std::size_t>(id)];
  if (token.empty()) return;
  max_bytes_ = std::max(max_bytes_, token.size());
  const std::uint32_t hash = hash_of(token);
  Slot& slot = slots_[slot_of(token, hash)];
  if (slot.id == kNoToken) {
    slot = {hash, id};
  } else if (kinds_[static_cast<std::size_t>(id)] == Kind::kOrdinary) {
    duplicates_.emplace_back(slot.id, id);
  }
}

}  // namespace caravan::text
