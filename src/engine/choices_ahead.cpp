#include "choices_ahead.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "caravan/core/standard_floats.h"
#include "caravan/core/thread_team.h"

namespace caravan::engine {

/// A sampler with a context of one thread, because a team's threads cannot share out work again.
struct ChoicesAhead::Worker {
  Worker(ops::Isa isa, std::int64_t vocab_size, std::int64_t num_sampleable)
      : context(team, isa), sampler(context, vocab_size, num_sampleable) {}

  ThreadTeam team{1};
  ops::Context context;
  Sampler sampler;
};

ChoicesAhead::ChoicesAhead(const ops::Context& context, std::int64_t vocab_size,
                           std::int64_t num_sampleable)
    : context_(context), vocab_size_(vocab_size), num_sampleable_(num_sampleable) {}

ChoicesAhead::~ChoicesAhead() = default;

ChoicesAhead::Choice ChoicesAhead::choose(Sampler& sampler, const Row& row) {
  const SamplingParams& params = row.request->sampling;
  if (!sampler.row_fault(row.logits).empty()) return {};
  Choice choice;
  choice.id = sampler.choose(row.logits, {params, row.request->prompt, row.generated, row.choice});
  if (choice.id && params.logprobs) {
    choice.logprob = sampler.logprob(row.logits, *choice.id, params.top_logprobs);
  }
  return choice;
}

std::span<ChoicesAhead::Choice> ChoicesAhead::choose(std::span<const Row> rows) {
  choices_.clear();
  choices_.resize(rows.size());
  const auto wanted = static_cast<std::int64_t>(std::count_if(
      rows.begin(), rows.end(), [](const Row& row) { return row.request != nullptr; }));
  ThreadTeam& team = context_.team();
  if (wanted < 2 || team.size() < 2) return choices_;
  const std::int64_t num_workers = std::min<std::int64_t>(team.size(), wanted);
  while (std::ssize(workers_) < num_workers) {
    workers_.push_back(std::make_unique<Worker>(context_.isa(), vocab_size_, num_sampleable_));
  }
  std::atomic<std::size_t> next{0};
  team.run([&](ThreadShare share) {
    if (share.index >= num_workers) return;
    const StandardFloats floats;
    Sampler& sampler = workers_[static_cast<std::size_t>(share.index)]->sampler;
    for (std::size_t i = next.fetch_add(1); i < rows.size(); i = next.fetch_add(1)) {
      if (rows[i].request == nullptr) continue;
      try {
        choices_[i] = choose(sampler, rows[i]);
      } catch (const std::exception&) {
        choices_[i] = {};  // thrown again where the row is used
      }
    }
  });
  return choices_;
}

}  // namespace caravan::engine
