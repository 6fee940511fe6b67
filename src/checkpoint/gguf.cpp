#include "caravan/checkpoint/gguf.h"

#include <algorithm>
#include <array>
#include <utility>

#include "caravan/core/error.h"
#include "gguf_cursor.h"
#include "tensor_places.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr std::int64_t kMaxAlignment = 1 << 20;
// Models have some tens of keys and some thousands of tensors.
constexpr std::int64_t kMaxKeys = 65536;
constexpr std::int64_t kMaxTensors = std::int64_t{1} << 18;

// Names of the types that this program does not read, so that the message can say what was found.
std::string foreign_type_name(std::uint32_t id) {
  switch (id) {
    case 9: return "Q8_1";
    case 15: return "Q8_K";
    case 16: return "IQ2_XXS";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 24: return "I8";
    case 25: return "I16";
    case 26: return "I32";
    case 27: return "I64";
    case 29: return "IQ1_M";
    case 34: return "TQ1_0";
    case 35: return "TQ2_0";
    case 39: return "MXFP4";
    default: return fmt::format("number {}", id);
  }
}

ElementType element_type(std::uint32_t id, const std::string& where) {
  switch (id) {
    case 0: return ElementType::kF32;
    case 1: return ElementType::kF16;
    case 2: return ElementType::kQ4_0;
    case 3: return ElementType::kQ4_1;
    case 6: return ElementType::kQ5_0;
    case 7: return ElementType::kQ5_1;
    case 8: return ElementType::kQ8_0;
    case 10: return ElementType::kQ2_K;
    case 11: return ElementType::kQ3_K;
    case 12: return ElementType::kQ4_K;
    case 13: return ElementType::kQ5_K;
    case 14: return ElementType::kQ6_K;
    case 20: return ElementType::kIQ4_NL;
    case 23: return ElementType::kIQ4_XS;
    case 28: return ElementType::kF64;
    case 30: return ElementType::kBF16;
    default: break;
  }
  throw InputError(fmt::format(
      "{} has the type {}, which this version does not read; expected F64, F32, F16, BF16, "
      "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL or IQ4_XS (take another quantization of "
      "the model)",
      where, foreign_type_name(id)));
}

SourceTensor read_tensor_info(GgufCursor& cursor, const std::string& path) {
  SourceTensor tensor;
  tensor.name = cursor.text("a tensor name", kMaxKeyBytes);
  const std::string where = fmt::format("{}: tensor \"{}\"", path, tensor.name);
  const auto dimensions = cursor.number<std::uint32_t>(where);
  CARAVAN_CHECK(dimensions >= 1 && dimensions <= 4, InputError,
                "{} has {} dimensions, expected 1 to 4", where, dimensions);
  for (std::uint32_t i = 0; i < dimensions; ++i)
    tensor.shape.push_back(from_unsigned(cursor.number<std::uint64_t>(where), where));
  // GGUF lists the fastest-varying extent first; the data are in torch's order.
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  tensor.type = element_type(cursor.number<std::uint32_t>(where), where);
  tensor.offset = from_unsigned(cursor.number<std::uint64_t>(where), where);
  const std::int64_t elements = checked_elements(tensor.shape, where);
  tensor.bytes = checked_bytes(tensor.type, elements, tensor.shape.back(), where);
  return tensor;
}

// Turns offsets into file offsets; checks alignment, bounds and overlap.
void place_tensors(std::vector<SourceTensor>& tensors, std::int64_t data_begin,
                   std::int64_t alignment, const io::InputFile& file) {
  std::vector<NamedPlace> places;
  for (SourceTensor& tensor : tensors) {
    const std::string where = fmt::format("{}: tensor \"{}\"", file.path(), tensor.name);
    CARAVAN_CHECK(tensor.offset % alignment == 0, InputError,
                  "{} starts at byte {} of the data, expected a multiple of {}", where,
                  tensor.offset, alignment);
    CARAVAN_CHECK(tensor.offset <= file.size() - data_begin &&
                      tensor.bytes <= file.size() - data_begin - tensor.offset,
                  InputError,
                  "{} needs {} bytes at {}+{}, the file has {}: it is truncated, download it again",
                  where, tensor.bytes, data_begin, tensor.offset, file.size());
    tensor.offset += data_begin;
    places.push_back({tensor.name, tensor.offset, tensor.offset + tensor.bytes});
  }
  check_places(std::move(places), "tensors", file.path());
}

