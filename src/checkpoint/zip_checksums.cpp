#include "caravan/checkpoint/zip_checksums.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/partition.h"
#include "caravan/io/crc32.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

}  // namespace

struct ZipChecksums::Entry {
  explicit Entry(ZipEntry located)
      : entry(std::move(located)), unread({{0, entry.bytes}}), bytes_left(entry.bytes) {}

  /// Takes the parts of `range` that nobody has taken; relative to the entry, as all below.
  std::vector<Range> take(Range range) {
    const std::lock_guard lock(mutex);
    std::vector<Range> taken;
    auto next = unread.upper_bound(range.begin);
    if (next != unread.begin()) --next;
    while (next != unread.end() && next->first < range.end) {
      const Range gap = {next->first, next->second};
      const Range part = {std::max(gap.begin, range.begin), std::min(gap.end, range.end)};
      if (part.empty()) {
        ++next;
        continue;
      }
      next = unread.erase(next);
      if (gap.begin < part.begin) unread.emplace(gap.begin, part.begin);
      if (part.end < gap.end) unread.emplace(part.end, gap.end);
      taken.push_back(part);
    }
    return taken;
  }

  /// Adds a taken part's share of the checksum; true for the last one.
  bool add(Range part, std::uint32_t crc32) {
    const std::uint32_t share = io::crc32_joined(crc32, 0, entry.bytes - part.end);
    const std::lock_guard lock(mutex);
    sum ^= share;
    bytes_left -= part.size();
    return bytes_left == 0;
  }

  const ZipEntry entry;
  std::mutex mutex;
  std::map<std::int64_t, std::int64_t> unread;  // ends by begins
  std::int64_t bytes_left = 0;                  // that are not in the sum
  std::uint32_t sum = 0;
};

ZipChecksums::ZipChecksums(std::string path, std::vector<ZipEntry> entries)
    : path_(std::move(path)) {
  for (ZipEntry& entry : entries) {
    if (entry.bytes > 0 && entry.crc32 != 0)
      entries_.push_back(std::make_unique<Entry>(std::move(entry)));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const auto& a, const auto& b) { return a->entry.offset < b->entry.offset; });
}

ZipChecksums::~ZipChecksums() = default;

void ZipChecksums::see(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::int64_t end = offset + std::ssize(bytes);
  auto next = std::partition_point(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return entry->entry.offset + entry->entry.bytes <= offset;
  });
  for (; next != entries_.end() && (*next)->entry.offset < end; ++next) add(**next, offset, bytes);
}

void ZipChecksums::add(Entry& entry, std::int64_t offset, std::span<const std::byte> bytes) {
  const std::int64_t begin = entry.entry.offset;
  const Range seen = {std::max<std::int64_t>(offset - begin, 0),
                      std::min(offset + std::ssize(bytes) - begin, entry.entry.bytes)};
  for (const Range& part : entry.take(seen)) {
    const auto piece = bytes.subspan(checked_cast<std::size_t>(part.begin + begin - offset),
                                     checked_cast<std::size_t>(part.size()));
    if (!entry.add(part, io::crc32(piece))) continue;
    CARAVAN_CHECK(entry.sum == entry.entry.crc32, InputError,
                  "{}: the checksum of its entry \"{}\" is {:08x}, expected {:08x}: the file is "
                  "damaged, download it again",
                  path_, entry.entry.name, entry.sum, entry.entry.crc32);
  }
}

void ZipChecksums::finish(io::InputFile& file) {
  std::vector<std::byte> bytes;
  for (const auto& entry : entries_) {
    if (entry->bytes_left == entry->entry.bytes) continue;
    const auto unread = entry->unread;
    for (const auto& [begin, end] : unread) {
      for (std::int64_t at = begin; at < end; at += kPieceBytes) {
        bytes.resize(checked_cast<std::size_t>(std::min(kPieceBytes, end - at)));
        file.read(entry->entry.offset + at, bytes);
        see(entry->entry.offset + at, bytes);
      }
    }
  }
}

}  // namespace caravan::checkpoint
