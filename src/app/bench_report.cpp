#include "bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "caravan/core/clock.h"

namespace caravan::app {
namespace {

double peak_flop(const BenchReport& report) {
  return report.uses_tiles ? report.peaks.tile_flop_per_second : report.peaks.fma_flop_per_second;
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string line_of(const BenchReport& report, const SpeedFigures& speed) {
  const double flop_rate = speed.amount.flop / speed.seconds;
  const double byte_rate = speed.amount.bytes / speed.seconds;
  return fmt::format("{:<9}{:>5}{:>9}{:>11.2f}{:>11.1f}{:>10.1f}{:>7}{:>9.1f}{:>7}{:>10}{:>8}\n",
                     speed.work, speed.sequences, speed.positions, 1e3 * speed.seconds,
                     speed.tokens_per_second, 1e-9 * flop_rate,
                     percent(flop_rate / peak_flop(report)), 1e-9 * byte_rate,
                     percent(byte_rate / report.peaks.read_bytes_per_second),
                     percent(speed.exchange_share), percent(speed.leader_share));
}

}  // namespace

std::string bench_table(const BenchReport& report) {
  std::string text = fmt::format(
      "program   {}\nmodel     {} ({})\nranks     {}, {} thread(s) each, {} kernels, {} "
      "computing\n",
      report.program, report.model, report.dtype, report.placement.ranks.size(),
      report.placement.threads, report.placement.kernels, report.compute);
  text += fmt::format("peaks     reading {:.1f} GB/s, FMA {:.0f} GFLOP/s",
                      1e-9 * report.peaks.read_bytes_per_second,
                      1e-9 * report.peaks.fma_flop_per_second);
  if (report.peaks.tile_flop_per_second > 0) {
    text += fmt::format(", bf16 tiles {:.0f} GFLOP/s", 1e-9 * report.peaks.tile_flop_per_second);
  }
  text += fmt::format("\nload      {} in {:.2f} s, {:.2f} GB/s\n\n",
                      format_bytes(report.load_bytes), report.load_seconds,
                      1e-9 * report.load_bytes / std::max(report.load_seconds, 1e-9));
  text += fmt::format("{:<9}{:>5}{:>9}{:>11}{:>11}{:>10}{:>7}{:>9}{:>7}{:>10}{:>8}\n", "", "seqs",
                      "prompt", "ms", "tokens/s", "GFLOP/s", "peak", "GB/s", "peak", "exchange",
                      "leader");
  for (const SpeedFigures& speed : report.speeds) text += line_of(report, speed);
  text += fmt::format(
      "\nms: of one step with a token of every sequence, or of one whole prompt; medians.\n"
      "GFLOP/s: products of weights and of attention that these tokens need; peak: of {}.\n"
      "GB/s: weights once a step and the keys and values that are read; peak: of reading memory,\n"
      "which a last-level cache can exceed.\n"
      "exchange: of the leader's time, exchanging sums, waiting for slower ranks included.\n"
      "leader: of the time, planning, choosing tokens and sending plans, while the model rests.\n",
      report.uses_tiles ? "bf16 tiles" : "FMA");
  return text;
}

std::string bench_json(const BenchReport& report) {
  using Json = nlohmann::ordered_json;
  Json speeds = Json::array();
  for (const SpeedFigures& speed : report.speeds) {
    speeds.push_back({{"work", speed.work},
                      {"sequences", speed.sequences},
                      {"prompt_tokens", speed.positions},
                      {"passes", speed.passes},
                      {"seconds", speed.seconds},
                      {"tokens_per_second", speed.tokens_per_second},
                      {"flop_per_second", speed.amount.flop / speed.seconds},
                      {"bytes_per_second", speed.amount.bytes / speed.seconds},
                      {"exchange_share", speed.exchange_share},
                      {"leader_share", speed.leader_share}});
  }
  const Json json = {{"program", report.program},
                     {"model", {{"name", report.model}, {"dtype", report.dtype}}},
                     {"launch",
                      {{"ranks", report.placement.ranks},
                       {"threads_per_rank", report.placement.threads},
                       {"device", report.placement.device},
                       {"kernels", report.placement.kernels},
                       {"compute", report.compute}}},
                     {"peaks",
                      {{"read_bytes_per_second", report.peaks.read_bytes_per_second},
                       {"fma_flop_per_second", report.peaks.fma_flop_per_second},
                       {"tile_flop_per_second", report.peaks.tile_flop_per_second}}},
                     {"load", {{"seconds", report.load_seconds}, {"bytes", report.load_bytes}}},
                     {"speeds", speeds}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace caravan::app
