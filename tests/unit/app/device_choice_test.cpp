#include "caravan/app/device_choice.h"

#include <gtest/gtest.h>

#include "caravan/core/error.h"
#include "support/expect_error.h"

namespace caravan::app {
namespace {

using cuda::Availability;
using cuda::DeviceSurvey;
using test::expect_error;

DeviceSurvey two_devices() {
  DeviceSurvey survey;
  survey.availability = Availability::kUsable;
  survey.toolkit_version = survey.runtime_version = "13.0";
  survey.driver_version = "13.1";
  survey.devices = {{0, "Big", 9, 0, std::int64_t{80} << 30, "0000:1B:00.0"},
                    {1, "Small", 8, 6, std::int64_t{24} << 30, "0000:3D:00.0"}};
  return survey;
}

DeviceSurvey no_driver() {
  DeviceSurvey survey;
  survey.availability = Availability::kNoDriver;
  survey.obstacle = "there is no driver";
  survey.toolkit_version = survey.runtime_version = "13.0";
  return survey;
}

TEST(DeviceChoice, CpuDoesNotLook) {
  const auto look = []() -> DeviceSurvey { throw InternalError("looked for devices"); };
  EXPECT_EQ(choose_device(DeviceKind::kCpu, look), "CPU (as asked)");
}

TEST(DeviceChoice, AutoIsTheCpuAndNamesWhatItLeavesIdle) {
  const std::string without = choose_device(DeviceKind::kAuto, no_driver);
  EXPECT_EQ(without, "CPU (auto: this version computes on CPUs only)");
  const std::string with = choose_device(DeviceKind::kAuto, two_devices);
  EXPECT_NE(with.find("not used: 0: Big"), std::string::npos) << with;
  EXPECT_NE(with.find("1: Small, compute capability 8.6, 24.00 GiB, PCI 0000:3D:00.0"),
            std::string::npos)
      << with;
}

TEST(DeviceChoice, CudaSaysWhatIsTheMatter) {
  expect_error<DeviceError>([] { choose_device(DeviceKind::kCuda, no_driver); },
                            "--device cuda: there is no driver; --device cpu");
  expect_error<DeviceError>([] { choose_device(DeviceKind::kCuda, two_devices); },
                            "computes on CPUs only, although there is 0: Big");
}

TEST(DeviceChoice, VersionShowsToolkitDriverAndDevices) {
  EXPECT_EQ(describe_cuda(DeviceSurvey{}), "built without");
  EXPECT_EQ(describe_cuda(no_driver()),
            "toolkit 13.0; runtime 13.0; driver for none; there is no driver");
  const std::string text = describe_cuda(two_devices());
  EXPECT_NE(text.find("driver for 13.1; device 0: Big"), std::string::npos) << text;
}

}  // namespace
}  // namespace caravan::app
