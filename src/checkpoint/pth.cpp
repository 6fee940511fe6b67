#include "caravan/checkpoint/pth.h"

#include <map>
#include <span>
#include <string_view>

#include "caravan/checkpoint/pickle.h"
#include "caravan/checkpoint/source_tensor.h"
#include "caravan/checkpoint/zip_directory.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
constexpr std::int64_t kMaxPickleBytes = std::int64_t{32} << 20;

using Entries = std::map<std::string, ZipEntry>;

std::string text_of(io::InputFile& file, const ZipEntry& entry) {
  std::string text(checked_cast<std::size_t>(entry.bytes), '\0');
  file.read(entry.offset, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

// The folder in the archive that holds everything: "consolidated.00".
std::string find_root(const Entries& entries, const std::string& path) {
  std::string root;
  for (const auto& [name, entry] : entries) {
    if (!name.ends_with(kPickleName)) continue;
    CARAVAN_CHECK(root.empty(), InputError, "{} holds several pickles, expected one data.pkl",
                  path);
    root = name.substr(0, name.size() - kPickleName.size());
  }
  CARAVAN_CHECK(!root.empty(), InputError,
                "{} is a zip archive, but not one of torch.save: it has no data.pkl", path);
  return root;
}

void check_byte_order(io::InputFile& file, const Entries& entries, const std::string& root) {
  const auto found = entries.find(root + "/byteorder");
  if (found == entries.end()) return;  // written before PyTorch 2.1
  constexpr std::int64_t kMaxBytes = 16;
  CARAVAN_CHECK(found->second.bytes <= kMaxBytes && text_of(file, found->second) == "little",
                InputError, "{} was saved on a big-endian machine, expected little-endian",
                file.path());
}

std::optional<ElementType> weight_type(std::string_view storage) {
  if (storage == "DoubleStorage") return ElementType::kF64;
  if (storage == "FloatStorage") return ElementType::kF32;
  if (storage == "HalfStorage") return ElementType::kF16;
  if (storage == "BFloat16Storage") return ElementType::kBF16;
  return std::nullopt;
}

std::int64_t type_bytes(std::string_view storage) {
  if (const auto type = weight_type(storage)) return block_layout(*type).bytes;
  if (storage == "LongStorage") return 8;
  if (storage == "IntStorage") return 4;
  if (storage == "ShortStorage") return 2;
  return 1;
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Index of the last element that the tensor names, counted from its first.
std::int64_t last_element(const PickledTensor& tensor, const std::string& where) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::int64_t step = 0;
    CARAVAN_CHECK(tensor.strides[i] >= 0 &&
                      !__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) &&
                      !__builtin_add_overflow(last, step, &last),
                  InputError, "{} has the impossible strides [{}]", where,
                  fmt::join(tensor.strides, ", "));
  }
  return last;
}

PthEntry locate(const PickledTensor& tensor, const Entries& entries, const std::string& root,
                const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, tensor.name);
  PthEntry result = {tensor.name, tensor.storage_type, weight_type(tensor.storage_type),
                     tensor.shape};
  checked_elements(tensor.shape, where);
  const auto found = entries.find(root + "/data/" + tensor.storage_key);
  CARAVAN_CHECK(found != entries.end(), InputError,
                "{} lies in the storage \"{}\", which the archive does not have", where,
                tensor.storage_key);
  const std::int64_t element = type_bytes(tensor.storage_type);
  const std::int64_t elements = found->second.bytes / element;
  CARAVAN_CHECK(elements * element == found->second.bytes && elements == tensor.storage_elements,
                InputError, "{} lies in a storage of {} bytes, expected {} elements of {}", where,
                found->second.bytes, tensor.storage_elements, tensor.storage_type);
  CARAVAN_CHECK(tensor.offset >= 0 && tensor.offset < elements &&
                    last_element(tensor, where) < elements - tensor.offset,
                InputError, "{} reaches beyond its storage of {} elements (offset {}, [{}])", where,
                elements, tensor.offset, fmt::join(tensor.shape, ", "));
  result.offset = found->second.offset + tensor.offset * element;
  if (tensor.strides != dense_strides(tensor.shape)) {
    const bool by_rows = tensor.shape.size() == 2 && tensor.strides[1] == 1;
    const bool by_columns = tensor.shape.size() == 2 && tensor.strides[0] == 1;
    CARAVAN_CHECK(!result.type || by_rows || by_columns, InputError,
                  "{} has the strides [{}], expected a matrix stored by rows or by columns", where,
                  fmt::join(tensor.strides, ", "));
    result.strides = tensor.strides;
  }
  return result;
}

}  // namespace

std::vector<PthEntry> read_pth(io::InputFile& file) {
  Entries entries;
  for (const ZipEntry& entry : read_zip_directory(file)) entries.emplace(entry.name, entry);
  const std::string root = find_root(entries, file.path());
  check_byte_order(file, entries, root);
  const ZipEntry& pickle = entries.at(root + std::string(kPickleName));
  CARAVAN_CHECK(pickle.bytes <= kMaxPickleBytes, InputError,
                "{}: data.pkl has {} bytes, expected at most {}", file.path(), pickle.bytes,
                kMaxPickleBytes);
  const std::string content = text_of(file, pickle);
  std::vector<PthEntry> result;
  for (const PickledTensor& tensor :
       read_pickled_tensors(std::as_bytes(std::span(content)), file.path())) {
    result.push_back(locate(tensor, entries, root, file.path()));
  }
  return result;
}

}  // namespace caravan::checkpoint
