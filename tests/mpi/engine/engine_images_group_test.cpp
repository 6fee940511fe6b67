// Requests with images on a group of ranks: the same answers, to the last bit, as on one.

#include <gtest/gtest.h>

#include "caravan/parallel/mpi_communicator.h"
#include "caravan/parallel/single_communicator.h"
#include "unit/engine/image_requests.h"

namespace caravan::engine {
namespace {

TEST(GroupEngineImages, EqualOneRankWithAndWithoutPutBacks) {
  parallel::MpiCommunicator group;
  test::RandomWeightSource source(test::uneven_vision_config(), 42);
  std::vector<Request> requests = test::image_requests();
  requests.insert(requests.begin(), test::make_request(1, 40, requests[0].sampling));
  test::show_images(requests.front(), {{1, 0}, {30, 3}, {31, 7}});
  test::Answers alone;
  if (group.rank() == 0) {
    parallel::SingleCommunicator single;
    alone = test::run_alone(single, source, test::vision_setup(), requests);
  }
  test::EngineSetup ample = test::vision_setup();
  test::EngineSetup little = test::vision_setup();
  little.limits.max_step_tokens = 7;
  little.limits.kv_blocks = 9;
  little.limits.image_blocks = 10;
  for (const test::EngineSetup& setup : {ample, little}) {
    SCOPED_TRACE("image blocks " + std::to_string(setup.limits.image_blocks));
    const test::RunResult found = test::run_engine(group, source, setup, requests);
    if (group.rank() != 0) continue;
    test::expect_same_answers(found.answers, alone);
    if (setup.limits.kv_blocks == 9) {
      EXPECT_GT(found.statistics.put_backs, 0);
      EXPECT_GT(found.statistics.images_encoded, 12);
    }
  }
}

}  // namespace
}  // namespace caravan::engine
