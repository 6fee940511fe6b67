#include "caravan/checkpoint/safetensors.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "caravan/checkpoint/source_tensor.h"
#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "tensor_places.h"

namespace caravan::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr std::int64_t kLengthBytes = 8;
constexpr std::size_t kMaxDimensions = 8;
constexpr std::size_t kMaxTensors = std::size_t{1} << 18;  // the largest models have some thousands

// Builds entries while the header is parsed: no tree in memory, and no entry is lost where a name
// is there twice (check_places). Levels: 1 the header, 2 one tensor, 3 shape or offsets.
class HeaderHandler final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(std::string path) : path_(std::move(path)) {}

  std::vector<SafetensorsEntry> take_entries() { return std::move(entries_); }
  const std::vector<std::vector<std::int64_t>>& offsets() const { return offsets_; }

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_float(double, const std::string&) override { return scalar("a real number"); }
  bool binary(binary_t&) override { return scalar("binary data"); }
  bool number_integer(std::int64_t) override { return scalar("a negative number"); }
  bool number_unsigned(std::uint64_t value) override {
    if (in_metadata_) return true;
    check(level_ == 3, "a number where none is expected");
    check(std::in_range<std::int64_t>(value), "a number beyond 2^63");
    std::vector<std::int64_t>& list = field_ == "shape" ? entries_.back().shape : offsets_.back();
    check(list.size() < kMaxDimensions, "a list that is too long");
    list.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(std::string& value) override {
    if (in_metadata_) return true;
    check(level_ == 2 && field_ == "dtype", "a text where none is expected");
    entries_.back().type_name = std::move(value);
    return true;
  }
  bool start_object(std::size_t) override {
    check(level_ < 2, "objects nested too deeply");
    ++level_;
    return true;
  }
  bool end_object() override {
    if (level_ == 2 && !in_metadata_) {
      check(fields_.size() == 3, "a tensor without dtype, shape or data_offsets");
    }
    in_metadata_ = in_metadata_ && level_ != 2;
    --level_;
    return true;
  }
  bool start_array(std::size_t) override {
    check(level_ == 2 && !in_metadata_ && (field_ == "shape" || field_ == "data_offsets"),
          "a list where none is expected");
    ++level_;
    return true;
  }
  bool end_array() override {
    --level_;
    return true;
  }
  bool key(std::string& name) override {
    if (level_ == 1) {
      in_metadata_ = name == "__metadata__";
      if (in_metadata_) {
        check(!std::exchange(has_metadata_, true), "metadata twice");
        return true;
      }
      check(entries_.size() < kMaxTensors, "more than 262144 tensors");
      entries_.emplace_back().name = std::move(name);
      offsets_.emplace_back();
      fields_.clear();
    } else if (!in_metadata_) {
      check(name == "dtype" || name == "shape" || name == "data_offsets", "an unknown field");
      check(fields_.insert(name).second, "a field twice");
      field_ = std::move(name);
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw InputError(fmt::format("{}: the safetensors header is not valid JSON at byte {}", path_,
                                 position + kLengthBytes));
  }

 private:
  bool scalar(const char* what) {
    check(in_metadata_, what);
    return true;
  }
  void check(bool condition, const char* fault) const {
    CARAVAN_CHECK(condition, InputError, "{}: the safetensors header has {} (at tensor \"{}\")",
                  path_, fault, entries_.empty() ? "" : entries_.back().name);
  }

  std::string path_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::vector<std::int64_t>> offsets_;  // data_offsets of each entry
  std::set<std::string> fields_;
  std::string field_;
  int level_ = 0;
  bool in_metadata_ = false;
  bool has_metadata_ = false;
};

std::optional<ElementType> weight_type(const std::string& name) {
  for (const ElementType type :
       {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
    if (name == element_type_name(type)) return type;
  }
  return std::nullopt;
}

// Bytes of one element of any type that the format knows; 0 for others.
std::int64_t type_bytes(const std::string& name) {
  if (const auto type = weight_type(name)) return block_layout(*type).bytes;
  if (name == "I64" || name == "U64" || name == "C64") return 8;
  if (name == "I32" || name == "U32") return 4;
  if (name == "I16" || name == "U16") return 2;
  if (name == "I8" || name == "U8" || name == "BOOL" || name.starts_with("F8_")) return 1;
  return 0;
}

void locate(SafetensorsEntry& entry, const std::vector<std::int64_t>& offsets,
            std::int64_t data_begin, std::int64_t file_bytes, const std::string& path) {
  const std::string where = fmt::format("{}: tensor \"{}\"", path, entry.name);
  const std::int64_t element = type_bytes(entry.type_name);
  CARAVAN_CHECK(element > 0, InputError, "{} has the unknown type \"{}\"", where, entry.type_name);
  entry.type = weight_type(entry.type_name);
  entry.bytes = checked_elements(entry.shape, where) * element;
  CARAVAN_CHECK(offsets.size() == 2 && offsets[0] <= offsets[1], InputError,
                "{} has the data_offsets [{}], expected a begin and an end", where,
                fmt::join(offsets, ", "));
  CARAVAN_CHECK(offsets[1] - offsets[0] == entry.bytes, InputError,
                "{} has {} bytes of data, expected {} for {} [{}]", where, offsets[1] - offsets[0],
                entry.bytes, entry.type_name, fmt::join(entry.shape, ", "));
  CARAVAN_CHECK(offsets[1] <= file_bytes - data_begin, InputError,
                "{} ends at byte {}, the file has {}: it is truncated, download it again", where,
                fmt::format("{}+{}", data_begin, offsets[1]), file_bytes);
  entry.offset = data_begin + offsets[0];
}

}  // namespace

std::vector<SafetensorsEntry> read_safetensors_header(io::InputFile& file) {
  const std::string& path = file.path();
  CARAVAN_CHECK(file.size() >= kLengthBytes, InputError,
                "{} has {} bytes: it is not a safetensors file, or was cut short", path,
                file.size());
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  CARAVAN_CHECK(std::cmp_less_equal(length, kMaxHeaderBytes), InputError,
                "{} says that its header has {} bytes, expected at most {}: it is not a "
                "safetensors file",
                path, length, kMaxHeaderBytes);
  CARAVAN_CHECK(std::cmp_less_equal(length, file.size() - kLengthBytes), InputError,
                "{} says that its header has {} bytes, but the file has {}: it is truncated", path,
                length, file.size());
  std::string header(checked_cast<std::size_t>(length), '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(header.data(), header.size())));
  CARAVAN_CHECK(header.starts_with('{'), InputError,
                "{}: the safetensors header is not a JSON object", path);
  HeaderHandler handler(path);
  Json::sax_parse(header, &handler);
  std::vector<SafetensorsEntry> entries = handler.take_entries();
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(length);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    locate(entries[i], handler.offsets()[i], data_begin, file.size(), path);
  }
  std::vector<NamedPlace> places;
  for (const SafetensorsEntry& entry : entries)
    places.push_back({entry.name, entry.offset, entry.offset + entry.bytes});
  check_places(std::move(places), "tensors", path);
  return entries;
}

}  // namespace caravan::checkpoint
