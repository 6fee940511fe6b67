#pragma once
// Typed access to JSON values and to the fields of objects, with messages that name the place, what
// is expected there and what was found. null counts as absent.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/core/json_document.h"

namespace caravan {

/// "a string", "an array" ... for messages.
std::string_view json_kind(const Json& value);

/// The value of an integer of any size that fits; empty for everything else.
std::optional<std::int64_t> find_int64(const Json& value);

// @throws InputError "WHERE must be ..., found ..." for another type.
std::int64_t int64_of(const Json& value, std::string_view where);
const std::string& string_of(const Json& value, std::string_view where);

/// Fields of one object, which must outlive this.
class JsonReader {
 public:
  /// @param where  for messages: the file, and the part of it
  /// @throws InputError if `object` is none.
  JsonReader(const Json& object, std::string_view where);

  const std::string& where() const { return where_; }
  /// Whether the field is there, be it null.
  bool has(const char* name) const { return object_->contains(name); }

  // Empty when absent. @throws InputError for another type.
  const Json* find(const char* name) const;
  std::optional<std::int64_t> integer(const char* name) const;
  std::optional<double> real(const char* name) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  std::optional<JsonReader> object(const char* name) const;
  std::optional<std::vector<std::int64_t>> integers(const char* name) const;
  std::optional<std::vector<double>> reals(const char* name) const;

  /// Token ids: one number or a list of them; empty when absent.
  std::vector<std::int32_t> ids(const char* name) const;

  // As above, but the field must be there.
  const Json& need(const char* name) const { return *need_value(find(name), name); }
  std::int64_t need_integer(const char* name) const { return *need_value(integer(name), name); }
  double need_real(const char* name) const { return *need_value(real(name), name); }
  bool need_boolean(const char* name) const { return *need_value(boolean(name), name); }
  std::string need_text(const char* name) const { return *need_value(text(name), name); }
  JsonReader need_object(const char* name) const { return *need_value(object(name), name); }
  std::vector<std::int64_t> need_integers(const char* name) const {
    return *need_value(integers(name), name);
  }

  std::vector<double> need_reals(const char* name) const { return *need_value(reals(name), name); }

  /// @throws InputError naming the first field that none of the above was asked for.
  void expect_no_others() const;

 private:
  template <typename Found>
  Found need_value(Found found, const char* name) const {
    CARAVAN_CHECK(found, InputError, "{}: \"{}\" is missing", where_, name);
    return found;
  }
  [[noreturn]] void refuse(const char* name, std::string_view expected, const Json& found) const;

  const Json* object_;
  std::string where_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace caravan
