// `caravan bench`: the speed of this model on these ranks beside what the machine gives at most.
// The steps are those of a run, of made-up prompts; nothing is judged.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "bench_report.h"
#include "bench_work.h"
#include "caravan/app/commands.h"
#include "caravan/app/memory_plan.h"
#include "caravan/app/prepared_run.h"
#include "caravan/app/stop_signals.h"
#include "caravan/app/version.h"
#include "caravan/core/clock.h"
#include "caravan/core/log.h"
#include "caravan/core/partition.h"
#include "caravan/engine/engine.h"
#include "caravan/ops/kv_pool.h"
#include "caravan/ops/peaks.h"
#include "caravan/parallel/timed_communicator.h"
#include "collective.h"
#include "group_command.h"
#include "loaded_model.h"
#include "rank_group.h"

namespace caravan::app {
namespace {

constexpr std::int64_t kDecodeSequences[] = {1, 8, 32, 64};
constexpr std::int64_t kDecodePrompt = 128;
constexpr std::int64_t kPrefillPrompt = 1024;

struct Repetitions {
  std::int64_t decode_steps;
  std::int64_t prompts;
};

Repetitions repetitions(const JobOptions& options) {
  return options.quick ? Repetitions{8, 1} : Repetitions{32, 5};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Bench {
 public:
  Bench(const JobOptions& options, const parallel::MpiEnvironment& mpi,
        const Environment& environment)
      : options_(options),
        mpi_(mpi),
        environment_(environment),
        group_(options, mpi),
        timed_(group_.communicator()) {}

  ExitCode execute() {
    group_.start(mpi_, environment_);
    prepare();
    load();
    measure_machine();
    for (const std::int64_t sequences : kDecodeSequences) {
      if (sequences <= sequences_) decode(sequences);
    }
    prefill();
    if (group_.leads()) {
      print_result(options_.json ? bench_json(report_) : bench_table(report_));
    }
    return ExitCode::kOk;
  }

  std::string whereabouts() const { return group_.whereabouts() + ", measuring"; }
  void free_memory() { model_.reset(); }

 private:
  /// Lengths that fit the model's context.
  std::int64_t decode_prompt() const { return std::min(kDecodePrompt, context_ / 4); }
  std::int64_t prefill_prompt() const { return std::min(kPrefillPrompt, context_ - 1); }
  /// New tokens of each sequence: while others are still at their prompts, and measured ones.
  std::int64_t new_tokens(std::int64_t sequences) const {
    return sequences * decode_prompt() / options_.max_step_tokens + 2 +
           repetitions(options_).decode_steps;
  }
  std::int64_t blocks_of(std::int64_t sequences) const {
    return sequences * ceil_div(decode_prompt() + new_tokens(sequences), ops::KvPool::kBlockTokens);
  }

  void prepare() {
    const auto free_bytes = group_.free_bytes();
    agreed(group_.communicator(), [&] {
      if (!group_.leads()) return;
      front_.emplace(open_model(options_));
      const checkpoint::ModelDescription& description = front_->file.description();
      check_compute(options_, description.dtype);
      context_ = description.config.max_positions;
      const std::int64_t least_context = decode_prompt() + new_tokens(options_.max_sequences);
      CARAVAN_CHECK(decode_prompt() >= 1 && least_context <= context_, ConfigError,
                    "the model has {} positions, bench needs {} for prompts and answers: try "
                    "--quick, or fewer --max-sequences",
                    context_, std::max<std::int64_t>(least_context, 4));
      MemoryRequest request = memory_request(options_, description.config, description.dtype);
      request.free_bytes = free_bytes;
      request.image_bytes.reset();
      request.needed_image_blocks = request.lasting_image_blocks = request.largest_image_group = 0;
      request.most_seen_blocks = request.preparation_bytes = 0;
      const std::int64_t most = blocks_of(options_.max_sequences);
      request.largest_tokens = prefill_prompt() + 1;
      request.needed_tokens = std::max(most * ops::KvPool::kBlockTokens, request.largest_tokens);
      const MemoryPlan plan = plan_memory(request);
      limits_ = plan.limits;
      const std::int64_t least =
          std::max(blocks_of(1) * ops::KvPool::kBlockTokens, request.largest_tokens);
      CARAVAN_CHECK(plan.kv_tokens() >= least, ConfigError,
                    "the KV cache has room for {} tokens, bench needs {} at least: give it "
                    "--kv-memory {} or more",
                    plan.kv_tokens(), least, plan.kv_bytes_for(least));
      sequences_ = options_.max_sequences;
      while (sequences_ > 1 && blocks_of(sequences_) > limits_.kv_blocks) --sequences_;
      if (sequences_ < options_.max_sequences) {
        log::warning("the KV cache has room for {} sequence(s), not {}: more are not measured",
                     sequences_, options_.max_sequences);
      }
    });
    context_ = broadcast_value(group_.communicator(), context_);
    sequences_ = broadcast_value(group_.communicator(), sequences_);
    limits_ = broadcast_value(group_.communicator(), limits_);
    // What is measured is the model's own speed.
    limits_.prefix_sharing = false;
    limits_.max_drafts = 0;
    report_.program = program_version();
    report_.placement = group_.placement();
    report_.compute = ops::compute_name(options_.compute);
    if (group_.leads()) prompts_.emplace(front_->file.description().config.vocab_size);
  }

  void load() {
    LoadOptions load;
    load.limits.max_step_tokens = limits_.max_step_tokens;
    load.limits.kv_blocks = limits_.kv_blocks;
    load.limits.kv_dtype = options_.kv_dtype;
    load.verify = !options_.no_verify;
    model_.emplace(group_, group_.leads() ? &front_->file : nullptr, timed_, load);
    report_.load_seconds = model_->seconds();
    report_.load_bytes = static_cast<double>(model_->total_bytes_read());
    report_.model = model_->description().name;
    report_.dtype = dtype_name(model_->description().dtype);
    const std::vector<std::int64_t> bytes =
        gather(group_.communicator(), model_->decoder().step_weight_bytes());
    weight_bytes_ = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  }

  void measure_machine() {
    group_.communicator().all_gather({});  // so that all measure at the same time
    const std::vector<ops::Peaks> peaks =
        gather(group_.communicator(), ops::measure_peaks(group_.context(), group_.local_ranks()));
    for (const ops::Peaks& rank : peaks) {
      report_.peaks.read_bytes_per_second += rank.read_bytes_per_second;
      report_.peaks.fma_flop_per_second += rank.fma_flop_per_second;
      report_.peaks.tile_flop_per_second += rank.tile_flop_per_second;
    }
    report_.uses_tiles =
        options_.compute == ops::Compute::kBFloat16 && group_.context().isa() == ops::Isa::kAmx;
  }

  /// One engine with what `work` lets it do on the leader; the others follow. `work` gives the
  /// steps that count. Result on the leader: the seconds that it spent in exchanges in these.
  template <typename Work>
  double with_engine(const Work& work) {
    timed_.take_step_seconds();
    if (!group_.leads()) {
      engine::Engine::follow(model_->decoder(), timed_);
      return 0;
    }
    engine::Engine engine(model_->decoder(), timed_, group_.context(), *front_->tokenizer, limits_);
    const Range measured = work(engine);
    engine.stop();
    const std::vector<double> steps = timed_.take_step_seconds();
    return std::accumulate(steps.begin() + measured.begin, steps.begin() + measured.end, 0.0);
  }

  /// The engine's next step; its seconds.
  static double timed_step(engine::Engine& engine) {
    if (stop_signal() != 0) {
      throw Error(ExitCode::kTemporary, fmt::format("stopped by {}", signal_name(stop_signal())));
    }
    const Stopwatch watch;
    engine.step();
    return watch.seconds();
  }

  engine::Request made_up_request(std::int64_t prompt_tokens, std::int64_t new_tokens) {
    engine::Request request;
    request.prompt = prompts_->next(prompt_tokens);
    request.sampling.temperature = 0;
    request.sampling.max_tokens = new_tokens;
    return request;
  }

  void decode(std::int64_t sequences) {
    SpeedFigures figures;
    figures.work = "decode";
    figures.sequences = sequences;
    figures.positions = decode_prompt();
    figures.passes = repetitions(options_).decode_steps;
    double total = 0;
    const double exchange = with_engine([&](engine::Engine& engine) {
      for (std::int64_t i = 0; i < sequences; ++i) {
        engine.submit(made_up_request(decode_prompt(), new_tokens(sequences)));
      }
      while (engine.statistics().prompt_tokens < sequences * decode_prompt()) timed_step(engine);
      const engine::EngineStatistics before = engine.statistics();
      std::vector<double> seconds;
      for (std::int64_t i = 0; i < figures.passes; ++i) seconds.push_back(timed_step(engine));
      const engine::EngineStatistics after = engine.statistics();
      total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      figures.seconds = median(seconds);
      figures.leader_share = 1 - (after.model_seconds - before.model_seconds) / total;
      // Positions that the rows of a step in the middle see.
      const auto seen = static_cast<double>(sequences * decode_prompt()) +
                        static_cast<double>(before.generated_tokens + after.generated_tokens) / 2;
      figures.amount =
          amount_of(front_->file.description().config, {weight_bytes_, options_.kv_dtype},
                    {1, sequences, sequences, seen, seen});
      return Range{before.steps, after.steps};
    });
    finish(figures, static_cast<double>(sequences), exchange / std::max(total, 1e-9));
  }

  void prefill() {
    SpeedFigures figures;
    figures.work = "prefill";
    figures.sequences = 1;
    figures.positions = prefill_prompt();
    figures.passes = repetitions(options_).prompts;
    double total = 0;
    const double exchange = with_engine([&](engine::Engine& engine) {
      std::vector<double> seconds;
      for (std::int64_t i = 0; i < figures.passes; ++i) {
        engine.submit(made_up_request(figures.positions, 1));
        seconds.push_back(0);
        while (!engine.idle()) seconds.back() += timed_step(engine);
      }
      const engine::EngineStatistics after = engine.statistics();
      total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      figures.seconds = median(seconds);
      figures.leader_share = 1 - after.model_seconds / total;
      figures.amount =
          amount_of(front_->file.description().config, {weight_bytes_, options_.kv_dtype},
                    prompt_rows(figures.positions, limits_.max_step_tokens));
      return Range{0, after.steps};
    });
    finish(figures, static_cast<double>(figures.positions), exchange / std::max(total, 1e-9));
  }

  /// @param tokens  of one pass
  void finish(SpeedFigures figures, double tokens, double exchange_share) {
    if (!group_.leads()) return;
    figures.tokens_per_second = tokens / figures.seconds;
    figures.exchange_share = exchange_share;
    report_.speeds.push_back(figures);
    log::info("{} of {} sequence(s): {:.1f} tokens/s", figures.work, figures.sequences,
              figures.tokens_per_second);
  }

  JobOptions options_;
  const parallel::MpiEnvironment& mpi_;
  const Environment& environment_;
  RankGroup group_;
  parallel::TimedCommunicator timed_;
  std::optional<ModelFront> front_;  // leader
  std::optional<LoadedModel> model_;
  std::optional<MadeUpPrompts> prompts_;
  engine::EngineLimits limits_;
  std::int64_t context_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t weight_bytes_ = 0;  // of all ranks
  BenchReport report_;
};

}  // namespace

ExitCode bench_command(const ParsedOptions& parsed, parallel::MpiEnvironment& mpi,
                       const Environment& environment) {
  return run_group_command<Bench>(
      mpi, [&](std::optional<Bench>& bench) { bench.emplace(parsed.options, mpi, environment); });
}

}  // namespace caravan::app
