#pragma once
// The group of several ranks on CPU tensors, over MPI. Duplicates the communicator it is given and
// talks on the duplicate only.

#include <memory>
#include <optional>

#include "caravan/parallel/communicator.h"

namespace caravan::parallel {

class MpiCommunicator final : public Communicator {
 public:
  /// How partial sums travel. kBest: inside a node through shared memory, between nodes by messages
  /// of one rank of each; kMpi: by messages of every rank.
  enum class Exchange { kBest, kMpi };

  /// The group of all ranks of MPI_COMM_WORLD. Collective. @pre MPI is initialised.
  ///
  /// @param node  if given, only ranks of one node that give the same number share memory: several
  ///              nodes on one machine, for tests. On all ranks or on none.
  /// @throws CommError
  explicit MpiCommunicator(Exchange exchange = Exchange::kBest,
                           std::optional<int> node = std::nullopt);
  /// Collective, but for a rank that an exception takes out of the group: it goes at once and
  /// leaves its part to the end of the job, because its peers may wait for it elsewhere.
  ~MpiCommunicator() override;
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override;
  int size() const override;
  void add_sliced_sum(const SlicedSum& sum, const at::Tensor& partials,
                      at::Tensor& accumulator) override;
  void sum_disjoint(at::Tensor& x) override;
  void gather_columns(const at::Tensor& local, const std::vector<std::int64_t>& widths,
                      at::Tensor& full) override;
  std::vector<std::byte> all_gather(std::span<const std::byte> bytes) override;
  void broadcast(std::vector<std::byte>& bytes) override;
  void alert() override;
  bool alerted() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// MpiCommunicator for several ranks, SingleCommunicator for one. Collective.
std::unique_ptr<Communicator> make_world_communicator(
    int world_size, MpiCommunicator::Exchange exchange = MpiCommunicator::Exchange::kBest);

}  // namespace caravan::parallel
