#pragma once
// Typed access to the fields of a request's JSON object. A field of the wrong type or out of range
// is noted as a fault that names it, and counts as absent, as null does.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/json_reader.h"
#include "record_faults.h"

namespace caravan::batch {

/// Parses one JSON object: UTF-8, nesting depth and syntax checked.
/// @throws Refused with code "invalid_json".
NotedJson parse_json_object(std::string_view text);

class JsonFields {
 public:
  /// @param object  must be a JSON object and outlive this, as must `faults`. `path` is put before
  /// names: "messages.0."
  JsonFields(const Json& object, std::string path, RecordFaults& faults);

  /// The field, or null where it is absent or JSON null. Marks the name as known.
  const Json* find(const std::string& name);
  std::optional<bool> boolean(const std::string& name);
  /// 4.0 is an integer as well.
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t low, std::int64_t high);
  std::optional<double> number(const std::string& name, double low, double high);
  std::optional<std::string> text(const std::string& name);
  /// A text that must be there; empty, with a fault, if it is not.
  std::string needed_text(const std::string& name);
  /// An array of token ids.
  std::optional<std::vector<std::int32_t>> ids(const std::string& name, std::int64_t vocab_size);
  /// Accepts and ignores these.
  void ignore(std::initializer_list<const char*> names);
  /// Names that nobody asked for and that are not null, in order; then those of parts.
  std::vector<std::string> unknown() const;
  /// Adds the unknown names of an object inside this one, of which all is asked for that will be.
  void add_unknown_of(const JsonFields& part);
  std::string path(const std::string& name) const { return path_ + name; }

  /// Where faults of this object and its parts go.
  RecordFaults& faults() { return *faults_; }
  /// Notes a fault of one of its fields.
  void note(std::string code, std::string message, const std::string& name);

 private:
  template <typename Fits>
  const Json* find_typed(const std::string& name, std::string_view type, const Fits& fits);
  void note_range(const std::string& name, const std::string& range, const Json& found);

  const Json* object_;
  std::string path_;
  RecordFaults* faults_;
  std::set<std::string> known_;
  std::vector<std::string> unknown_in_parts_;
};

/// Elements of an array of token ids, without those that are none: they become faults.
std::vector<std::int32_t> token_ids(const Json& array, const std::string& path,
                                    std::int64_t vocab_size, RecordFaults& faults);

}  // namespace caravan::batch
