// Values in messages: short_json of json_document.h.

#include "caravan/core/json_document.h"

namespace caravan {
namespace {

constexpr std::size_t kMaxShortBytes = 120;

/// The longest piece of at most `max_bytes` that ends with a whole character of valid UTF-8.
std::string_view cut_utf8(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

/// Writes until there is enough. Each level begins with a bracket, so that the depth is limited,
/// too.
class ShortWriter {
 public:
  std::string write(const Json& value) {
    add(value);
    if (out_.size() <= kMaxShortBytes) return out_;
    return std::string(cut_utf8(out_, kMaxShortBytes)) + "...";
  }

 private:
  bool full() const { return out_.size() > kMaxShortBytes; }

  void add(const Json& value) {
    if (value.is_object()) {
      out_ += '{';
      for (auto member = value.begin(); member != value.end() && !full(); ++member) {
        separate('{');
        add_text(member.key());
        out_ += ": ";
        add(member.value());
      }
      out_ += '}';
    } else if (value.is_array()) {
      out_ += '[';
      for (auto element = value.begin(); element != value.end() && !full(); ++element) {
        separate('[');
        add(*element);
      }
      out_ += ']';
    } else if (value.is_string()) {
      add_text(value.get_ref<const std::string&>());
    } else {
      out_ += value.dump();
    }
  }
  void separate(char opening) {
    if (out_.back() != opening) out_ += ", ";
  }
  void add_text(std::string_view text) {
    out_ += Json(cut_utf8(text, kMaxShortBytes + 1))
                .dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  std::string out_;
};

}  // namespace

std::string short_json(const Json& value) { return ShortWriter().write(value); }

}  // namespace caravan
