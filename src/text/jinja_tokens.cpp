// Cuts a template into text and the tokens of its tags.

#include <cctype>

#include "caravan/core/error.h"
#include "jinja_node.h"

namespace caravan::text::jinja {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {
    if (source_.ends_with('\n')) source_.remove_suffix(1);
  }

  std::vector<Token> read() {
    while (at_ < source_.size()) {
      const std::size_t open = next_tag();
      add_text(source_.substr(at_, open - at_), open);
      at_ = open;
      if (open < source_.size()) read_tag();
    }
    tokens_.resize(tokens_.size() + 2);  // two ends: the parser looks one token ahead
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      const char kind = source_[i + 1];
      if (kind == '{' || kind == '%' || kind == '#') return i;
    }
    return source_.size();
  }

  // White space is dropped beside "-", and in front of a block or comment that begins its line.
  void add_text(std::string_view text, std::size_t open) {
    if (drop_space_) {
      while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    } else if (drop_newline_ && text.starts_with('\n')) {
      text.remove_prefix(1);
    }
    drop_space_ = drop_newline_ = false;
    if (open < source_.size()) {
      const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
      if (mark == '-') {
        while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
      } else if (mark != '+' && source_[open + 1] != '{') {
        std::size_t end = text.size();
        while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
        const bool at_line_start =
            end > 0 ? text[end - 1] == '\n'
                    : open == text.size() || source_[open - text.size() - 1] == '\n';
        if (at_line_start) text = text.substr(0, end);
      }
    }
    if (!text.empty()) tokens_.push_back({Token::Kind::kText, std::string(text)});
  }

  void read_tag() {
    const char kind = peek(1);
    at_ += 2;
    if (kind == '#') {
      const std::size_t end = source_.find("#}", at_);
      CARAVAN_CHECK(end != std::string_view::npos, InputError, "a comment has no end");
      drop_space_ = end > at_ && source_[end - 1] == '-';
      drop_newline_ = true;
      at_ = end + 2;
      return;
    }
    if (peek() == '-' || peek() == '+') ++at_;
    tokens_.push_back({kind == '{' ? Token::Kind::kOpenPrint : Token::Kind::kOpenBlock, {}});
    const std::string_view close = kind == '{' ? "}}" : "%}";
    int depth = 0;  // of braces: "}}" may end a map
    while (true) {
      while (is_space(peek())) ++at_;
      CARAVAN_CHECK(at_ < source_.size(), InputError, "a tag has no end");
      const bool marked = peek() == '-' && source_.substr(at_ + 1, 2) == close;
      if (depth == 0 && (marked || source_.substr(at_, 2) == close)) {
        at_ += marked ? 3 : 2;
        drop_space_ = marked;
        drop_newline_ = kind == '%';
        tokens_.push_back({Token::Kind::kClose, {}});
        return;
      }
      read_token(depth);
    }
  }

  void read_token(int& depth) {
    const char c = peek();
    const std::size_t start = at_;
    if (c == '\'' || c == '"') {
      read_string(c);
    } else if (is_digit(c)) {
      while (is_digit(peek()) || (peek() == '.' && is_digit(peek(1)))) ++at_;
      tokens_.push_back({Token::Kind::kNumber, std::string(source_.substr(start, at_ - start))});
    } else if (is_name(c)) {
      while (is_name(peek())) ++at_;
      tokens_.push_back({Token::Kind::kName, std::string(source_.substr(start, at_ - start))});
    } else {
      if (c == '{') ++depth;
      if (c == '}') --depth;
      const std::string_view two = source_.substr(at_, 2);
      const bool is_pair = two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//";
      at_ += is_pair ? 2 : 1;
      tokens_.push_back({Token::Kind::kSymbol, std::string(source_.substr(start, at_ - start))});
    }
  }

  void read_string(char quote) {
    std::string text;
    for (++at_; peek() != quote; ++at_) {
      CARAVAN_CHECK(at_ < source_.size(), InputError, "a string has no end");
      char c = peek();
      if (c == '\\') {
        ++at_;
        c = peek();
        switch (c) {
          case 'n': c = '\n'; break;
          case 't': c = '\t'; break;
          case 'r': c = '\r'; break;
          case '\\':
          case '\'':
          case '"': break;
          default: throw InputError(fmt::format("the escape \\{} is not supported", c));
        }
      }
      text.push_back(c);
    }
    ++at_;
    tokens_.push_back({Token::Kind::kString, std::move(text)});
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool drop_space_ = false;    // of the text that follows
  bool drop_newline_ = false;  // its first
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(std::string_view source) { return Reader(source).read(); }

}  // namespace caravan::text::jinja
