// main() of the tests that run under a launcher: every rank runs the same tests in the same order,
// other ranks' failures are reported by rank 0, and any failure on any rank fails the run.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

/// Collects this rank's failures as text, so that rank 0 can print them.
class FailureCollector : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    text_ += std::string(result.file_name() != nullptr ? result.file_name() : "?") + ":" +
             std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

int report_failures(const std::string& own_text, int rank, int size) {
  int failed = own_text.empty() ? 0 : 1;
  int any_failed = 0;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank != 0) {
    MPI_Send(own_text.data(), static_cast<int>(own_text.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    return any_failed;
  }
  for (int peer = 1; peer < size; ++peer) {
    MPI_Status status;
    MPI_Probe(peer, 0, MPI_COMM_WORLD, &status);
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    MPI_Recv(text.data(), length, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!text.empty()) std::fprintf(stderr, "--- failures of rank %d\n%s", peer, text.c_str());
  }
  return any_failed;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  auto* collector = new FailureCollector;
  listeners.Append(collector);  // GoogleTest owns it
  const int own_result = RUN_ALL_TESTS();
  const int any_failed = report_failures(collector->text(), rank, size);
  MPI_Finalize();
  return own_result != 0 || any_failed != 0 ? 1 : 0;
}
