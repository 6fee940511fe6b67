#include "json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "caravan/text/utf8.h"

namespace caravan::batch {

void append_json_string(std::string& out, std::string_view text) {
  if (text::find_invalid_utf8(text)) {
    append_json_string(out, text::replace_invalid_utf8(text));
    return;
  }
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_json_float(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "-9999.0";
    return;
  }
  fmt::format_to(std::back_inserter(out), "{}", value);
}

}  // namespace caravan::batch
