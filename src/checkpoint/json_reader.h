#pragma once
// Typed access to the fields of a JSON object of a source; null counts as absent.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace caravan::checkpoint {

class JsonReader {
 public:
  /// @param where  for messages: the file, and the part of it
  JsonReader(const nlohmann::json& object, std::string where);

  /// Parses a whole text, which must be an object.
  /// @throws InputError naming the place of a syntax error.
  static nlohmann::json parse(const std::string& text, const std::string& where);

  const std::string& where() const { return where_; }
  const nlohmann::json* find(const char* name) const;
  /// Whether the field is there, be it null.
  bool has(const char* name) const { return object_->contains(name); }

  // Empty when absent. @throws InputError for another type.
  std::optional<std::int64_t> integer(const char* name) const;
  std::optional<double> real(const char* name) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  std::optional<JsonReader> object(const char* name) const;
  std::optional<std::vector<std::int64_t>> integers(const char* name) const;

  /// Token ids: one number or a list of them; empty when absent.
  std::vector<std::int32_t> ids(const char* name) const;

 private:
  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace caravan::checkpoint
