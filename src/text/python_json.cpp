#include "python_json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "caravan/core/error.h"
#include "caravan/core/exception_text.h"
#include "caravan/core/json_document.h"

namespace caravan::text {
namespace {

constexpr std::size_t kIndent = 4;

/// As Python's repr: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
std::string python_number(double value) {
  std::array<char, 64> buffer{};
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  std::string text(buffer.data(), scientific.ptr);
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const char* first = text.data() + mark + 1;
  std::from_chars(*first == '+' ? first + 1 : first, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  text.assign(buffer.data(), fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

class Writer {
 public:
  explicit Writer(JsonLayout layout) : indented_(layout == JsonLayout::kIndented) {}

  void write(const OrderedJson& value) {
    if (value.is_object()) {
      open('{');
      for (const auto& [key, member] : value.items()) {
        separate();
        out_ += OrderedJson(key).dump() + ": ";
        write(member);
      }
      close('}');
    } else if (value.is_array()) {
      open('[');
      for (const OrderedJson& element : value) {
        separate();
        write(element);
      }
      close(']');
    } else if (value.is_number_float()) {
      out_ += python_number(value.get<double>());
    } else {
      out_ += value.dump();
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void open(char bracket) {
    out_ += bracket;
    ++depth_;
    is_empty_ = true;
  }
  void separate() {
    if (!is_empty_) out_ += indented_ ? "," : ", ";
    is_empty_ = false;
    start_line();
  }
  void close(char bracket) {
    --depth_;
    if (!is_empty_) start_line();
    is_empty_ = false;
    out_ += bracket;
  }
  void start_line() {
    if (indented_) out_.append(1, '\n').append(kIndent * static_cast<std::size_t>(depth_), ' ');
  }

  bool indented_;
  int depth_ = 0;
  bool is_empty_ = true;  // nothing was written yet behind the last open bracket
  std::string out_;
};

}  // namespace

std::string python_json(const std::string& json, JsonLayout layout, std::string_view where) {
  Writer writer(layout);
  writer.write(parse_json<OrderedJson>(json, where));
  return writer.take();
}

std::string python_json_string(std::string_view text, std::string_view where) {
  try {
    return OrderedJson(text).dump();
  } catch (const OrderedJson::exception& error) {
    throw InputError(
        fmt::format("{} cannot be written as JSON: {}", where, without_type(error.what())));
  }
}

}  // namespace caravan::text
