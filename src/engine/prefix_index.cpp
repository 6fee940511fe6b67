#include "caravan/engine/prefix_index.h"

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::engine {
namespace {

template <typename T>
void append_bytes(std::string& key, const T* data, std::size_t count) {
  key.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

}  // namespace

PrefixIndex::PrefixIndex(std::int64_t num_blocks)
    : keys_(checked_cast<std::size_t>(num_blocks), nullptr) {}

/// Different (before, content) have different keys: every part of variable length stands behind its
/// length.
const std::string& PrefixIndex::make_key(Prefix before, const BlockContent& content) {
  key_.clear();
  append_bytes(key_, &before, 1);
  const std::size_t num_tokens = content.tokens.size();
  append_bytes(key_, &num_tokens, 1);
  append_bytes(key_, content.tokens.data(), num_tokens);
  for (const std::string_view image : content.images) {
    const std::size_t size = image.size();
    append_bytes(key_, &size, 1);
    append_bytes(key_, image.data(), size);
  }
  return key_;
}

std::optional<PrefixIndex::Entry> PrefixIndex::find(Prefix before, const BlockContent& content) {
  const auto found = entries_.find(make_key(before, content));
  if (found == entries_.end()) return std::nullopt;
  return found->second;
}

PrefixIndex::Prefix PrefixIndex::add(Prefix before, const BlockContent& content,
                                     std::int32_t block) {
  CARAVAN_ASSERT(!contains(block), "block {} is noted with a second content", block);
  const auto [entry, is_new] =
      entries_.try_emplace(make_key(before, content), Entry{last_prefix_ + 1, block});
  if (is_new) {
    ++last_prefix_;
    keys_[index(block)] = &entry->first;
  }
  return entry->second.prefix;
}

void PrefixIndex::forget(std::int32_t block) {
  const std::string* key = keys_.at(index(block));
  if (key == nullptr) return;
  keys_[index(block)] = nullptr;
  entries_.erase(entries_.find(*key));
}

}  // namespace caravan::engine
