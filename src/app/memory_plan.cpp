#include "caravan/app/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/partition.h"
#include "caravan/model/decoder.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/stored_parts.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::app {
namespace {

constexpr std::int64_t kBlockTokens = ops::KvPool::kBlockTokens;

// Blocks for sequences of `tokens` positions together; each may leave its last block part empty.
std::int64_t blocks_for(std::int64_t tokens, std::int64_t sequences) {
  return ceil_div(tokens, kBlockTokens) + sequences;
}

// What program, weights and buffers leave.
std::int64_t left_on(const RankMemory& rank) {
  return rank.free_bytes - rank.program_bytes - rank.weight_bytes - rank.buffer_bytes();
}

std::int64_t blocks_in(std::int64_t bytes, double share, std::int64_t block_bytes) {
  return static_cast<std::int64_t>(std::max(0.0, static_cast<double>(bytes) * share) /
                                   static_cast<double>(block_bytes));
}

// Largest number of blocks for which every rank stays within `share` of what it has left.
std::int64_t blocks_within(const std::vector<RankMemory>& ranks, std::int64_t image_blocks,
                           double share) {
  std::int64_t blocks = std::numeric_limits<std::int32_t>::max();
  for (const RankMemory& rank : ranks) {
    if (rank.kv_block_bytes == 0) continue;  // a surplus rank holds no heads
    const std::int64_t images = rank.image_block_bytes * image_blocks;
    blocks = std::min(blocks, blocks_in(left_on(rank) - images, share, rank.kv_block_bytes));
  }
  return blocks;
}

std::int64_t image_blocks_within(const std::vector<RankMemory>& ranks, double share) {
  std::int64_t blocks = std::numeric_limits<std::int32_t>::max();
  for (const RankMemory& rank : ranks) {
    if (rank.image_block_bytes == 0) continue;
    blocks = std::min(blocks, blocks_in(left_on(rank), share, rank.image_block_bytes));
  }
  return blocks;
}

std::int64_t choose_image_blocks(const MemoryRequest& request,
                                 const std::vector<RankMemory>& ranks) {
  const std::int64_t wanted = wanted_image_blocks(request);
  if (wanted == 0) return 0;
  if (request.image_bytes) return *request.image_bytes / largest_image_block_bytes(ranks);
  const std::int64_t comfortable = std::min(wanted, image_blocks_within(ranks, 0.4));
  return std::max(comfortable,
                  std::min(request.largest_image_group, image_blocks_within(ranks, 0.8)));
}

std::int64_t choose_blocks(const MemoryRequest& request, const std::vector<RankMemory>& ranks,
                           std::int64_t image_blocks) {
  if (request.kv_bytes) {
    const std::int64_t block_bytes = largest_block_bytes(ranks);
    const std::int64_t blocks = *request.kv_bytes / block_bytes;
    CARAVAN_CHECK(blocks > 0, ConfigError,
                  "--kv-memory {} is less than one block of {} tokens, which takes {} on a rank: "
                  "give --kv-memory {} or more",
                  *request.kv_bytes, kBlockTokens, format_bytes(static_cast<double>(block_bytes)),
                  block_bytes);
    return blocks;
  }
  const std::int64_t largest = blocks_for(request.largest_tokens, 1);
  const std::int64_t comfortable =
      std::min(wanted_blocks(request), blocks_within(ranks, image_blocks, 0.5));
  return std::max(comfortable, std::min(largest, blocks_within(ranks, image_blocks, 0.9)));
}

// Room for images that records to come show again, in memory that nothing else needs.
std::int64_t lasting_image_blocks(const MemoryRequest& request, const MemoryPlan& plan) {
  std::int64_t blocks = request.lasting_image_blocks;
  for (const RankMemory& rank : plan.ranks) {
    if (rank.image_block_bytes == 0) continue;
    const auto most = static_cast<std::int64_t>(0.8 * static_cast<double>(left_on(rank)));
    blocks = std::min(blocks, (most - plan.kv_bytes(rank)) / rank.image_block_bytes);
  }
  return blocks;
}

void check_fits(const MemoryPlan& plan) {
  const auto left = [&plan](const RankMemory& rank) {
    return rank.free_bytes - plan.total_bytes(rank);
  };
  const auto tightest =
      std::min_element(plan.ranks.begin(), plan.ranks.end(),
                       [&](const auto& a, const auto& b) { return left(a) < left(b); });
  const RankMemory& rank = *tightest;
  CARAVAN_CHECK(
      plan.limits.kv_blocks > 0 && left(rank) >= 0, ConfigError,
      "rank {} needs {} (program {}, weights {}, KV cache {}{}, buffers {}), but its share of the "
      "free "
      "memory of its node is {}. Use more nodes or fewer ranks on each, or reduce "
      "--kv-memory, {}--max-sequences or --max-step-tokens",
      tightest - plan.ranks.begin(), format_bytes(static_cast<double>(plan.total_bytes(rank))),
      format_bytes(static_cast<double>(rank.program_bytes)),
      format_bytes(static_cast<double>(rank.weight_bytes)),
      format_bytes(static_cast<double>(plan.kv_bytes(rank))),
      plan.limits.image_blocks == 0
          ? std::string()
          : fmt::format(", images {}", format_bytes(static_cast<double>(plan.image_bytes(rank)))),
      format_bytes(static_cast<double>(rank.buffer_bytes())),
      format_bytes(static_cast<double>(rank.free_bytes)),
      plan.limits.image_blocks == 0 ? "" : "--image-memory, ");
}

}  // namespace

std::int64_t MemoryPlan::kv_tokens() const { return limits.kv_blocks * kBlockTokens; }

