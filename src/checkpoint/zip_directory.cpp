#include "caravan/checkpoint/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "tensor_places.h"

namespace caravan::checkpoint {
namespace {

// Sizes and signatures of PKWARE's APPNOTE, sections 4.3.7 to 4.3.16.
constexpr std::int64_t kLocalHeaderBytes = 30;
constexpr std::int64_t kCentralHeaderBytes = 46;
constexpr std::int64_t kEndBytes = 22;
constexpr std::int64_t kZip64LocatorBytes = 20;
constexpr std::int64_t kZip64EndBytes = 56;
constexpr std::int64_t kMaxCommentBytes = 65535;
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kZip64LocatorSignature = 0x07064b50;
constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
constexpr std::uint16_t kZip64Field = 0x0001;
constexpr std::uint16_t kEncryptedBit = 0x0001;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the value is in the zip64 field

constexpr std::int64_t kMaxDirectoryBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMaxEntries = std::int64_t{1} << 20;

template <typename T>
T load(std::span<const std::byte> bytes, std::int64_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

struct Directory {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t entries = 0;
};

struct LocatedEntry {
  ZipEntry entry;
  std::int64_t header_offset = 0;
};

class ZipReader {
 public:
  explicit ZipReader(io::InputFile& file) : file_(file) {}

  std::vector<ZipEntry> read() {
    const Directory directory = find_directory();
    check(directory.entries <= kMaxEntries, "counts {} entries, expected at most {}",
          directory.entries, kMaxEntries);
    check(directory.bytes <= kMaxDirectoryBytes, "has a directory of {} bytes, expected at most {}",
          directory.bytes, kMaxDirectoryBytes);
    const std::vector<std::byte> bytes = get(directory.offset, directory.bytes);
    std::vector<LocatedEntry> located;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < directory.entries; ++i) located.push_back(read_entry(bytes, at));
    std::vector<NamedPlace> places;
    for (LocatedEntry& each : located) {
      locate(each, directory.offset);
      const ZipEntry& entry = each.entry;
      places.push_back({entry.name, each.header_offset, entry.offset + entry.bytes});
    }
    check_places(std::move(places), "entries", file_.path());
    std::vector<ZipEntry> entries;
    for (LocatedEntry& entry : located) entries.push_back(std::move(entry.entry));
    return entries;
  }

 private:
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    CARAVAN_CHECK(condition, InputError, "the zip archive {} {}", file_.path(),
                  fmt::format(format, std::forward<Args>(args)...));
  }

  std::vector<std::byte> get(std::int64_t offset, std::int64_t count) {
    check(offset >= 0 && count >= 0 && count <= file_.size() && offset <= file_.size() - count,
          "names bytes {}+{}, but the file has {}: it is truncated, download it again", offset,
          count, file_.size());
    std::vector<std::byte> bytes(checked_cast<std::size_t>(count));
    file_.read(offset, bytes);
    return bytes;
  }

  std::int64_t from_unsigned(std::uint64_t value) const {
    check(std::in_range<std::int64_t>(value), "names the position {}, beyond 2^63", value);
    return static_cast<std::int64_t>(value);
  }

  // The end record is the last thing in the file but for a comment.
  Directory find_directory() {
    const std::int64_t tail_bytes = std::min(file_.size(), kEndBytes + kMaxCommentBytes);
    const std::int64_t tail_begin = file_.size() - tail_bytes;
    const std::vector<std::byte> tail = get(tail_begin, tail_bytes);
    for (std::int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
      if (load<std::uint32_t>(tail, at) != kEndSignature ||
          at + kEndBytes + load<std::uint16_t>(tail, at + 20) != tail_bytes)
        continue;
      return read_end(std::span(tail).subspan(static_cast<std::size_t>(at)), tail_begin + at);
    }
    throw InputError(fmt::format(
        "{} is no complete zip archive (its directory is missing at the end): it is truncated, "
        "download it again",
        file_.path()));
  }

  Directory read_end(std::span<const std::byte> end, std::int64_t end_offset) {
    Directory directory = {load<std::uint32_t>(end, 16), load<std::uint32_t>(end, 12),
                           load<std::uint16_t>(end, 10)};
    std::int64_t limit = end_offset;
    bool several_disks = load<std::uint16_t>(end, 4) != 0 || load<std::uint16_t>(end, 6) != 0 ||
                         load<std::uint16_t>(end, 8) != load<std::uint16_t>(end, 10);
    if (end_offset >= kZip64LocatorBytes) {
      const auto locator = get(end_offset - kZip64LocatorBytes, kZip64LocatorBytes);
      if (load<std::uint32_t>(locator, 0) == kZip64LocatorSignature) {
        limit = from_unsigned(load<std::uint64_t>(locator, 8));
        const auto end64 = get(limit, kZip64EndBytes);
        check(load<std::uint32_t>(end64, 0) == kZip64EndSignature,
              "has no zip64 end record at byte {}", limit);
        several_disks = load<std::uint32_t>(end64, 16) != 0 || load<std::uint32_t>(end64, 20) != 0;
        directory = {from_unsigned(load<std::uint64_t>(end64, 48)),
                     from_unsigned(load<std::uint64_t>(end64, 40)),
                     from_unsigned(load<std::uint64_t>(end64, 32))};
      }
    }
    check(!several_disks, "is one part of a divided archive");
    check(directory.bytes <= limit && directory.offset <= limit - directory.bytes,
          "has its directory at bytes {}+{}, expected before byte {}", directory.offset,
          directory.bytes, limit);
    return directory;
  }

