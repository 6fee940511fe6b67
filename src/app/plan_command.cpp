#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "caravan/app/commands.h"
#include "caravan/app/prepared_run.h"
#include "caravan/core/clock.h"
#include "caravan/io/atomic_file.h"
#include "caravan/model/shard_plan.h"

namespace caravan::app {
namespace {

// What a launcher or the allocation says about the number of ranks.
std::int64_t launch_size(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}) {
    const auto value = environment(name);
    if (!value) continue;
    std::int64_t size = 0;
    const auto [end, fault] = std::from_chars(value->data(), value->data() + value->size(), size);
    if (fault == std::errc{} && size > 0) return size;
  }
  return 1;
}

std::string bytes_text(std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string model_text(const checkpoint::ModelDescription& description, std::int64_t file_bytes) {
  const model::LlamaConfig& config = description.config;
  return fmt::format(
      "model      {} ({}, {} on disk), content hash {:.16}\n"
      "           {} layers, width {}, {} query heads, {} KV heads of {}, feed-forward {}, "
      "vocabulary {}, context {}\n",
      description.name, dtype_name(description.dtype), bytes_text(file_bytes),
      description.content_hash, config.num_layers, config.hidden_size, config.num_heads,
      config.num_kv_heads, config.head_dim, config.ffn_size, config.vocab_size,
      config.max_positions);
}

std::string ranks_text(const MemoryPlan& plan, const model::LlamaConfig& config) {
  constexpr std::int64_t kMaxRows = 64;
  const auto num_ranks = static_cast<int>(plan.ranks.size());
  const auto shapes = model::all_shard_shapes(config, num_ranks);
  std::string text = fmt::format(
      "\n{:>4} {:>11} {:>8} {:>13} {:>10}   {:>10} {:>10} {:>10} {:>10}\n", "rank", "query heads",
      "KV heads", "feed-forward", "vocabulary", "weights", "KV cache", "buffers", "total");
  for (int i = 0; i < num_ranks && i < kMaxRows; ++i) {
    const model::ShardShape& shape = shapes[static_cast<std::size_t>(i)];
    const RankMemory& rank = plan.ranks[static_cast<std::size_t>(i)];
    text += fmt::format("{:>4} {:>11} {:>8} {:>13} {:>10}   {:>10} {:>10} {:>10} {:>10}\n", i,
                        shape.local_num_heads(), shape.local_num_kv_heads(), shape.local_ffn_size(),
                        shape.local_vocab_size(), bytes_text(rank.weight_bytes),
                        bytes_text(plan.kv_bytes(rank)), bytes_text(rank.activation_bytes),
                        bytes_text(plan.total_bytes(rank)));
  }
  if (num_ranks > kMaxRows) text += fmt::format("... and {} more\n", num_ranks - kMaxRows);
  return text;
}

std::string verdict_text(const MemoryPlan& plan, std::int64_t node_bytes) {
  std::int64_t together = 0;
  std::int64_t largest = 1;
  for (const RankMemory& rank : plan.ranks) {
    together += plan.total_bytes(rank);
    largest = std::max(largest, plan.total_bytes(rank));
  }
  std::string text =
      fmt::format("\nKV cache   {} tokens in {} blocks\n", plan.kv_tokens(), plan.limits.kv_blocks);
  if (together <= node_bytes) {
    return text +
           fmt::format("memory     {} for {} rank(s); this node has {} free: they fit here\n",
                       bytes_text(together), plan.ranks.size(), bytes_text(node_bytes));
  }
  return text + fmt::format(
                    "memory     {} for {} rank(s); this node has {} free: it holds {}, spread "
                    "the ranks over nodes\n",
                    bytes_text(together), plan.ranks.size(), bytes_text(node_bytes),
                    std::max<std::int64_t>(1, node_bytes / largest));
}

std::string input_text(const batch::WorkloadSummary& summary) {
  return fmt::format("input      {} records ({} chat, {} completions, {} faulty), {}\n",
                     summary.records, summary.chat, summary.completions, summary.faulty,
                     bytes_text(summary.input_bytes));
}

}  // namespace

ExitCode plan_command(const ParsedOptions& parsed, const Environment& environment) {
  const JobOptions& options = parsed.options;
  const std::int64_t num_ranks = options.ranks.value_or(launch_size(environment));
  const std::int64_t node_bytes = available_memory_bytes();
  // Ranks may be spread over nodes like this one, down to one on each.
  PreparedRun prepared(options,
                       std::vector<std::int64_t>(static_cast<std::size_t>(num_ranks), node_bytes));
  const checkpoint::ModelFile& file = prepared.model().file;
  std::string text = model_text(file.description(), file.file_bytes());
  if (prepared.has_workload()) text += input_text(prepared.workload().summary());
  if (prepared.names()) {
    text += fmt::format("output     {}; {} free on its file system\n", prepared.names()->output,
                        bytes_text(io::free_disk_bytes(prepared.names()->folder)));
  }
  text += ranks_text(prepared.memory(), file.description().config);
  text += verdict_text(prepared.memory(), node_bytes);
  text += "\nThe run can start.\n";
  print_result(text);
  return ExitCode::kOk;
}

}  // namespace caravan::app
