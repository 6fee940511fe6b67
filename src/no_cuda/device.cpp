#include "caravan/cuda/device.h"

namespace caravan::cuda {

DeviceSurvey survey_devices() {
  DeviceSurvey survey;
  survey.availability = Availability::kNotBuilt;
  survey.obstacle =
      "this program was built without CUDA (cmake -DCARAVAN_WITH_CUDA=ON builds it in)";
  return survey;
}

}  // namespace caravan::cuda
