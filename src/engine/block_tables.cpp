#include "caravan/engine/block_tables.h"

#include <algorithm>

#include "caravan/core/error.h"
#include "caravan/core/partition.h"

namespace caravan::engine {
namespace {

/// Positions from here on are computed by the sequence itself: the last known token's logits choose
/// the next one, those of prompt tokens may be asked for.
std::int64_t shareable_end(const Sequence& sequence) {
  const bool scores =
      sequence.request->sampling.prompt_logprobs && sequence.scored < sequence.prompt_size();
  return std::min(sequence.known(), scores ? sequence.scored : sequence.known()) - 1;
}

}  // namespace

BlockTables::BlockTables(const BlockTableLimits& limits)
    : limits_(limits), allocator_(limits.num_blocks), index_(limits.num_blocks) {}

std::int64_t BlockTables::blocks_for(std::int64_t num_positions) const {
  return ceil_div(num_positions, limits_.block_tokens);
}

BlockContent BlockTables::content_of(const Sequence& sequence, std::int64_t index) {
  const std::int64_t begin = index * limits_.block_tokens;
  const std::int64_t end = begin + limits_.block_tokens;
  tokens_.clear();
  for (std::int64_t i = begin; i < end; ++i) tokens_.push_back(sequence.token_at(i));
  images_.clear();
  if (sequence.images != nullptr) {
    // What the rows see follows from where images stand, in this block and in those before.
    const Range shown = sequence.images->images_at({begin, end});
    for (std::int64_t image = shown.begin; image < shown.end; ++image) {
      images_.push_back(sequence.request->images[static_cast<std::size_t>(image)].content_hash);
    }
  }
  return {tokens_, images_};
}

BlockTables::Prefix BlockTables::find_prefix(const Sequence& sequence) {
  Prefix prefix;
  if (!limits_.prefix_sharing) return prefix;
  const std::int64_t most = shareable_end(sequence) / limits_.block_tokens;
  for (std::int64_t index = 0; index < most; ++index) {
    const auto found = index_.find(prefix.name, content_of(sequence, index));
    if (!found) break;
    prefix.blocks.push_back(found->block);
    prefix.name = found->prefix;
    prefix.num_positions += limits_.block_tokens;
    if (allocator_.references(found->block) == 0) ++prefix.num_without_owner;
  }
  return prefix;
}

std::int64_t BlockTables::blocks_to_start(const Sequence& sequence, const Prefix& prefix) const {
  return blocks_for(sequence.known()) - std::ssize(prefix.blocks) + prefix.num_without_owner;
}

void BlockTables::start(Sequence& sequence, const Prefix& prefix) {
  // First of all, so that the new blocks are others.
  for (const std::int32_t block : prefix.blocks) allocator_.share(block);
  sequence.blocks = prefix.blocks;
  sequence.prefix = prefix.name;
  sequence.prefix_blocks = std::ssize(prefix.blocks);
  sequence.computed = prefix.num_positions;
  num_reused_positions_ += prefix.num_positions;
  const bool grown = grow(sequence);
  CARAVAN_ASSERT(grown, "{} positions were to fit {} free blocks of {} tokens", sequence.known(),
                 allocator_.num_free(), limits_.block_tokens);
}

void BlockTables::skip_computed(Sequence& sequence, std::int64_t end) {
  if (!limits_.prefix_sharing) return;
  end = std::min(end, shareable_end(sequence));
  while (sequence.prefix_blocks == sequence.computed / limits_.block_tokens) {
    // A block that is computed in part is given up for a whole one.
    const std::int64_t block_end = (sequence.prefix_blocks + 1) * limits_.block_tokens;
    if (block_end > end) return;
    const auto found = index_.find(sequence.prefix, content_of(sequence, sequence.prefix_blocks));
    if (!found) return;
    allocator_.share(found->block);
    std::int32_t& place = sequence.blocks[static_cast<std::size_t>(sequence.prefix_blocks)];
    release(place);
    place = found->block;
    sequence.prefix = found->prefix;
    ++sequence.prefix_blocks;
    num_reused_positions_ += block_end - sequence.computed;
    sequence.computed = block_end;
  }
}

void BlockTables::note_computed(Sequence& sequence) {
  if (!limits_.prefix_sharing) return;
  while ((sequence.prefix_blocks + 1) * limits_.block_tokens <= sequence.computed) {
    const std::int64_t index = sequence.prefix_blocks++;
    sequence.prefix = index_.add(sequence.prefix, content_of(sequence, index),
                                 sequence.blocks[static_cast<std::size_t>(index)]);
  }
}

bool BlockTables::grow(Sequence& sequence) {
  const std::int64_t missing = blocks_for(sequence.known()) - std::ssize(sequence.blocks);
  return missing <= 0 || allocate(missing, sequence.blocks);
}

std::int64_t BlockTables::reserve(Sequence& sequence, std::int64_t num_positions) {
  const std::int64_t missing = blocks_for(num_positions) - std::ssize(sequence.blocks);
  if (missing > 0 && !allocate(missing, sequence.blocks)) {
    return std::ssize(sequence.blocks) * limits_.block_tokens;
  }
  return num_positions;
}

void BlockTables::trim(Sequence& sequence) {
  while (std::ssize(sequence.blocks) > blocks_for(sequence.known())) {
    release(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
}

bool BlockTables::make_writable(Sequence& sequence,
                                std::vector<model::StepPlan::BlockCopy>& copies) {
  const auto index = static_cast<std::size_t>(sequence.computed / limits_.block_tokens);
  if (sequence.remaining() == 0 || index >= sequence.blocks.size()) return true;
  const std::int32_t shared = sequence.blocks[index];
  if (allocator_.references(shared) == 1) return true;
  std::vector<std::int32_t> copy;
  if (!allocate(1, copy)) return false;
  copies.push_back({shared, copy.front()});
  release(shared);
  sequence.blocks[index] = copy.front();
  return true;
}

void BlockTables::share(const Sequence& parent, Sequence& child) {
  child.blocks = parent.blocks;
  child.computed = parent.computed;
  child.prefix = parent.prefix;
  child.prefix_blocks = parent.prefix_blocks;
  for (const std::int32_t block : child.blocks) allocator_.share(block);
}

void BlockTables::release(Sequence& sequence) {
  // Last block first: the first one, which more sequences may want, then stays cached for longest.
  for (auto block = sequence.blocks.rbegin(); block != sequence.blocks.rend(); ++block) {
    release(*block);
  }
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.prefix = PrefixIndex::kNothing;
  sequence.prefix_blocks = 0;
}

bool BlockTables::allocate(std::int64_t count, std::vector<std::int32_t>& table) {
  const std::size_t first = table.size();
  if (!allocator_.allocate(count, table)) return false;
  for (std::size_t i = first; i < table.size(); ++i) index_.forget(table[i]);
  return true;
}

void BlockTables::release(std::int32_t block) {
  using Then = BlockAllocator::WithoutOwner;
  allocator_.release(block, index_.contains(block) ? Then::kCached : Then::kFree);
}

}  // namespace caravan::engine
