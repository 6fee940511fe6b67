#include "caravan/parallel/mpi_communicator.h"

#include <immintrin.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "caravan/core/standard_floats.h"
#include "caravan/parallel/single_communicator.h"
#include "comm_handle.h"
#include "mpi_check.h"
#include "node_exchange.h"
#include "tree_sum.h"

namespace caravan::parallel {
namespace {

// MPI counts are ints: longer messages go in pieces of this many elements.
constexpr std::int64_t kPiece = std::int64_t{1} << 30;

// First packet of a broadcast: length and the first bytes, so that a usual step plan takes one
// message.
constexpr std::size_t kFirstPacket = 8192;

// Of the only messages on the group's communicator that are no part of a collective.
constexpr int kAlertTag = 1;

// A rank that waits for a plan or a verdict stays awake this long (the gap between two steps), then
// sleeps in growing naps.
constexpr double kAwakeSeconds = 2e-3;
constexpr auto kLongestNap = std::chrono::microseconds(1000);

void wait_gently(MPI_Request& request) {
  const Stopwatch watch;
  auto nap = std::chrono::microseconds(20);
  while (true) {
    int done = 0;
    CARAVAN_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done != 0) return;
    if (watch.seconds() < kAwakeSeconds) {
      _mm_pause();
      sched_yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

void check_float_contiguous(const at::Tensor& x, const char* name) {
  CARAVAN_ASSERT(x.is_contiguous() && x.scalar_type() == at::kFloat,
                 "{} must be contiguous float32", name);
}

}  // namespace

struct MpiCommunicator::State {
  CommHandle comm;
  int rank = 0;
  int size = 1;
  std::unique_ptr<NodeExchange> nodes;  // where ranks share nodes
  std::vector<float> sent;              // else: this rank's part of a tile, and
  std::vector<float> gathered;          // the partial sums of all ranks
  std::vector<float> scratch;           // of finish_tree_sum
  std::vector<float> columns;  // rank 0: pieces of logits before they are laid side by side
  std::vector<int> counts;     // of MPI calls, made once per call without allocating
  std::vector<int> offsets;

  const float* exchange_by_mpi(const SlicedSum& sum, const float* partials, std::int64_t count,
                               Range tile);
};

const float* MpiCommunicator::State::exchange_by_mpi(const SlicedSum& sum, const float* partials,
                                                     std::int64_t count, Range tile) {
  const std::int64_t own_nodes = std::ssize(sum.nodes_of(rank));
  sent.resize(static_cast<std::size_t>(own_nodes * tile.size()));
  gathered.resize(static_cast<std::size_t>(sum.num_nodes() * tile.size()));
  copy_tile(partials, own_nodes, count, tile, sent.data());
  counts.clear();
  offsets.clear();
  for (int peer = 0; peer < size; ++peer) {
    counts.push_back(checked_cast<int>(std::ssize(sum.nodes_of(peer)) * tile.size()));
    offsets.push_back(checked_cast<int>(sum.first_node_of(peer) * tile.size()));
  }
  CARAVAN_MPI(MPI_Allgatherv(sent.data(), checked_cast<int>(sent.size()), MPI_FLOAT,
                             gathered.data(), counts.data(), offsets.data(), MPI_FLOAT,
                             comm.get()));
  return gathered.data();
}

MpiCommunicator::MpiCommunicator(Exchange exchange, std::optional<int> node)
    : state_(std::make_unique<State>()) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  CARAVAN_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &duplicate));
  state_->comm = CommHandle(duplicate);
  CARAVAN_MPI(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN));
  CARAVAN_MPI(MPI_Comm_rank(duplicate, &state_->rank));
  CARAVAN_MPI(MPI_Comm_size(duplicate, &state_->size));
  if (exchange == Exchange::kBest) {
    state_->nodes =
        NodeExchange::make(duplicate, node, kExchangeBytes / 2 / std::int64_t{sizeof(float)});
  }
}

MpiCommunicator::~MpiCommunicator() = default;

int MpiCommunicator::rank() const { return state_->rank; }
int MpiCommunicator::size() const { return state_->size; }

void MpiCommunicator::add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                                     at::Tensor& accumulator) {
  check_float_contiguous(partials, "partials");
  check_float_contiguous(accumulator, "accumulator");
  const std::int64_t count = accumulator.numel();
  const std::int64_t own_nodes = std::ssize(sum.nodes_of(state_->rank));
  CARAVAN_ASSERT(sum.num_ranks() == state_->size && partials.numel() == own_nodes * count,
                 "partial sums of {} elements, expected {} nodes of {}", partials.numel(),
                 own_nodes, count);
  const auto* own = partials.data_ptr<float>();
  auto* target = accumulator.data_ptr<float>();
  const std::int64_t step = tile_elements(sum, kExchangeBytes / 2 / std::int64_t{sizeof(float)});
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const Range tile{begin, std::min(begin + step, count)};
    const float* gathered = state_->nodes ? state_->nodes->exchange(sum, own, count, tile)
                                          : state_->exchange_by_mpi(sum, own, count, tile);
    finish_tree_sum(sum, gathered, target + begin, tile.size(), state_->scratch);
  }
}

