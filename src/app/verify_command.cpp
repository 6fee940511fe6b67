#include <algorithm>
#include <filesystem>
#include <system_error>

#include "caravan/app/commands.h"
#include "caravan/app/model_front.h"
#include "caravan/checkpoint/model_file.h"
#include "caravan/core/clock.h"

namespace caravan::app {
namespace {

// What a run refuses before it reads weights.
void check_front(JobOptions options, const std::string& path) {
  options.model = path;
  const ModelFront model = open_model(options);
  check_defaults(model, parser_options(options, model), path);
}

}  // namespace

ExitCode verify_command(const ParsedOptions& parsed) {
  CARAVAN_CHECK(parsed.positional.size() == 1, UsageError,
                "verify needs one MODEL.h5, found {} arguments (`caravan help verify`)",
                parsed.positional.size());
  const std::string& path = parsed.positional.front();
  if (std::error_code error; std::filesystem::exists(path, error))
    check_front(parsed.options, path);
  const checkpoint::VerifyResult result = checkpoint::verify(path);
  const auto bytes = static_cast<double>(result.bytes);
  print_result(fmt::format("{}: good; {} tensors, {} read in {:.2f} s ({}/s)\n", path,
                           result.tensors, format_bytes(bytes), result.seconds,
                           format_bytes(bytes / std::max(result.seconds, 1e-6))));
  return ExitCode::kOk;
}

}  // namespace caravan::app
