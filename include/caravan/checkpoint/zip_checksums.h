#pragma once
// Checks the entries of a zip archive against their CRC-32 while they are read, in pieces of any
// order, by any number of threads: nothing is read twice for it.
//
// Leaves out: entries that nobody reads, and those whose writer computed no checksum (torch.save
// after torch.serialization.set_crc32_options(False) stores 0).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "caravan/checkpoint/zip_directory.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

class ZipChecksums {
 public:
  /// @param path     of the archive, for messages
  /// @param entries  as read_zip_directory gives them: they do not overlap
  ZipChecksums(std::string path, std::vector<ZipEntry> entries);
  ~ZipChecksums();

  /// Takes note of bytes that were read at `offset` of the file. Bytes that were seen before count
  /// once.
  /// @throws InputError naming file and entry when all of an entry was read and its checksum
  /// differs.
  void see(std::int64_t offset, std::span<const std::byte> bytes);

  /// Reads from `file` what is missing of the entries that were read in part, and checks them, too.
  /// @throws InputError as above; IoError.
  void finish(io::InputFile& file);

 private:
  struct Entry;
  void add(Entry& entry, std::int64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  std::vector<std::unique_ptr<Entry>> entries_;  // in the order of their places
};

}  // namespace caravan::checkpoint