void MpiCommunicator::sum_disjoint(at::Tensor& x) {
  check_float_contiguous(x, "x");
  const StandardFloats floats;  // MPI adds in this thread
  auto* data = x.data_ptr<float>();
  for (std::int64_t begin = 0; begin < x.numel(); begin += kPiece) {
    const auto count = static_cast<int>(std::min(kPiece, x.numel() - begin));
    CARAVAN_MPI(
        MPI_Allreduce(MPI_IN_PLACE, data + begin, count, MPI_FLOAT, MPI_SUM, state_->comm.get()));
  }
}

void MpiCommunicator::gather_columns(const at::Tensor& local,
                                     const std::vector<std::int64_t>& widths, at::Tensor& full) {
  check_float_contiguous(local, "local");
  CARAVAN_ASSERT(std::ssize(widths) == state_->size, "{} widths for {} ranks", widths.size(),
                 state_->size);
  const std::int64_t num_rows = local.size(0);
  auto& counts = state_->counts;
  auto& offsets = state_->offsets;
  counts.clear();
  offsets.clear();
  std::int64_t total = 0;
  for (const std::int64_t width : widths) {
    counts.push_back(checked_cast<int>(num_rows * width));
    offsets.push_back(checked_cast<int>(num_rows * total));
    total += width;
  }
  if (rank() == 0 && std::ssize(state_->columns) < num_rows * total) {
    state_->columns.resize(static_cast<std::size_t>(num_rows * total));
  }
  CARAVAN_MPI(MPI_Gatherv(local.data_ptr<float>(), counts[static_cast<std::size_t>(rank())],
                          MPI_FLOAT, state_->columns.data(), counts.data(), offsets.data(),
                          MPI_FLOAT, 0, state_->comm.get()));
  if (rank() != 0) return;
  check_float_contiguous(full, "full");
  CARAVAN_ASSERT(full.size(0) == num_rows && full.size(1) == total, "full is {}x{}, needs {}x{}",
                 full.size(0), full.size(1), num_rows, total);
  auto* out = full.data_ptr<float>();
  std::int64_t first_column = 0;
  for (std::size_t peer = 0; peer < widths.size(); ++peer) {
    const float* piece = state_->columns.data() + offsets[peer];
    for (std::int64_t row = 0; row < num_rows && widths[peer] > 0; ++row) {
      std::memcpy(out + row * total + first_column, piece + row * widths[peer],
                  static_cast<std::size_t>(widths[peer]) * sizeof(float));
    }
    first_column += widths[peer];
  }
}

std::vector<std::byte> MpiCommunicator::all_gather(std::span<const std::byte> bytes) {
  const int count = checked_cast<int>(bytes.size());
  std::vector<std::byte> all(bytes.size() * static_cast<std::size_t>(state_->size));
  MPI_Request request = MPI_REQUEST_NULL;
  CARAVAN_MPI(MPI_Iallgather(bytes.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE,
                             state_->comm.get(), &request));
  wait_gently(request);
  return all;
}

void MpiCommunicator::broadcast(std::vector<std::byte>& bytes) {
  struct Packet {
    std::uint64_t length;
    std::array<std::byte, kFirstPacket> head;
  };
  Packet packet{};
  if (rank() == 0) {
    packet.length = bytes.size();
    std::copy_n(bytes.begin(), std::min(bytes.size(), kFirstPacket), packet.head.begin());
  }
  MPI_Request request = MPI_REQUEST_NULL;
  CARAVAN_MPI(MPI_Ibcast(&packet, sizeof(packet), MPI_BYTE, 0, state_->comm.get(), &request));
  wait_gently(request);
  if (rank() != 0) {
    bytes.resize(packet.length);
    std::copy_n(packet.head.begin(), std::min(bytes.size(), kFirstPacket), bytes.begin());
  }
  for (std::uint64_t begin = kFirstPacket; begin < packet.length; begin += kPiece) {
    const auto count = static_cast<int>(std::min<std::uint64_t>(kPiece, packet.length - begin));
    CARAVAN_MPI(MPI_Bcast(bytes.data() + begin, count, MPI_BYTE, 0, state_->comm.get()));
  }
}

void MpiCommunicator::alert() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    // Without content, so that nothing has to stay until it is sent.
    MPI_Request request = MPI_REQUEST_NULL;
    CARAVAN_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, peer, kAlertTag, state_->comm.get(), &request));
    CARAVAN_MPI(MPI_Request_free(&request));
  }
}

bool MpiCommunicator::alerted() {
  int found = 0;
  MPI_Status status;
  CARAVAN_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kAlertTag, state_->comm.get(), &found, &status));
  if (found == 0) return false;
  CARAVAN_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kAlertTag, state_->comm.get(),
                       MPI_STATUS_IGNORE));
  return true;
}

std::unique_ptr<Communicator> make_world_communicator(int world_size,
                                                      MpiCommunicator::Exchange exchange) {
  if (world_size == 1) return std::make_unique<SingleCommunicator>();
  return std::make_unique<MpiCommunicator>(exchange);
}

}  // namespace caravan::parallel
