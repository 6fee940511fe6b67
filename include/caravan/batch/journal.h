#pragma once
// ANSWERS.jsonl.part: finished records in the order in which they finish, safe against a kill at
// any byte; at the end rewritten in input order to the output by rename.
//
// The first line holds the fingerprint of the run, so that a journal is only ever continued by the
// run that it belongs to. Leaves out: which output may be written (output_files.h).

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/io/atomic_file.h"
#include "caravan/io/input_file.h"

namespace caravan::batch {

/// What must be equal for two runs to be one: name -> value.
using Fingerprint = std::map<std::string, std::string>;

class Journal {
 public:
  /// Creates the journal, or continues an existing one: a torn last line is cut, lines whose
  /// checksum fails are dropped (their records run again). One of another run that holds no
  /// finished record is begun anew.
  ///
  /// @throws CannotCreateError if the file cannot be created; ConfigError if it holds records of
  /// another run, naming each part that differs; IoError.
  Journal(std::string path, const Fingerprint& fingerprint, std::int64_t num_records);

  bool has(std::int64_t index) const;
  std::int64_t num_records() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t num_done() const { return num_done_; }
  std::int64_t num_errors() const { return num_errors_; }  // of the done
  /// Records that were found, and lines that were dropped, when the journal was opened.
  std::int64_t num_found() const { return num_found_; }
  std::int64_t num_dropped() const { return num_dropped_; }

  /// Adds the output line of a record with one write.
  /// @pre !has(index).
  /// @throws IoError (disk full ...); what was added before stays readable.
  void append(std::int64_t index, std::string_view line);

  /// Forces what was added to disk, and looks whether the file still has its name as long as
  /// records are missing: what is added to a deleted file is lost.
  /// @throws IoError.
  void sync();

  /// Writes the output lines in input order to `output` by a temporary file and rename, and removes
  /// temporary files of runs that were killed here. May be repeated as long as the journal is
  /// there: an `output` that is to be kept and has just these lines is left as it is. @pre every
  /// record is done; the caller holds the lock of `output`. @param keep_alive  called again and
  /// again.
  /// @throws IoError; CannotCreateError, also if another `output` exists and is to be kept; what
  /// keep_alive throws.
  void finish(const std::string& output, const std::function<void()>& keep_alive = {},
              io::ExistingTarget existing = io::ExistingTarget::kReplace);

  /// Removes the file, once nothing is left to be finished: as long as it is there, the same run
  /// can finish.
  void remove();

 private:
  struct Slot {
    std::int64_t offset = -1;  // of the output line in the journal; -1: not done
    std::int64_t bytes = 0;
  };
  void create(const Fingerprint& fingerprint);
  void load(const Fingerprint& fingerprint);
  void load_line(std::string_view line, std::int64_t offset);
  std::string header_differences(std::string_view line, const Fingerprint& fingerprint) const;
  void write_all(std::string_view text);
  void cut(std::int64_t size);
  void flush();
  bool has_its_name() const;
  // The output in pieces of at least some size, the last one apart, until `use` wants no more.
  void each_piece(const std::function<bool(const std::string&)>& use) const;
  bool is_output(const std::string& path, const std::function<void()>& keep_alive) const;

  std::string path_;
  io::FileDescriptor file_;
  std::int64_t end_ = 0;  // of the last whole line
  std::vector<Slot> slots_;
  std::int64_t num_done_ = 0;
  std::int64_t num_errors_ = 0;
  std::int64_t num_found_ = 0;
  std::int64_t num_dropped_ = 0;
  bool dirty_ = false;
};

}  // namespace caravan::batch
