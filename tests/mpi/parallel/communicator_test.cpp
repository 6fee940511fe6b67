// The contract of Communicator, run on the implementation that the number of ranks asks for.

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <immintrin.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/parallel/launch_check.h"
#include "caravan/parallel/mpi_communicator.h"
#include "support/rank_groups.h"

namespace caravan::parallel {
namespace {

std::unique_ptr<Communicator> world() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return make_world_communicator(size);
}

std::vector<Range> even_cut(std::int64_t slices, int ranks) {
  std::vector<Range> owned;
  for (int rank = 0; rank < ranks; ++rank) owned.push_back(split_evenly(slices, ranks, rank));
  return owned;
}

float slice_value(std::int64_t slice, std::int64_t element) {
  return std::ldexp(1.0F + static_cast<float>((slice * 31 + element * 17) % 89) / 83.0F,
                    static_cast<int>(slice % 13) - 6);
}

// Tree sum of one node for one element, straight from the definition.
float node_sum(const SliceTree& tree, const SliceTree::Node& node, std::int64_t element) {
  if (node.level == 0) return slice_value(node.index, element);
  const std::int64_t half = std::int64_t{1} << (node.level - 1);
  const std::int64_t middle = (2 * node.index + 1) * half;
  const SliceTree::Node left{
      node.level - 1, 2 * node.index, {node.slices.begin, std::min(middle, node.slices.end)}};
  if (middle >= tree.num_slices()) return node_sum(tree, left, element);
  const SliceTree::Node right{node.level - 1, 2 * node.index + 1, {middle, node.slices.end}};
  return node_sum(tree, left, element) + node_sum(tree, right, element);
}

/// Sums of several sizes one after the other, so that buffers grow and slots alternate.
void check_sliced_sums(Communicator& comm) {
  for (const std::int64_t rows : {3, 1, 200, 2, 500, 40000, 1}) {
    for (const std::int64_t slices : {1, 3, 9, 24, 37}) {
      const SliceTree tree(slices);
      const SlicedSum sum(slices, even_cut(slices, comm.size()));
      const std::int64_t width = 5;
      const auto& nodes = sum.nodes_of(comm.rank());
      at::Tensor partials = at::empty({std::ssize(nodes), rows, width}, at::kFloat);
      for (std::int64_t n = 0; n < std::ssize(nodes); ++n) {
        for (std::int64_t i = 0; i < rows * width; ++i) {
          partials.data_ptr<float>()[n * rows * width + i] =
              node_sum(tree, nodes[static_cast<std::size_t>(n)], i);
        }
      }
      at::Tensor accumulator = at::full({rows, width}, 0.125F, at::kFloat);
      comm.add_sliced_sum(sum, partials, accumulator);
      const SliceTree::Node root = tree.cover({0, slices})[0];
      for (std::int64_t i = 0; i < rows * width; ++i) {
        ASSERT_EQ(accumulator.data_ptr<float>()[i], 0.125F + node_sum(tree, root, i))
            << slices << " slices, " << rows << " rows, element " << i;
      }
    }
  }
}

TEST(Communicator, SlicedSumGivesTheBitsOfOneRank) { check_sliced_sums(*world()); }

TEST(Communicator, SlicedSumGivesTheSameBitsHoweverItTravels) {
  test::for_each_group([](MpiCommunicator& group) { check_sliced_sums(group); });
}

TEST(Communicator, SumsDisjointRowsExactly) {
  const auto comm = world();
  at::Tensor x = at::zeros({10, 3}, at::kFloat);
  for (std::int64_t i = comm->rank(); i < 30; i += comm->size()) {
    x.data_ptr<float>()[i] = 0.1F * static_cast<float>(i + 1);
  }
  comm->sum_disjoint(x);
  for (std::int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(x.data_ptr<float>()[i], 0.1F * static_cast<float>(i + 1));
  }
}

TEST(Communicator, GathersColumnsOfUnequalWidth) {
  const auto comm = world();
  std::vector<std::int64_t> widths;
  for (int rank = 0; rank < comm->size(); ++rank) widths.push_back(rank == 1 ? 0 : rank + 2);
  std::int64_t first = 0;
  std::int64_t total = 0;
  for (int rank = 0; rank < comm->size(); ++rank) {
    if (rank < comm->rank()) first += widths[static_cast<std::size_t>(rank)];
    total += widths[static_cast<std::size_t>(rank)];
  }
  const std::int64_t own = widths[static_cast<std::size_t>(comm->rank())];
  at::Tensor local = at::empty({4, own}, at::kFloat);
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t column = 0; column < own; ++column) {
      local.data_ptr<float>()[row * own + column] = static_cast<float>(row * 100 + first + column);
    }
  }
  at::Tensor full = at::zeros({4, total}, at::kFloat);
  comm->gather_columns(local, widths, full);
  if (comm->rank() != 0) return;
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t column = 0; column < total; ++column) {
      EXPECT_EQ(full.data_ptr<float>()[row * total + column],
                static_cast<float>(row * 100 + column));
    }
  }
}

TEST(Communicator, BroadcastsMessagesOfAnyLength) {
  const auto comm = world();
  for (const std::size_t length : {0UL, 1UL, 8191UL, 8192UL, 8193UL, 300000UL}) {
    std::vector<std::byte> bytes;
    if (comm->rank() == 0) {
      for (std::size_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(i * 7));
    }
    comm->broadcast(bytes);
    ASSERT_EQ(bytes.size(), length);
    for (std::size_t i = 0; i < length; ++i) ASSERT_EQ(bytes[i], static_cast<std::byte>(i * 7));
  }
}