  // One record of the central directory, from `at`, which moves behind it.
  LocatedEntry read_entry(std::span<const std::byte> bytes, std::int64_t& at) const {
    const std::int64_t left = std::ssize(bytes) - at;
    check(left >= kCentralHeaderBytes && load<std::uint32_t>(bytes, at) == kCentralSignature,
          "has a damaged directory (at its byte {})", at);
    const std::int64_t name_bytes = load<std::uint16_t>(bytes, at + 28);
    const std::int64_t extra_bytes = load<std::uint16_t>(bytes, at + 30);
    const std::int64_t comment_bytes = load<std::uint16_t>(bytes, at + 32);
    check(name_bytes + extra_bytes + comment_bytes <= left - kCentralHeaderBytes,
          "has a damaged directory (at its byte {})", at);
    LocatedEntry located;
    const auto* name = reinterpret_cast<const char*>(bytes.data() + at + kCentralHeaderBytes);
    located.entry.name.assign(name, static_cast<std::size_t>(name_bytes));
    const std::string& shown = located.entry.name;
    check((load<std::uint16_t>(bytes, at + 8) & kEncryptedBit) == 0,
          "is encrypted (entry \"{}\"); decrypt it first", shown);
    check(load<std::uint16_t>(bytes, at + 10) == 0,
          "is compressed (entry \"{}\", method {}); torch.save stores entries as they are", shown,
          load<std::uint16_t>(bytes, at + 10));
    located.entry.crc32 = load<std::uint32_t>(bytes, at + 16);
    std::uint64_t size = load<std::uint32_t>(bytes, at + 24);
    std::uint64_t packed = load<std::uint32_t>(bytes, at + 20);
    std::uint64_t offset = load<std::uint32_t>(bytes, at + 42);
    const auto extra =
        bytes.subspan(static_cast<std::size_t>(at + kCentralHeaderBytes + name_bytes),
                      static_cast<std::size_t>(extra_bytes));
    read_zip64_field(extra, {&size, &packed, &offset}, shown);
    check(size == packed, "has the entry \"{}\" with {} bytes stored as {}", shown, size, packed);
    located.entry.bytes = from_unsigned(size);
    located.header_offset = from_unsigned(offset);
    at += kCentralHeaderBytes + name_bytes + extra_bytes + comment_bytes;
    return located;
  }

  // The values that did not fit into 32 bits, in this order.
  void read_zip64_field(std::span<const std::byte> extra,
                        std::initializer_list<std::uint64_t*> values,
                        const std::string& name) const {
    std::int64_t at = 0;
    while (std::ssize(extra) - at >= 4) {
      const auto id = load<std::uint16_t>(extra, at);
      const std::int64_t end = at + 4 + load<std::uint16_t>(extra, at + 2);
      check(end <= std::ssize(extra), "has a damaged extra field at the entry \"{}\"", name);
      at += 4;
      if (id != kZip64Field) {
        at = end;
        continue;
      }
      for (std::uint64_t* value : values) {
        if (*value != kIn64) continue;
        check(end - at >= 8, "has a damaged extra field at the entry \"{}\"", name);
        *value = load<std::uint64_t>(extra, at);
        at += 8;
      }
      return;
    }
  }

  // The local header says where the data begin. Its sizes may be zero (they follow the data then).
  void locate(LocatedEntry& located, std::int64_t directory_offset) {
    ZipEntry& entry = located.entry;
    const auto header = get(located.header_offset, kLocalHeaderBytes);
    check(load<std::uint32_t>(header, 0) == kLocalSignature,
          "has no header of the entry \"{}\" at byte {}", entry.name, located.header_offset);
    const std::int64_t name_bytes = load<std::uint16_t>(header, 26);
    const std::int64_t name_offset = located.header_offset + kLocalHeaderBytes;
    check(name_bytes == std::ssize(entry.name), "has another name for \"{}\" in its header",
          entry.name);
    const auto name = get(name_offset, name_bytes);
    check(std::memcmp(name.data(), entry.name.data(), name.size()) == 0,
          "has another name for \"{}\" in its header", entry.name);
    entry.offset = name_offset + name_bytes + load<std::uint16_t>(header, 28);
    check(entry.bytes <= directory_offset && entry.offset <= directory_offset - entry.bytes,
          "has the entry \"{}\" at bytes {}+{}, expected before its directory at byte {}",
          entry.name, entry.offset, entry.bytes, directory_offset);
  }

  io::InputFile& file_;
};

}  // namespace

std::vector<ZipEntry> read_zip_directory(io::InputFile& file) { return ZipReader(file).read(); }

}  // namespace caravan::checkpoint
