#include <gtest/gtest.h>

#include "caravan/cuda/device.h"

namespace caravan::cuda {
namespace {

TEST(NoCuda, SaysThatItWasNotBuilt) {
  const DeviceSurvey survey = survey_devices();
  EXPECT_EQ(survey.availability, Availability::kNotBuilt);
  EXPECT_NE(survey.obstacle.find("CARAVAN_WITH_CUDA"), std::string::npos) << survey.obstacle;
  EXPECT_EQ(survey.toolkit_version + survey.runtime_version + survey.driver_version, "");
  EXPECT_TRUE(survey.devices.empty());
}

}  // namespace
}  // namespace caravan::cuda