TEST(Communicator, GathersBytesInRankOrder) {
  const auto comm = world();
  const std::int32_t own = 1000 + comm->rank();
  const auto bytes = comm->all_gather(std::as_bytes(std::span(&own, 1)));
  ASSERT_EQ(bytes.size(), 4U * static_cast<std::size_t>(comm->size()));
  for (int rank = 0; rank < comm->size(); ++rank) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + 4 * rank, 4);
    EXPECT_EQ(value, 1000 + rank);
  }
}

TEST(Communicator, SumsKeepSubnormalNumbersWhereTheCallerFlushesThem) {
  const auto comm = world();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // flush to zero, subnormals are zero
  at::Tensor x = at::zeros({4}, at::kFloat);
  if (comm->rank() == comm->size() - 1) x.data_ptr<float>()[2] = 0x1p-140F;
  comm->sum_disjoint(x);
  const SlicedSum sum(1, even_cut(1, comm->size()));
  at::Tensor partials = at::full({std::ssize(sum.nodes_of(comm->rank())), 1, 1}, 0.0F, at::kFloat);
  if (partials.numel() > 0) *partials.data_ptr<float>() = 0x1p-140F;
  at::Tensor total = at::zeros({1, 1}, at::kFloat);
  comm->add_sliced_sum(sum, partials, total);
  _mm_setcsr(before);
  EXPECT_EQ(x.data_ptr<float>()[2], 0x1p-140F);
  EXPECT_EQ(*total.data_ptr<float>(), 0x1p-140F);
}

/// CPU seconds of this process so far.
double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

TEST(Communicator, RanksThatWaitForTheLeaderSleep) {
  const auto comm = world();
  const std::byte one{1};
  const std::vector<std::function<void()>> waits = {
      [&] {
        std::vector<std::byte> bytes(1);
        comm->broadcast(bytes);
      },
      [&] {
        comm->all_gather({&one, 1});
      },
      [&] { agree_or_throw(*comm, 0, ""); },
  };
  for (std::size_t i = 0; i < waits.size(); ++i) {
    comm->all_gather({&one, 1});
    const double before = cpu_seconds();
    if (comm->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    waits[i]();
    EXPECT_LT(cpu_seconds() - before, 0.2) << "wait " << i;
  }
}

TEST(AgreeOrThrow, AllRanksThrowTheLowestFailingRanksError) {
  const auto comm = world();
  EXPECT_NO_THROW(agree_or_throw(*comm, 0, ""));
  const int culprit = comm->size() - 1;
  const bool fails = comm->rank() == culprit;
  try {
    agree_or_throw(*comm, fails ? 78 : 0, fails ? "the file is broken" : "");
    FAIL() << "rank " << comm->rank() << " went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("the file is broken"), std::string::npos);
    if (culprit != 0) {
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(culprit)),
                std::string::npos);
    }
  }
}

// A list of faults may have many megabytes, and every rank would get one from each other.
TEST(AgreeOrThrow, GivesOtherRanksTheBeginningOfALongText) {
  const auto comm = world();
  const std::string list(std::size_t{1} << 20, 'x');
  const bool fails = comm->rank() == 0;
  try {
    agree_or_throw(*comm, fails ? 65 : 0, fails ? list : "");
    FAIL() << "rank " << comm->rank() << " went on";
  } catch (const Error& error) {
    const std::string said = error.what();
    if (fails) {
      EXPECT_EQ(said, list);
    } else {
      EXPECT_LT(std::ssize(said), 5000);
      EXPECT_EQ(said.substr(0, 4000), list.substr(0, 4000));
    }
  }
}

TEST(Alert, IsSeenByEveryOtherRankOnceForEachSender) {
  const auto comm = world();
  EXPECT_FALSE(comm->alerted());
  const std::byte one{1};
  comm->all_gather({&one, 1});  // nobody has alerted before all have looked
  const int senders = std::min(2, comm->size());
  if (comm->rank() < senders) comm->alert();
  const int expected = comm->rank() < senders ? senders - 1 : senders;
  for (int seen = 0; seen < expected;) seen += comm->alerted() ? 1 : 0;  // the test has a deadline
  comm->all_gather({&one, 1});
  EXPECT_FALSE(comm->alerted());
}

// The last rank leaves a group by an exception and then tells the others, who are still in it: it
// must not wait for them on its way.
TEST(MpiCommunicator, ARankThatAnExceptionTakesOutWaitsForNobody) {
  constexpr int kTag = 7;
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto leave = [&](MpiCommunicator::Exchange exchange, std::optional<int> node) {
    const MpiCommunicator group(exchange, node);
    if (rank != size - 1) {
      MPI_Recv(nullptr, 0, MPI_BYTE, size - 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    throw InternalError("out of the group");
  };
  const auto best = MpiCommunicator::Exchange::kBest;
  const auto by_messages = MpiCommunicator::Exchange::kMpi;
  for (const auto& [exchange, node] : {std::pair{best, std::optional<int>()},
                                       {best, std::optional(rank / 2)},
                                       {by_messages, std::optional<int>()}}) {
    EXPECT_THROW(leave(exchange, node), InternalError);
    for (int peer = 0; rank == size - 1 && peer < rank; ++peer) {
      MPI_Send(nullptr, 0, MPI_BYTE, peer, kTag, MPI_COMM_WORLD);
    }
  }
}

TEST(Placement, KnowsEveryRankOfTheNode) {
  const auto comm = world();
  const auto ranks = gather_placement();
  ASSERT_EQ(std::ssize(ranks), comm->size());
  for (int rank = 0; rank < comm->size(); ++rank) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].local_rank, rank);
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].local_size, comm->size());
  }
}

}  // namespace
}  // namespace caravan::parallel
