// What each answer of the CUDA runtime becomes.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "caravan/cuda/device.h"
#include "pretended_runtime.h"

namespace caravan::cuda {
namespace {

class DeviceSurveyTest : public testing::Test {
 protected:
  void SetUp() override { runtime_ = {}; }

  DeviceSurvey expect(Availability availability, const std::string& words) {
    const DeviceSurvey survey = survey_devices();
    EXPECT_EQ(survey.availability, availability) << survey.obstacle;
    EXPECT_NE(survey.obstacle.find(words), std::string::npos) << survey.obstacle;
    EXPECT_TRUE(survey.devices.empty());
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a fault is left for the next caller";
    return survey;
  }

  test::PretendedRuntime& runtime_ = test::pretended_runtime();
};

TEST_F(DeviceSurveyTest, ListsDevices) {
  runtime_.driver_version = 13020;
  runtime_.devices = {{"Big", 9, 0, std::size_t{80} << 30, "0000:1B:00.0"},
                      {"Small", 8, 6, std::size_t{24} << 30, "0000:3D:00.0"}};
  const DeviceSurvey survey = survey_devices();
  EXPECT_EQ(survey.availability, Availability::kUsable);
  EXPECT_EQ(survey.obstacle, "");
  EXPECT_EQ(survey.runtime_version, "13.0");
  EXPECT_EQ(survey.driver_version, "13.2");
  ASSERT_EQ(survey.devices.size(), 2U);
  const Device& second = survey.devices[1];
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.name, "Small");
  EXPECT_EQ(second.compute_major, 8);
  EXPECT_EQ(second.compute_minor, 6);
  EXPECT_EQ(second.memory_bytes, std::int64_t{24} << 30);
  EXPECT_EQ(second.pci_bus_id, "0000:3D:00.0");
}

TEST_F(DeviceSurveyTest, NoDriver) {
  runtime_.driver_version = 0;
  runtime_.count_error = cudaErrorInsufficientDriver;
  EXPECT_EQ(expect(Availability::kNoDriver, "no NVIDIA driver").driver_version, "");
}

TEST_F(DeviceSurveyTest, OldDriver) {
  runtime_.driver_version = 12040;
  runtime_.count_error = cudaErrorInsufficientDriver;
  expect(Availability::kOldDriver, "runs CUDA up to 12.4, this program needs 13.0");
}

TEST_F(DeviceSurveyTest, NoDevice) {
  runtime_.count_error = cudaErrorNoDevice;
  expect(Availability::kNoDevice, "CUDA_VISIBLE_DEVICES");
  runtime_.count_error = cudaSuccess;
  expect(Availability::kNoDevice, "CUDA_VISIBLE_DEVICES");
}

TEST_F(DeviceSurveyTest, AnythingElseIsQuoted) {
  runtime_.count_error = cudaErrorSystemNotReady;
  expect(Availability::kFailed, "cudaGetDeviceCount");
  runtime_.count_error = cudaSuccess;
  runtime_.properties_error = cudaErrorUnknown;
  runtime_.devices = {{"Broken", 9, 0, 1, "0000:1B:00.0"}};
  expect(Availability::kFailed, "text of the runtime");
}

}  // namespace
}  // namespace caravan::cuda
