#pragma once
// How much memory each rank needs and how large the KV cache becomes, from sizes alone and before
// anything is loaded.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "caravan/core/dtype.h"
#include "caravan/engine/engine.h"
#include "caravan/model/config.h"

namespace caravan::app {

/// Resident memory of a rank without anything of a model: code and data of LibTorch, MPI, HDF5 and
/// the other libraries, and what MPI's messages take. Measured on x86-64 Linux with LibTorch 2.11
/// and Open MPI 4.1: 130 to 140 MiB, of which ranks of one node share 80 to 85 (which the
/// accounting of batch systems counts for each).
inline constexpr std::int64_t kProgramBytes = std::int64_t{144} << 20;

struct RankMemory {
  std::int64_t program_bytes = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t activation_bytes = 0;  // without those of the image encoder
  std::int64_t kv_block_bytes = 0;    // of one block
  std::int64_t free_bytes = 0;        // this rank's share of what its node has
  // Of models with vision.
  std::int64_t vision_weight_bytes = 0;  // within weight_bytes: all that text alone does not need
  std::int64_t encoder_bytes = 0;        // activations of the image encoder, if there are images
  std::int64_t preparation_bytes = 0;    // decoded images on the leader
  std::int64_t image_block_bytes = 0;    // of one block
  /// All of a model that is neither weights nor keys and values.
  std::int64_t buffer_bytes() const { return activation_bytes + encoder_bytes + preparation_bytes; }
};

struct MemoryRequest {
  model::LlamaConfig config;
  DType dtype = DType::kFloat32;
  DType kv_dtype = DType::kFloat32;
  std::int64_t program_bytes = kProgramBytes;
  std::int64_t max_sequences = 64;
  std::int64_t max_step_tokens = 512;
  std::int64_t num_threads = 1;          // of a rank, at most
  std::optional<std::int64_t> kv_bytes;  // per rank, asked for by the user
  std::int64_t needed_tokens = 0;        // of the max_sequences largest sequences together
  std::int64_t largest_tokens = 0;       // of the largest sequence
  // Of models with vision, in image blocks.
  std::optional<std::int64_t> image_bytes;  // per rank, asked for by the user
  std::int64_t needed_image_blocks = 0;     // of the max_sequences records with most
  std::int64_t lasting_image_blocks = 0;    // with which no image is encoded twice
  std::int64_t largest_image_group = 0;     // of images that are seen together
  std::int64_t most_seen_blocks = 0;        // that a text reads, equal images as often as shown
  std::int64_t preparation_bytes = 0;       // decoded images on the leader
  std::vector<std::int64_t> free_bytes;     // per rank
};

struct MemoryPlan {
  engine::EngineLimits limits;
  std::vector<RankMemory> ranks;
  std::int64_t kv_tokens() const;
  std::int64_t kv_bytes(const RankMemory& rank) const;
  std::int64_t image_bytes(const RankMemory& rank) const;
  std::int64_t total_bytes(const RankMemory& rank) const;
  /// What --kv-memory must be for one sequence of that many positions.
  std::int64_t kv_bytes_for(std::int64_t tokens) const;
  /// What --image-memory must be for that many image blocks.
  std::int64_t image_bytes_for(std::int64_t blocks) const;
};

/// Image blocks that an image of `tiles` tiles takes. @pre config.vision
std::int64_t image_blocks_of(const model::LlamaConfig& config, std::int64_t tiles);

/// Sets what records will need where there are none to look at: `max_sequences` prompts of
/// kAssumedPromptTokens with the answers that --max-tokens allows; one whole context without it. Of
/// models with vision each prompt shows an image of four tiles.
void assume_records(MemoryRequest& request, std::optional<std::int64_t> max_tokens);
inline constexpr std::int64_t kAssumedPromptTokens = 1024;
/// Most bytes of prepared images that the leader holds for records that run or wait.
inline constexpr std::int64_t kMaxPreparedBytes = std::int64_t{1} << 30;

/// What one of `num_ranks` needs, free_bytes apart.
RankMemory rank_memory(const MemoryRequest& request, int rank, int num_ranks);

/// Blocks of the KV cache that the request's records need, whatever is free.
std::int64_t wanted_blocks(const MemoryRequest& request);
/// Of the rank with the most KV heads; at least 1.
std::int64_t largest_block_bytes(const std::vector<RankMemory>& ranks);

/// Image blocks that the request's records would like, whatever is free: 0 without images.
std::int64_t wanted_image_blocks(const MemoryRequest& request);
std::int64_t largest_image_block_bytes(const std::vector<RankMemory>& ranks);

/// The number of blocks: what was asked for, or what the input needs within half of the free
/// memory (a single longest sequence may take nine tenths). Image blocks come first, within two
/// fifths (the largest group of images that are seen together: four fifths). Of what is left then
/// images that will be shown again take as much as keeps caches within four fifths.
/// @throws ConfigError if a rank's weights and smallest cache do not fit, with the numbers of that
/// rank and what to change.
MemoryPlan plan_memory(const MemoryRequest& request);

/// What images that take `blocks` together and do not fit the plan need, what there is, and what to
/// do about it.
std::string image_fault(const MemoryRequest& request, const MemoryPlan& plan, std::int64_t blocks);

}  // namespace caravan::app
