#include "caravan/parallel/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "caravan/core/error.h"

namespace caravan::parallel {
namespace {

constexpr std::size_t kMaxSharedMessage = 4096;

}  // namespace

SlicedSum::SlicedSum(std::int64_t num_slices, const std::vector<Range>& owned) {
  const SliceTree tree(num_slices);
  for (const Range& range : owned) {
    nodes_.push_back(tree.cover(range));
    first_.push_back(static_cast<std::int64_t>(all_nodes_.size()));
    all_nodes_.insert(all_nodes_.end(), nodes_.back().begin(), nodes_.back().end());
  }
  additions_ = tree.finish(all_nodes_);
}

const std::vector<SliceTree::Node>& SlicedSum::nodes_of(int rank) const {
  return nodes_.at(static_cast<std::size_t>(rank));
}

std::int64_t SlicedSum::first_node_of(int rank) const {
  return first_.at(static_cast<std::size_t>(rank));
}

void agree_or_throw(Communicator& communicator, int code, const std::string& message) {
  // Two rounds: codes and lengths always, texts only when there is something to tell. Every rank
  // gets every text, so what goes round is bounded; the lowest rank throws its own whole.
  struct Verdict {
    std::int64_t code;
    std::int64_t length;
  };
  const std::string_view shared = std::string_view(message).substr(0, kMaxSharedMessage);
  const Verdict own{code, std::ssize(shared)};
  const auto gathered = communicator.all_gather(std::as_bytes(std::span(&own, 1)));
  std::vector<Verdict> verdicts(static_cast<std::size_t>(communicator.size()));
  std::memcpy(verdicts.data(), gathered.data(), gathered.size());
  const auto failing = std::find_if(verdicts.begin(), verdicts.end(),
                                    [](const Verdict& verdict) { return verdict.code != 0; });
  if (failing == verdicts.end()) return;
  const auto failing_code = static_cast<ExitCode>(failing->code);

  std::int64_t longest = 1;
  for (const Verdict& verdict : verdicts) longest = std::max(longest, verdict.length);
  std::string padded(shared);
  padded.resize(static_cast<std::size_t>(longest), '\0');
  const auto texts = communicator.all_gather(std::as_bytes(std::span(padded)));
  const auto rank = failing - verdicts.begin();
  if (rank == 0 && communicator.rank() == 0) throw Error(failing_code, message);
  const auto* text = reinterpret_cast<const char*>(texts.data()) + rank * longest;
  std::string said(text, static_cast<std::size_t>(failing->length));
  if (rank != 0) said = fmt::format("rank {}: {}", rank, said);
  throw Error(failing_code, said);
}

}  // namespace caravan::parallel
