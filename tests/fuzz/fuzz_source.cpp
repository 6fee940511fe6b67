// A whole source checkpoint: configuration, tokenizer, templates and headers of the weights
// together, as `convert` opens it. The input is the files of a folder, each behind a line with its
// name: "%%% config.json".

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/checkpoint/source.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "caravan/text/tokenizer.h"
#include "memory_file.h"
#include "temporary_folder.h"

namespace {

using namespace caravan;

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() < 60 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

/// Writes the files and gives what `convert` is to be told: the folder, or its GGUF file.
std::string write_files(std::string_view input, const fuzz::TemporaryFolder& folder) {
  constexpr std::string_view kMark = "\n%%% ";
  std::string source = folder.path();
  std::string all = "\n" + std::string(input);
  std::size_t at = all.find(kMark);
  while (at != std::string::npos) {
    const std::size_t name_begin = at + kMark.size();
    const std::size_t name_end = std::min(all.find('\n', name_begin), all.size());
    at = all.find(kMark, std::min(name_end + 1, all.size()));
    const std::string name = all.substr(name_begin, name_end - name_begin);
    if (!is_plain_name(name)) continue;
    const std::size_t begin = std::min(name_end + 1, all.size());
    folder.write(name, all.substr(begin, std::min(at, all.size()) - begin));
    if (name.ends_with(".gguf") && source == folder.path()) source += "/" + name;
  }
  return source;
}

/// Reads the first and the last row, which must lie in the files.
void read_ends(checkpoint::Source& source, const checkpoint::SourceTensor& tensor) {
  const bool is_vector = tensor.shape.size() == 1;
  if (tensor.shape.size() > 2) return;  // convolutions, which are flattened first
  const std::int64_t rows = is_vector ? 1 : tensor.shape.front();
  const std::int64_t columns = tensor.shape.back();
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (const std::int64_t i : {std::int64_t{0}, rows - 1})
    checkpoint::read_rectangle(source.files, tensor, {i, i + 1}, {0, columns}, row.data());
}

/// What a source that is accepted must be good for.
void use(checkpoint::Source& source) {
  const auto& description = source.description;
  fuzz::require(description.config.problems().empty(), "a model with problems");
  for (const model::TensorSpec& spec : model::tensor_specs(description.config)) {
    read_ends(source, source.tensor(spec.name));
  }
  const text::Tokenizer tokenizer(description.tokenizer);
  fuzz::require(std::cmp_less_equal(tokenizer.vocab_size(), description.config.vocab_size),
                "ids without a row of the embedding");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Warnings about strange files would be all that is seen.
  static const bool quiet = [] {
    log::configure(log::Level::kError, 0, 1);
    return true;
  }();
  if (!quiet) return 0;
  const fuzz::TemporaryFolder folder;
  const std::string path = write_files({reinterpret_cast<const char*>(data), size}, folder);
  try {
    checkpoint::Source source = checkpoint::open_source(path, {});
    use(source);
  } catch (const InputError&) {         // the ways to refuse a source
  } catch (const MissingInputError&) {  // an input without files
  }
  return 0;
}
