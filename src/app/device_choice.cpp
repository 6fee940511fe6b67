#include "caravan/app/device_choice.h"

#include <fmt/format.h>

#include "caravan/core/clock.h"
#include "caravan/core/error.h"

namespace caravan::app {
namespace {

constexpr const char* kOnlyCpus = "this version computes on CPUs only";

std::string describe_device(const cuda::Device& device) {
  return fmt::format("{}: {}, compute capability {}.{}, {}, PCI {}", device.index, device.name,
                     device.compute_major, device.compute_minor,
                     format_bytes(static_cast<double>(device.memory_bytes)), device.pci_bus_id);
}

std::string list_devices(const cuda::DeviceSurvey& survey) {
  std::string text;
  for (const cuda::Device& device : survey.devices) {
    text += (text.empty() ? "" : "; ") + describe_device(device);
  }
  return text;
}

}  // namespace

std::string choose_device(DeviceKind asked, const std::function<cuda::DeviceSurvey()>& look) {
  if (asked == DeviceKind::kCpu) return "CPU (as asked)";
  const cuda::DeviceSurvey survey = look();
  const bool usable = survey.availability == cuda::Availability::kUsable;
  if (asked == DeviceKind::kAuto) {
    return fmt::format("CPU (auto: {}{})", kOnlyCpus,
                       usable ? fmt::format("; not used: {}", list_devices(survey)) : "");
  }
  if (usable) {
    throw DeviceError(fmt::format("--device cuda: {}, although there is {}; leave the option out",
                                  kOnlyCpus, list_devices(survey)));
  }
  throw DeviceError(
      fmt::format("--device cuda: {}; --device cpu computes without", survey.obstacle));
}

std::string describe_cuda(const cuda::DeviceSurvey& survey) {
  if (survey.availability == cuda::Availability::kNotBuilt) return "built without";
  const auto known = [](const std::string& version) { return version.empty() ? "none" : version; };
  std::string text = fmt::format("toolkit {}; runtime {}; driver for {}", survey.toolkit_version,
                                 known(survey.runtime_version), known(survey.driver_version));
  text += "; " + (survey.devices.empty() ? survey.obstacle : "device " + list_devices(survey));
  return text;
}

}  // namespace caravan::app
