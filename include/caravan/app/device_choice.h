#pragma once
// What --device means on this machine, and how CUDA devices are shown.
//
// Leaves out: finding devices (cuda/device.h).

#include <functional>
#include <string>

#include "caravan/app/job_options.h"
#include "caravan/cuda/device.h"

namespace caravan::app {

/// The device that a run computes on, as one line for the log: "CPU (as asked)", "CPU (auto: ...)".
///
/// @param look  called where the answer depends on what there is: --device cpu wakes no driver.
/// @throws DeviceError for --device cuda, saying what is the matter.
std::string choose_device(DeviceKind asked, const std::function<cuda::DeviceSurvey()>& look);

/// "built without", or toolkit, runtime, driver and devices, for --version and the manifest.
std::string describe_cuda(const cuda::DeviceSurvey& survey);

}  // namespace caravan::app