std::int64_t MemoryPlan::kv_bytes(const RankMemory& rank) const {
  return rank.kv_block_bytes * limits.kv_blocks;
}

std::int64_t MemoryPlan::kv_bytes_for(std::int64_t tokens) const {
  return ceil_div(tokens, kBlockTokens) * largest_block_bytes(ranks);
}

std::int64_t MemoryPlan::image_bytes(const RankMemory& rank) const {
  return rank.image_block_bytes * limits.image_blocks;
}

std::int64_t MemoryPlan::image_bytes_for(std::int64_t blocks) const {
  return blocks * largest_image_block_bytes(ranks);
}

std::int64_t MemoryPlan::total_bytes(const RankMemory& rank) const {
  return rank.program_bytes + rank.weight_bytes + rank.buffer_bytes() + kv_bytes(rank) +
         image_bytes(rank);
}

std::int64_t image_blocks_of(const model::LlamaConfig& config, std::int64_t tiles) {
  return ceil_div(tiles * config.vision->tile_tokens(), kBlockTokens);
}

void assume_records(MemoryRequest& request, std::optional<std::int64_t> max_tokens) {
  const std::int64_t context = request.config.max_positions;
  request.needed_tokens = request.largest_tokens = context;
  if (const auto& vision = request.config.vision) {
    request.largest_image_group = image_blocks_of(request.config, model::kMaxTiles);
    request.needed_image_blocks =
        (max_tokens ? request.max_sequences : 1) * request.largest_image_group;
    request.preparation_bytes =
        std::min(kMaxPreparedBytes, 2 * request.max_sequences * model::kMaxTiles * 3 *
                                        vision->tile_size * vision->tile_size);
  }
  if (!max_tokens) return;
  request.largest_tokens = std::min(context, kAssumedPromptTokens + *max_tokens);
  request.needed_tokens = request.max_sequences * request.largest_tokens;
}

RankMemory rank_memory(const MemoryRequest& request, int rank, int num_ranks) {
  const model::LlamaConfig& config = request.config;
  const auto shape = model::shard_shape(config, rank, num_ranks);
  RankMemory memory;
  memory.program_bytes = request.program_bytes;
  memory.weight_bytes = model::shard_weight_bytes(config, shape, request.dtype);
  const std::int64_t image_blocks = wanted_image_blocks(request);
  memory.activation_bytes = model::activation_bytes(
      config, shape,
      {request.max_step_tokens, 0, request.num_threads, image_blocks, request.most_seen_blocks});
  if (config.vision) {
    const std::int64_t encoder =
        model::encoder_activation_bytes(config, shape, request.num_threads);
    memory.activation_bytes -= encoder;
    if (image_blocks > 0) memory.encoder_bytes = encoder;  // touched at the first image
    model::LlamaConfig text_alone = config;
    text_alone.vision.reset();
    memory.vision_weight_bytes =
        memory.weight_bytes - model::shard_weight_bytes(text_alone, shape, request.dtype);
  }
  memory.kv_block_bytes = ops::KvPool::block_bytes(
      {config.num_layers, 1, shape.local_num_kv_heads(), config.head_dim, request.kv_dtype});
  if (image_blocks == 0) return memory;
  memory.image_block_bytes = model::image_block_bytes(config, shape, request.kv_dtype);
  if (rank == 0) memory.preparation_bytes = request.preparation_bytes;
  return memory;
}

std::int64_t wanted_blocks(const MemoryRequest& request) {
  return blocks_for(request.needed_tokens, request.max_sequences);
}

std::int64_t wanted_image_blocks(const MemoryRequest& request) {
  return request.config.vision ? request.needed_image_blocks : 0;
}

std::int64_t largest_image_block_bytes(const std::vector<RankMemory>& ranks) {
  std::int64_t largest = 1;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.image_block_bytes);
  return largest;
}

std::int64_t largest_block_bytes(const std::vector<RankMemory>& ranks) {
  std::int64_t largest = 1;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.kv_block_bytes);
  return largest;
}

MemoryPlan plan_memory(const MemoryRequest& request) {
  const auto num_ranks = static_cast<int>(request.free_bytes.size());
  MemoryPlan plan;
  plan.limits.max_sequences = request.max_sequences;
  plan.limits.max_step_tokens = request.max_step_tokens;
  for (int i = 0; i < num_ranks; ++i) {
    RankMemory rank = rank_memory(request, i, num_ranks);
    rank.free_bytes = request.free_bytes[static_cast<std::size_t>(i)];
    plan.ranks.push_back(rank);
  }
  plan.limits.image_blocks = choose_image_blocks(request, plan.ranks);
  plan.limits.kv_blocks = choose_blocks(request, plan.ranks, plan.limits.image_blocks);
  if (plan.limits.image_blocks > 0 && !request.image_bytes) {
    plan.limits.image_blocks =
        std::max(plan.limits.image_blocks, lasting_image_blocks(request, plan));
  }
  check_fits(plan);
  return plan;
}

std::string image_fault(const MemoryRequest& request, const MemoryPlan& plan, std::int64_t blocks) {
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  return fmt::format(
      "images that a prompt shows side by side need {} for their keys and values on a rank, but "
      "there is {}{}. Use {}more nodes or ranks, or show fewer images side by side",
      text(plan.image_bytes_for(blocks)), text(plan.image_bytes_for(plan.limits.image_blocks)),
      request.image_bytes ? " (--image-memory)" : " within four fifths of the free memory",
      request.image_bytes ? fmt::format("--image-memory {} or more, ", plan.image_bytes_for(blocks))
                          : std::string());
}

}  // namespace caravan::app
