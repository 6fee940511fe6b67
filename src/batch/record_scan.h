#pragma once
// Where the records of a text file begin and end: one a line, or the whole file.

#include <cstdint>
#include <functional>
#include <string_view>

#include "caravan/io/input_file.h"
#include "caravan/io/sha256.h"

namespace caravan::batch {

struct FoundRecord {
  std::int64_t offset = 0;  // of its text, behind a byte order mark
  std::int32_t line = 1;
  std::string_view text;  // without line end; valid during the call
  bool too_long = false;  // then without text
};
using UseRecord = std::function<void(const FoundRecord&)>;

/// Each line that is not blank is a record. All bytes go into `hash`.
/// @return how many lines are blank.
/// @throws IoError; what `use` throws.
std::int64_t scan_lines(io::InputFile& file, io::Sha256& hash, const UseRecord& use);

/// The file is a record, without the line end at its end; as above.
std::int64_t scan_whole(io::InputFile& file, io::Sha256& hash, const UseRecord& use);

}  // namespace caravan::batch
