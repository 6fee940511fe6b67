#pragma once
// The block tables of sequences: taken from the pool, grown, shared, given back. Full blocks are
// shared between all sequences that begin with the same tokens and images, and stay in the pool
// without an owner as long as nobody needs the room.
//
// A step stores the keys and values of all its rows before any row attends, in every layer, so a
// block may be shared in the very step that computes it: it is noted when its rows are planned. Of
// two sequences that compute the same block in one step each keeps its own. Plain bookkeeping, as
// scheduler.h. Leaves out: who gets blocks when they run short (scheduler.h).

#include <cstdint>
#include <string_view>
#include <vector>

#include "caravan/engine/block_allocator.h"
#include "caravan/engine/prefix_index.h"
#include "caravan/engine/sequence.h"
#include "caravan/model/step_plan.h"

namespace caravan::engine {

struct BlockTableLimits {
  std::int64_t num_blocks = 0;
  std::int64_t block_tokens = 16;
  bool prefix_sharing = true;  // between requests; choices of one share in any case
};

class BlockTables {
 public:
  explicit BlockTables(const BlockTableLimits& limits);

  const BlockAllocator& blocks() const { return allocator_; }
  std::int64_t blocks_for(std::int64_t num_positions) const;
  /// Positions that sequences did not compute because another one, or they themselves before they
  /// were put back, had done it.
  std::int64_t num_reused_positions() const { return num_reused_positions_; }

  /// Blocks in the pool that hold the first tokens of a sequence.
  struct Prefix {
    std::vector<std::int32_t> blocks;
    PrefixIndex::Prefix name = PrefixIndex::kNothing;
    std::int64_t num_positions = 0;
    std::int64_t num_without_owner = 0;
  };
  /// What a sequence without blocks can start from, short of the rows whose logits it needs.
  Prefix find_prefix(const Sequence& sequence);
  /// Free blocks that start() takes.
  std::int64_t blocks_to_start(const Sequence& sequence, const Prefix& prefix) const;
  /// Gives a sequence without blocks a table for all its known tokens that begins with `prefix`,
  /// just found, whose positions count as computed. @pre as many blocks are free
  void start(Sequence& sequence, const Prefix& prefix);

  /// Replaces the next blocks to compute by those that others have computed since the sequence
  /// started, up to position `end`.
  void skip_computed(Sequence& sequence, std::int64_t end);
  /// Lets others find the full blocks before `sequence.computed`.
  void note_computed(Sequence& sequence);

  /// Blocks for all known tokens; false if there are none.
  [[nodiscard]] bool grow(Sequence& sequence);
  /// Blocks for `num_positions` positions, perhaps more than are known, or fewer: as many as it has
  /// or can get at once. Returns for how many positions they are.
  std::int64_t reserve(Sequence& sequence, std::int64_t num_positions);
  /// Gives back the blocks behind the known tokens.
  void trim(Sequence& sequence);
  /// Makes the sequence the only owner of the block that its next row is written to; false if there
  /// is no block to copy it to.
  [[nodiscard]] bool make_writable(Sequence& sequence,
                                   std::vector<model::StepPlan::BlockCopy>& copies);
  /// `child` gets the table of `parent`.
  void share(const Sequence& parent, Sequence& child);
  /// The sequence has no blocks any more, and nothing computed.
  void release(Sequence& sequence);

 private:
  BlockContent content_of(const Sequence& sequence, std::int64_t index);
  bool allocate(std::int64_t count, std::vector<std::int32_t>& table);
  void release(std::int32_t block);

  BlockTableLimits limits_;
  BlockAllocator allocator_;
  PrefixIndex index_;
  std::int64_t num_reused_positions_ = 0;
  std::vector<std::int32_t> tokens_;      // scratch
  std::vector<std::string_view> images_;  // scratch
};

}  // namespace caravan::engine
