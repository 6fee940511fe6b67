#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "caravan/app/commands.h"
#include "caravan/app/device_choice.h"
#include "caravan/app/prepared_run.h"
#include "caravan/app/size_table.h"
#include "caravan/checkpoint/architecture.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/machine_limits.h"
#include "caravan/core/partition.h"
#include "caravan/cuda/device.h"
#include "caravan/io/atomic_file.h"
#include "caravan/model/shard_plan.h"
#include "caravan/model/stored_parts.h"
#include "caravan/ops/kv_pool.h"

namespace caravan::app {
namespace {

// Of one model: far more than have heads or bands of it, and listed within seconds.
constexpr std::int64_t kMaxRanks = 4096;

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

std::string sizes_text(const model::LlamaConfig& config) {
  std::string text = fmt::format(
      "           {:.2f} billion parameters: {} layers, width {}, {} query heads, {} KV heads of "
      "{}, "
      "feed-forward {},\n"
      "           vocabulary {}{}, context {}\n",
      static_cast<double>(checkpoint::num_parameters(config)) / 1e9, config.num_layers,
      config.hidden_size, config.num_heads, config.num_kv_heads, config.head_dim, config.ffn_size,
      config.vocab_size, config.tied_embeddings ? " (tied)" : "", config.max_positions);
  if (!config.vision) return text;
  const checkpoint::VisionText vision = checkpoint::vision_text(*config.vision);
  text +=
      fmt::format("           cross-attention: {}\n           images: {}\n           encoder: {}\n",
                  vision.cross_attention, vision.images, vision.encoder);
  return text;
}

std::string model_text(const checkpoint::ModelFile& file) {
  const checkpoint::ModelDescription& description = file.description();
  return fmt::format("model      {} ({}, {} on disk), content hash {:.16}\n{}", description.name,
                     dtype_name(description.dtype), bytes_text(file.file_bytes()),
                     description.content_hash, sizes_text(description.config));
}

// What the KV cache of a plan without records is for.
std::string assumption_text(const MemoryRequest& request) {
  if (request.kv_bytes) {
    return fmt::format("KV cache   {} for each rank (--kv-memory)\n",
                       bytes_text(*request.kv_bytes));
  }
  return fmt::format(
      "KV cache   for {} sequence(s) of {} tokens: {}\n",
      request.needed_tokens / request.largest_tokens, request.largest_tokens,
      request.needed_tokens == request.largest_tokens
          ? std::string("one whole context, as no --max-tokens limits answers")
          : fmt::format("--max-sequences prompts of {}, and --max-tokens", kAssumedPromptTokens));
}

std::string sharing_text(const MemoryRequest& request, int num_ranks) {
  std::string text;
  if (request.config.vision) {
    const RankMemory rank = rank_memory(request, 0, num_ranks);
    text += fmt::format(
        "vision     encoder, projector and layers that read images: {} of the weights of rank "
        "0{}\n",
        bytes_text(rank.vision_weight_bytes),
        rank.encoder_bytes == 0
            ? std::string("; no images, so no memory for them")
            : fmt::format(", and {} of its buffers", bytes_text(rank.encoder_bytes)));
    if (rank.encoder_bytes > 0) {
      const auto image = [&](std::int64_t tiles) {
        return bytes_text(image_blocks_of(request.config, tiles) * rank.image_block_bytes);
      };
      text += fmt::format(
          "images     keys and values on rank 0: {} of an image of one tile, {} of four tiles; it "
          "also prepares\n           images, within {} of its buffers\n",
          image(1), image(model::kMaxTiles), bytes_text(rank.preparation_bytes));
    }
  }
  return text +
         "\nWhat one rank needs, by the number of ranks, and the memory that 90 % of suffices:\n" +
         size_table_text(request, num_ranks);
}

std::string ranks_text(const MemoryPlan& plan, const model::LlamaConfig& config) {
  constexpr std::int64_t kMaxRows = 64;
  const auto num_ranks = static_cast<int>(plan.ranks.size());
  const auto shapes = model::all_shard_shapes(config, num_ranks);
  const bool has_images = plan.limits.image_blocks > 0;
  const auto images = [has_images](const std::string& column) {
    return has_images ? fmt::format(" {:>10}", column) : std::string();
  };
  std::string text =
      fmt::format("\n{:>4} {:>11} {:>8} {:>13} {:>10}   {:>10} {:>10}{} {:>10} {:>10} {:>10}\n",
                  "rank", "query heads", "KV heads", "feed-forward", "vocabulary", "weights",
                  "KV cache", images("images"), "buffers", "program", "total");
  for (int i = 0; i < num_ranks && i < kMaxRows; ++i) {
    const model::ShardShape& shape = shapes[static_cast<std::size_t>(i)];
    const RankMemory& rank = plan.ranks[static_cast<std::size_t>(i)];
    text += fmt::format("{:>4} {:>11} {:>8} {:>13} {:>10}   {:>10} {:>10}{} {:>10} {:>10} {:>10}\n",
                        i, shape.local_num_heads(), shape.local_num_kv_heads(),
                        shape.local_ffn_size(), shape.local_vocab_size(),
                        bytes_text(rank.weight_bytes), bytes_text(plan.kv_bytes(rank)),
                        images(bytes_text(plan.image_bytes(rank))), bytes_text(rank.buffer_bytes()),
                        bytes_text(rank.program_bytes), bytes_text(plan.total_bytes(rank)));
  }
  if (num_ranks > kMaxRows) text += fmt::format("... and {} more\n", num_ranks - kMaxRows);
  return text;
}

// What a node has, in words.
std::string node_text(const JobOptions& options, std::int64_t node_bytes) {
  return options.node_memory ? fmt::format("a node has {}", bytes_text(node_bytes))
                             : fmt::format("this node has {} free", bytes_text(node_bytes));
}

std::string verdict_text(const MemoryRequest& request, const MemoryPlan& plan,
                         const JobOptions& options, std::int64_t node_bytes) {
  std::int64_t together = 0;
  std::int64_t largest = 1;
  for (const RankMemory& rank : plan.ranks) {
    together += plan.total_bytes(rank);
    largest = std::max(largest, plan.total_bytes(rank));
  }
  std::string text =
      fmt::format("\nKV cache   {} tokens in {} blocks\n", plan.kv_tokens(), plan.limits.kv_blocks);
  if (plan.limits.image_blocks > 0) {
    text +=
        fmt::format("images     {} image tokens in {} blocks, {} on a rank\n",
                    plan.limits.image_blocks * ops::KvPool::kBlockTokens, plan.limits.image_blocks,
                    bytes_text(plan.image_bytes_for(plan.limits.image_blocks)));
    const std::int64_t lasting = request.lasting_image_blocks;
    if (lasting > plan.limits.image_blocks) {
      text += fmt::format(
          "           some images will be encoded again for later records; none with "
          "--image-memory {} ({})\n",
          plan.image_bytes_for(lasting), bytes_text(plan.image_bytes_for(lasting)));
    } else if (lasting > 0) {
      text += "           every distinct image is encoded once\n";
    }
  }
  const auto num_ranks = static_cast<std::int64_t>(plan.ranks.size());
  text += fmt::format("memory     {} for {} rank(s); {}: ", bytes_text(together), num_ranks,
                      node_text(options, node_bytes));
  if (together <= node_bytes) return text + "they fit on one\n";
  const std::int64_t on_a_node = std::clamp<std::int64_t>(node_bytes / largest, 1, num_ranks);
  return text + fmt::format("it holds {}, so spread them over {} nodes\n", on_a_node,
                            ceil_div(num_ranks, on_a_node));
}

// A model of which only the architecture is known: memory alone.
ExitCode plan_architecture(const JobOptions& options, std::int64_t num_ranks,
                           std::int64_t node_bytes) {
  CARAVAN_CHECK(options.inputs.empty() && options.output.empty(), UsageError,
                "{} is an architecture without tokenizer and weights: --input and --output can be "
                "checked with the converted model (--model MODEL.h5)",
                options.model);
  const checkpoint::Architecture architecture = checkpoint::read_architecture(options.model);
  const model::LlamaConfig& config = architecture.config;
  const DType dtype = options.dtype.value_or(architecture.dtype);
  CARAVAN_CHECK(options.compute == ops::Compute::kFloat32 || dtype == DType::kBFloat16, ConfigError,
                "--compute bf16 multiplies weights stored as bf16, but this is a plan for {}: add "
                "--dtype bf16, or use --compute fp32",
                dtype_name(dtype));
  if (const auto problems = model::quantization_problems(config); is_quantized(dtype)) {
    CARAVAN_CHECK(problems.empty(), ConfigError, "{} cannot be stored as {}: {}", architecture.path,
                  dtype_name(dtype), fmt::join(problems, "; "));
  }
  MemoryRequest request = memory_request(options, config, dtype);
  std::string text =
      fmt::format("model      {} (architecture of {}, planned as {})\n{}", architecture.name,
                  architecture.path, dtype_name(dtype), sizes_text(config));
  text += assumption_text(request) + sharing_text(request, static_cast<int>(num_ranks));
  print_result(text);
  request.free_bytes.assign(static_cast<std::size_t>(num_ranks), node_bytes);
  const MemoryPlan plan = plan_memory(request);
  CARAVAN_CHECK(plan.limits.image_blocks >= request.largest_image_group, ConfigError, "{}",
                image_fault(request, plan, request.largest_image_group));
  print_result(ranks_text(plan, config) + verdict_text(request, plan, options, node_bytes));
  return ExitCode::kOk;
}

std::string input_text(const batch::WorkloadSummary& summary) {
  return fmt::format("input      {} records ({} chat, {} completions, {} faulty), {}\n",
                     summary.records, summary.chat, summary.completions, summary.faulty,
                     bytes_text(summary.input_bytes)) +
         (summary.images == 0
              ? std::string()
              : fmt::format("           {} images in {} records, {} distinct\n", summary.images,
                            summary.image_records, summary.distinct_images));
}

}  // namespace

ExitCode plan_command(const ParsedOptions& parsed, const Environment& environment) {
  const JobOptions& options = parsed.options;
  const std::string device = choose_device(options.device, cuda::survey_devices);
  const std::int64_t num_ranks = options.ranks.value_or(launch_size(environment));
  CARAVAN_CHECK(num_ranks <= kMaxRanks, UsageError,
                "plan is for at most {} ranks that share one model, found {}; give --ranks",
                kMaxRanks, num_ranks);
  const std::int64_t node_bytes = options.node_memory.value_or(available_memory_bytes());
  if (checkpoint::is_architecture(options.model)) {
    return plan_architecture(options, num_ranks, node_bytes);
  }
  CARAVAN_CHECK(
      !options.dtype, UsageError,
      "--dtype is for models without weights; {} has those that `caravan convert --dtype` "
      "made",
      options.model);
  PreparedRun prepared(options);
  const checkpoint::ModelFile& file = prepared.model().file;
  std::string text = model_text(file);
  if (prepared.has_workload()) text += input_text(prepared.workload().summary());
  if (prepared.names()) {
    text += fmt::format("output     {}; {} free on its file system\n", prepared.names()->output,
                        bytes_text(io::free_disk_bytes(prepared.names()->folder)));
  }
  text += fmt::format("device     {}\n", device);
  if (!prepared.has_workload()) text += assumption_text(prepared.memory_request());
  print_result(text + sharing_text(prepared.memory_request(), static_cast<int>(num_ranks)));
  // Ranks may be spread over nodes like this one, down to one on each.
  prepared.plan(std::vector<std::int64_t>(static_cast<std::size_t>(num_ranks), node_bytes));
  text = ranks_text(prepared.memory(), file.description().config);
  text += verdict_text(prepared.memory_request(), prepared.memory(), options, node_bytes);
  text += "\nThe run can start.\n";
  print_result(text);
  return ExitCode::kOk;
}

}  // namespace caravan::app
