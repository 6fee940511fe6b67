#include "node_exchange.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"
#include "caravan/core/log.h"
#include "mpi_check.h"
#include "tree_sum.h"

namespace caravan::parallel {
namespace {

bool all_agree(MPI_Comm comm, bool own) {
  int agreed = own ? 1 : 0;
  CARAVAN_MPI(MPI_Allreduce(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_MIN, comm));
  return agreed == 1;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  CARAVAN_MPI(MPI_Comm_rank(comm, &rank));
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  CARAVAN_MPI(MPI_Comm_size(comm, &size));
  return size;
}

/// The ranks that share memory with this one, in rank order.
CommHandle ranks_of_this_node(MPI_Comm comm, std::optional<int> node) {
  MPI_Comm sharing = MPI_COMM_NULL;
  CARAVAN_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &sharing));
  CommHandle handle(sharing);
  // Every rank takes part, whether it was told a node or not.
  MPI_Comm part = MPI_COMM_NULL;
  CARAVAN_MPI(MPI_Comm_split(sharing, node.value_or(0), rank_in(sharing), &part));
  return CommHandle(part);
}

/// Runs of consecutive ranks of each node.
std::vector<std::vector<Range>> runs_of_nodes(const std::vector<int>& node_of_rank, int num_nodes) {
  std::vector<std::vector<Range>> runs(static_cast<std::size_t>(num_nodes));
  for (std::int64_t rank = 0; rank < std::ssize(node_of_rank); ++rank) {
    auto& own = runs[static_cast<std::size_t>(node_of_rank[static_cast<std::size_t>(rank)])];
    if (!own.empty() && own.back().end == rank) {
      own.back().end = rank + 1;
    } else {
      own.push_back({rank, rank + 1});
    }
  }
  return runs;
}

/// Tree nodes of a run of ranks.
Range nodes_of_ranks(const SlicedSum& sum, Range ranks) {
  const auto last = static_cast<int>(ranks.end) - 1;
  return {sum.first_node_of(static_cast<int>(ranks.begin)),
          sum.first_node_of(last) + std::ssize(sum.nodes_of(last))};
}

}  // namespace

std::unique_ptr<NodeExchange> NodeExchange::make(MPI_Comm comm, std::optional<int> node,
                                                 std::int64_t slot_floats) {
  std::unique_ptr<NodeExchange> exchange(new NodeExchange());
  exchange->rank_ = rank_in(comm);
  exchange->node_comm_ = ranks_of_this_node(comm, node);
  const MPI_Comm node_comm = exchange->node_comm_.get();
  if (all_agree(comm, size_of(node_comm) == 1)) return nullptr;

  exchange->window_ = SharedWindow::make(node_comm, slot_floats);
  if (!all_agree(comm, exchange->window_ != nullptr)) return nullptr;

  const bool leads = rank_in(node_comm) == 0;
  MPI_Comm leaders = MPI_COMM_NULL;
  CARAVAN_MPI(MPI_Comm_split(comm, leads ? 0 : MPI_UNDEFINED, exchange->rank_, &leaders));
  int about[2] = {0, 1};  // number of this node, number of nodes
  if (leads) {
    exchange->leaders_ = CommHandle(leaders);
    about[0] = rank_in(leaders);
    about[1] = size_of(leaders);
  }
  CARAVAN_MPI(MPI_Bcast(about, 2, MPI_INT, 0, node_comm));
  exchange->node_ = about[0];
  std::vector<int> node_of_rank(static_cast<std::size_t>(size_of(comm)));
  CARAVAN_MPI(MPI_Allgather(&exchange->node_, 1, MPI_INT, node_of_rank.data(), 1, MPI_INT, comm));
  exchange->ranks_of_node_ = runs_of_nodes(node_of_rank, about[1]);
  return exchange;
}

const float* NodeExchange::exchange(const SlicedSum& sum, const float* partials, std::int64_t count,
                                    Range tile) {
  float* slot = window_->begin_exchange();
  copy_tile(partials, std::ssize(sum.nodes_of(rank_)), count, tile,
            slot + sum.first_node_of(rank_) * tile.size());
  window_->arrive();
  if (ranks_of_node_.size() > 1) {
    if (leaders_) exchange_between_nodes(sum, slot, tile.size());
    window_->arrive();
  }
  return slot;
}

// Straight from and into the slots: sender and receiver know from `sum` what each message holds.
void NodeExchange::exchange_between_nodes(const SlicedSum& sum, float* slot, std::int64_t width) {
  constexpr int kTag = 0;
  const auto each_piece = [&](int node, const auto& use) {
    for (const Range ranks : ranks_of_node_[static_cast<std::size_t>(node)]) {
      const Range nodes = nodes_of_ranks(sum, ranks);
      if (nodes.empty()) continue;
      use(slot + nodes.begin * width, checked_cast<int>(nodes.size() * width),
          &requests_.emplace_back(MPI_REQUEST_NULL));
    }
  };
  requests_.clear();
  requests_.reserve(2 * static_cast<std::size_t>(sum.num_ranks()) * ranks_of_node_.size());
  const int num_nodes = checked_cast<int>(ranks_of_node_.size());
  for (int peer = 0; peer < num_nodes; ++peer) {
    if (peer == node_) continue;
    each_piece(peer, [&](float* piece, int length, MPI_Request* request) {
      CARAVAN_MPI(MPI_Irecv(piece, length, MPI_FLOAT, peer, kTag, leaders_.get(), request));
    });
    each_piece(node_, [&](const float* piece, int length, MPI_Request* request) {
      CARAVAN_MPI(MPI_Isend(piece, length, MPI_FLOAT, peer, kTag, leaders_.get(), request));
    });
  }
  CARAVAN_MPI(
      MPI_Waitall(checked_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
}

}  // namespace caravan::parallel
