#include "caravan/app/size_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "caravan/core/clock.h"
#include "caravan/model/shard_plan.h"

namespace caravan::app {
namespace {

// GiB of GPUs, and of nodes.
constexpr std::int64_t kUsualSizes[] = {2,   4,   6,   8,    10,   12,   16,   24,  32,
                                        40,  48,  64,  80,   96,   128,  141,  192, 256,
                                        384, 512, 768, 1024, 1536, 2048, 3072, 4096};

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string memory_text(std::int64_t bytes) {
  for (const std::int64_t size : kUsualSizes) {
    if (bytes <= (size << 30) / 10 * 9) return fmt::format("{} GiB", size);
  }
  return "more";
}

}  // namespace

SizeRow size_row(const MemoryRequest& request, int num_ranks) {
  std::vector<RankMemory> ranks;
  for (int i = 0; i < num_ranks; ++i) ranks.push_back(rank_memory(request, i, num_ranks));
  const std::int64_t blocks =
      request.kv_bytes ? *request.kv_bytes / largest_block_bytes(ranks) : wanted_blocks(request);
  const std::int64_t image_blocks = request.image_bytes && wanted_image_blocks(request) > 0
                                        ? *request.image_bytes / largest_image_block_bytes(ranks)
                                        : wanted_image_blocks(request);
  SizeRow row;
  row.num_ranks = num_ranks;
  row.min_query_heads = request.config.num_heads;
  for (const RankMemory& rank : ranks) {
    SizeRow own = row;
    own.program_bytes = rank.program_bytes;
    own.weight_bytes = rank.weight_bytes;
    own.kv_bytes = blocks * rank.kv_block_bytes;
    own.image_bytes = image_blocks * rank.image_block_bytes;
    own.buffer_bytes = rank.buffer_bytes();
    if (own.total_bytes() > row.total_bytes()) row = own;
  }
  for (const model::ShardShape& shape : model::all_shard_shapes(request.config, num_ranks)) {
    row.min_query_heads = std::min(row.min_query_heads, shape.local_num_heads());
    row.max_query_heads = std::max(row.max_query_heads, shape.local_num_heads());
    row.max_kv_heads = std::max(row.max_kv_heads, shape.local_num_kv_heads());
  }
  return row;
}

std::string size_table_text(const MemoryRequest& request, int num_ranks) {
  const bool has_images = wanted_image_blocks(request) > 0;
  const auto images = [has_images](const std::string& column) {
    return has_images ? fmt::format(" {:>10}", column) : std::string();
  };
  std::string text = fmt::format("{:>5} {:>11} {:>8}   {:>10} {:>10}{} {:>10} {:>10} {:>10}   {}\n",
                                 "ranks", "query heads", "KV heads", "weights", "KV cache",
                                 images("images"), "buffers", "program", "total", "fits in");
  std::set<int> counts = {1, 2, 4, 8, 16};
  counts.insert(num_ranks);
  for (const int count : counts) {
    const SizeRow row = size_row(request, count);
    const std::string heads = row.min_query_heads == row.max_query_heads
                                  ? fmt::format("{}", row.max_query_heads)
                                  : fmt::format("{}-{}", row.min_query_heads, row.max_query_heads);
    text += fmt::format("{:>5} {:>11} {:>8}   {:>10} {:>10}{} {:>10} {:>10} {:>10}   {}\n", count,
                        heads, row.max_kv_heads, bytes_text(row.weight_bytes),
                        bytes_text(row.kv_bytes), images(bytes_text(row.image_bytes)),
                        bytes_text(row.buffer_bytes), bytes_text(row.program_bytes),
                        bytes_text(row.total_bytes()), memory_text(row.total_bytes()));
  }
  return text;
}

}  // namespace caravan::app
