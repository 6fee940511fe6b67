#include "caravan/app/commands.h"
#include "caravan/checkpoint/model_file.h"

namespace caravan::app {

ExitCode inspect_command(const ParsedOptions& parsed) {
  CARAVAN_CHECK(parsed.positional.size() == 1, UsageError,
                "inspect needs one MODEL.h5, found {} arguments (`caravan help inspect`)",
                parsed.positional.size());
  const auto file = checkpoint::ModelFile::open(parsed.positional.front());
  std::string text = parsed.options.json ? checkpoint::inspect_json(file, parsed.options.tensors)
                                         : checkpoint::inspect_text(file, parsed.options.tensors);
  if (!text.ends_with('\n')) text += '\n';
  print_result(text);
  return ExitCode::kOk;
}

}  // namespace caravan::app