void check_header(GgufCursor& cursor, const std::string& path) {
  const auto magic = cursor.number<std::array<char, 4>>("the magic number");
  CARAVAN_CHECK(std::string_view(magic.data(), magic.size()) == "GGUF", InputError,
                "{} is not a GGUF file (its first bytes differ)", path);
  const auto version = cursor.number<std::uint32_t>("the version");
  CARAVAN_CHECK(version != __builtin_bswap32(2) && version != __builtin_bswap32(3), InputError,
                "{} is a big-endian GGUF file, expected little-endian", path);
  CARAVAN_CHECK(version == 2 || version == 3, InputError,
                "{} is a GGUF file of version {}, expected 2 or 3", path, version);
}

}  // namespace

GgufFile GgufFile::read(io::InputFile& file) {
  GgufFile gguf;
  gguf.path_ = file.path();
  GgufCursor cursor(file);
  check_header(cursor, gguf.path_);
  const std::int64_t num_tensors = cursor.count("the number of tensors");
  const std::int64_t num_keys = cursor.count("the number of keys");
  CARAVAN_CHECK(num_keys <= kMaxKeys && num_tensors <= kMaxTensors, InputError,
                "{} says that it has {} keys and {} tensors, expected at most {} and {}: it is "
                "damaged, download it again",
                gguf.path_, num_keys, num_tensors, kMaxKeys, kMaxTensors);
  for (std::int64_t i = 0; i < num_keys; ++i) {
    const std::string key = cursor.text("a key", kMaxKeyBytes);
    GgufValue value = read_gguf_value(cursor, "key \"" + key + "\"");
    CARAVAN_CHECK(gguf.metadata_.emplace(key, std::move(value)).second, InputError,
                  "{}: the key \"{}\" is there twice", gguf.path_, key);
  }
  for (std::int64_t i = 0; i < num_tensors; ++i)
    gguf.tensors_.push_back(read_tensor_info(cursor, gguf.path_));
  const std::int64_t alignment = gguf.integer("general.alignment").value_or(32);
  CARAVAN_CHECK(alignment > 0 && alignment <= kMaxAlignment && (alignment & (alignment - 1)) == 0,
                InputError, "{}: general.alignment is {}, expected a power of two up to {}",
                gguf.path_, alignment, kMaxAlignment);
  const std::int64_t data_begin = round_up(cursor.position(), alignment);
  CARAVAN_CHECK(gguf.tensors_.empty() || data_begin < file.size(), InputError,
                "{} ends before its tensor data: it is truncated, download it again", gguf.path_);
  place_tensors(gguf.tensors_, data_begin, alignment, file);
  return gguf;
}

template <typename T>
const T* GgufFile::find(const std::string& key, const char* expected) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  CARAVAN_CHECK(value != nullptr, InputError, "{}: the key \"{}\" is not {}", path_, key, expected);
  return value;
}

std::optional<std::int64_t> GgufFile::integer(const std::string& key) const {
  const auto* value = find<std::int64_t>(key, "an integer");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> GgufFile::real(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end() && std::holds_alternative<std::int64_t>(found->second))
    return static_cast<double>(std::get<std::int64_t>(found->second));
  const auto* value = find<double>(key, "a number");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufFile::boolean(const std::string& key) const {
  const auto* value = find<bool>(key, "true or false");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const auto* value = find<std::string>(key, "a text");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::vector<std::string> GgufFile::texts(const std::string& key) const {
  const auto* value = find<std::vector<std::string>>(key, "an array of texts");
  return value == nullptr ? std::vector<std::string>() : *value;
}

std::vector<std::int64_t> GgufFile::integers(const std::string& key) const {
  const auto* value = find<std::vector<std::int64_t>>(key, "an array of integers");
  return value == nullptr ? std::vector<std::int64_t>() : *value;
}

std::vector<double> GgufFile::reals(const std::string& key) const {
  const auto* value = find<std::vector<double>>(key, "an array of numbers");
  return value == nullptr ? std::vector<double>() : *value;
}

}  // namespace caravan::checkpoint
