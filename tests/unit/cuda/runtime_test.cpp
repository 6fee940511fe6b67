// The runtime of this machine, whatever it has.

#include <gtest/gtest.h>

#include "caravan/cuda/device.h"

namespace caravan::cuda {
namespace {

TEST(CudaRuntime, IsSurveyedWithAndWithoutADriver) {
  const DeviceSurvey survey = survey_devices();
  EXPECT_FALSE(survey.toolkit_version.empty());
  EXPECT_FALSE(survey.runtime_version.empty());
  EXPECT_NE(survey.availability, Availability::kNotBuilt);
  EXPECT_NE(survey.availability, Availability::kFailed) << survey.obstacle;
  EXPECT_EQ(survey.availability == Availability::kUsable, survey.obstacle.empty());
  EXPECT_EQ(survey.availability == Availability::kUsable, !survey.devices.empty());
  EXPECT_EQ(survey.availability == Availability::kNoDriver, survey.driver_version.empty());
  for (const Device& device : survey.devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.memory_bytes, 0);
    EXPECT_GE(device.compute_major, 3);
    EXPECT_NE(device.pci_bus_id.find(':'), std::string::npos) << device.pci_bus_id;
  }
  RecordProperty("obstacle", survey.obstacle);
}

}  // namespace
}  // namespace caravan::cuda
