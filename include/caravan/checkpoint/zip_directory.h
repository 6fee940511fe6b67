#pragma once
// The table of contents of a zip archive whose entries are stored as they are, as torch.save writes
// them: names and places, all checked.
//
// Leaves out: compression (refused by name), and checking the entries' data (zip_checksums.h).

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

struct ZipEntry {
  std::string name;
  std::int64_t offset = 0;  // of the data, bytes from the start of the file
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;  // of the data; 0 also where the writer computed none
};

/// Entries in the order of the central directory, zip64 included. Time and memory are bounded by
/// the directory, at most 64 MiB and 2^20 entries.
/// @throws InputError with file and entry: no zip archive, truncated, compressed or encrypted
/// entries, names twice, places outside the file, overlaps, headers that contradict the directory.
std::vector<ZipEntry> read_zip_directory(io::InputFile& file);

}  // namespace caravan::checkpoint
