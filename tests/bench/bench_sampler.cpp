// Processor time of choosing one token from a row of logits, on one thread, and calls of operator
// new in it.
//
//   bench_sampler ROWS VOCAB_SIZE...
//
// Prints a line for each kind of sampling: microseconds per token, allocations per token, and a
// checksum of the tokens, which is equal where the tokens are. Rows are normal numbers with a few
// large ones, as those of language models have.

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "caravan/core/thread_team.h"
#include "caravan/engine/sampler.h"
#include "support/allocation_counter.h"

namespace {

using namespace caravan;

std::vector<std::vector<float>> make_rows(std::int64_t rows, std::int64_t vocab_size) {
  std::mt19937 random(1);
  std::vector<std::vector<float>> result;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::normal_distribution<float> noise(0.0F, 2.5F);
    std::vector<float> logits(static_cast<std::size_t>(vocab_size));
    for (float& logit : logits) logit = noise(random);
    for (int peak = 0; peak < 8; ++peak) {
      logits[random() % logits.size()] = 12.0F + noise(random);
    }
    result.push_back(std::move(logits));
  }
  return result;
}

void measure(const std::string& name, const std::vector<std::vector<float>>& rows,
             const engine::SamplingParams& params) {
  ThreadTeam team(1);
  const ops::Context context(team, ops::detect_isa());
  const auto vocab_size = std::ssize(rows.front());
  engine::Sampler sampler(context, vocab_size, vocab_size);
  std::vector<std::int32_t> generated;
  generated.reserve(rows.size());
  const std::vector<std::int32_t> prompt{1, 2, 3};
  std::uint64_t checksum = 0xCBF29CE484222325U;
  sampler.choose(rows.front(), {params, prompt, generated, 0});  // makes what grows on use
  const std::int64_t allocations = test::allocation_count();
  const std::clock_t begin = std::clock();
  for (const auto& row : rows) {
    const std::int32_t id = sampler.choose(row, {params, prompt, generated, 0}).value_or(-1);
    generated.push_back(id);
    checksum = (checksum ^ static_cast<std::uint32_t>(id)) * 0x100000001B3U;
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const auto count = static_cast<double>(rows.size());
  std::cout << fmt::format("{:7} ids  {:24} {:8.1f} us  {:5.2f} allocations  {:016x}\n", vocab_size,
                           name, seconds * 1e6 / count,
                           static_cast<double>(test::allocation_count() - allocations) / count,
                           checksum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: bench_sampler ROWS VOCAB_SIZE...\n";
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const auto rows = make_rows(std::atoll(argv[1]), std::atoll(argv[i]));
    engine::SamplingParams params;
    params.temperature = 0;
    measure("greedy, whole row", rows, params);
    params.temperature = 1;
    measure("temperature 1", rows, params);
    params.top_p = 0.9;
    params.temperature = 0.7;
    measure("0.7, top_p 0.9", rows, params);
    params.temperature = 1.5;
    measure("1.5, top_p 0.9", rows, params);
    params.top_k = 50;
    measure("1.5, top_k 50, top_p 0.9", rows, params);
    params.min_p = 0.05;
    params.repetition_penalty = 1.1;
    measure("and min_p, repetition", rows, params);
  }
}
