#include "caravan/core/json_document.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>
#include <type_traits>
#include <vector>

#include "caravan/core/exception_text.h"

namespace caravan {
namespace {

constexpr std::int64_t kMaxTreeBytes = std::int64_t{512} << 20;
// Files that are used take 5 to 12 bytes of memory for a byte of text; what counts is that a
// small file cannot take much.
constexpr std::int64_t kTreeBytesPerByte = 24;
constexpr std::int64_t kFreeTreeBytes = std::int64_t{1} << 20;  // whatever the length

// What parts of a tree take with their blocks of the allocator and the slack of growing arrays.
constexpr std::int64_t kElementBytes = 24;
constexpr std::int64_t kArrayBytes = 32;
constexpr std::int64_t kObjectBytes = 64;
constexpr std::int64_t kKeyBytes = 112;
constexpr std::int64_t kStringBytes = 48;

constexpr std::size_t kMaxFaultBytes = 240;

/// Walks over a text and tells how far the parser has come, which its callbacks do not.
class TracedPosition {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TracedPosition(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  TracedPosition& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  TracedPosition operator++(int) {
    const TracedPosition before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TracedPosition& other) const { return at_ == other.at_; }
  bool operator!=(const TracedPosition& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

/// Line and column of the byte before `end`; of a text of one line only the column.
std::string place_of(std::string_view text, std::size_t end) {
  const std::string_view before = text.substr(0, end > 0 ? end - 1 : 0);
  const std::size_t last_break = before.rfind('\n');
  const std::size_t column =
      last_break == before.npos ? before.size() : before.size() - last_break - 1;
  if (text.find('\n') == text.npos) return fmt::format("column {}", column + 1);
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     column + 1);
}

/// Bytes of a broken text, which may be anything.
std::string printable(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

/// The library's words on a syntax error without its type, place and all that it has read.
std::string syntax_fault(std::string_view what, std::string_view last_token) {
  constexpr std::string_view kRead = "; last read: '";
  constexpr std::string_view kExpected = "; expected ";
  constexpr std::size_t kMaxTokenBytes = 40;
  std::string text = without_type(what);
  if (const auto place = text.find(": "); text.starts_with("parse error") && place != text.npos)
    text.erase(0, place + 2);
  if (const auto read = text.find(kRead); read != text.npos) {
    const auto expected = text.rfind(kExpected);
    const std::string tail =
        expected != text.npos && expected > read ? text.substr(expected) : std::string();
    if (last_token.size() > kMaxTokenBytes)
      last_token.remove_prefix(last_token.size() - kMaxTokenBytes);
    text.replace(read, text.npos, fmt::format("{}{}'", kRead, printable(last_token)));
    text += tail;
  }
  return printable(std::string_view(text).substr(0, kMaxFaultBytes));
}

template <typename Tree>
class TreeBuilder final : public nlohmann::json_sax<Tree> {
 public:
  using Base = nlohmann::json_sax<Tree>;

  TreeBuilder(std::string_view text, std::string_view where, NotedJson* noted)
      : text_(text),
        where_(where),
        noted_(noted),
        reached_(text.data()),
        max_bytes_(std::min(
            kMaxTreeBytes,
            kFreeTreeBytes + kTreeBytesPerByte * static_cast<std::int64_t>(text.size()))) {}

  Tree build() {
    Tree::sax_parse(TracedPosition(text_.data(), &reached_),
                    TracedPosition(text_.data() + text_.size(), &reached_), this);
    return std::move(root_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override {
    charge(kStringBytes + static_cast<std::int64_t>(value.size()));
    return add(std::move(value));
  }
  bool binary(typename Base::binary_t&) override { return add(nullptr); }  // is not in JSON texts
  bool start_object(std::size_t) override {
    open(Tree::object(), kObjectBytes);
    if constexpr (kOrdered) keys_.emplace_back();
    return true;
  }
  bool start_array(std::size_t) override {
    open(Tree::array(), kArrayBytes);
    return true;
  }
  bool end_object() override {
    if constexpr (kOrdered) keys_.pop_back();
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool key(std::string& name) override {
    charge(kKeyBytes + static_cast<std::int64_t>(name.size()));
    auto& object = open_.back()->template get_ref<typename Tree::object_t&>();
    bool is_new = true;
    if constexpr (kOrdered) {
      // The library looks through all keys for each: quadratic in a long object.
      is_new = keys_.back().insert(name).second;
      if (is_new) {
        using Members = std::vector<typename Tree::object_t::value_type>;
        slot_ = &static_cast<Members&>(object).emplace_back(name, Tree()).second;
      }
    } else {
      const auto [place, inserted] = object.try_emplace(name);
      is_new = inserted;
      if (is_new) slot_ = &place->second;
    }
    if (!is_new) repeat(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    throw fault("not valid JSON at {}: {}", place(), syntax_fault(error.what(), last_token));
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<Tree, OrderedJson>;

  bool add(Tree value) {
    put(std::move(value));
    return true;
  }

  Tree* put(Tree value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (!open_.back()->is_array()) {
      *slot_ = std::move(value);
      return slot_;
    }
    charge(kElementBytes);
    auto& elements = open_.back()->template get_ref<typename Tree::array_t&>();
    return &elements.emplace_back(std::move(value));
  }

  void open(Tree container, std::int64_t bytes) {
    charge(bytes);
    if (open_.size() >= kMaxJsonDepth) {
      throw fault("lists and objects are nested more than {} deep at {}", kMaxJsonDepth, place());
    }
    open_.push_back(put(std::move(container)));
  }

  void charge(std::int64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > max_bytes_) {
      throw fault(
          "holds more values at {} than {} bytes of JSON can sensibly have: the limit is {} MiB of "
          "memory",
          place(), text_.size(), max_bytes_ >> 20);
    }
  }

  void repeat(const std::string& name) {
    const std::string at = place_of(text_, key_begin());
    if (noted_ == nullptr) {
      throw fault(
          "the key {} is there twice in one object, again at {}: remove the one that is wrong",
          short_json(name), at);
    }
    if (noted_->repeated_at.empty()) {
      noted_->repeated_key = name;
      noted_->repeated_at = at;
    }
    slot_ = &dropped_.emplace_back();
  }

  /// End of the opening quote of the key that was just read.
  std::size_t key_begin() const {
    std::size_t quote = reached() - 1;
    bool is_escaped = true;
    while (is_escaped) {
      quote = text_.rfind('"', quote - 1);
      const std::size_t before = text_.find_last_not_of('\\', quote - 1);
      is_escaped = (quote - before) % 2 == 0;
    }
    return quote + 1;
  }

  std::size_t reached() const { return static_cast<std::size_t>(reached_ - text_.data()); }
  std::string place() const { return place_of(text_, reached()); }

  template <typename... Args>
  JsonFault fault(fmt::format_string<Args...> format, Args&&... args) const {
    return JsonFault(fmt::format("{}{}{}", where_, where_.empty() ? "" : ": ",
                                 fmt::format(format, std::forward<Args>(args)...)));
  }

  std::string_view text_;
  std::string_view where_;
  NotedJson* noted_;
  const char* reached_;
  std::int64_t max_bytes_;
  std::int64_t bytes_ = 0;
  Tree root_;
  std::deque<Tree> dropped_;                 // values of keys that were there already
  Tree* slot_ = nullptr;                     // of the last key
  std::vector<Tree*> open_;                  // each inside the one before, which does not move then
  std::vector<std::set<std::string>> keys_;  // of the open objects, where the tree has no index
};

}  // namespace

template <typename Tree>
Tree parse_json(std::string_view text, std::string_view where) {
  return TreeBuilder<Tree>(text, where, nullptr).build();
}
template Json parse_json<Json>(std::string_view text, std::string_view where);
template OrderedJson parse_json<OrderedJson>(std::string_view text, std::string_view where);

NotedJson parse_json_noting_repeats(std::string_view text, std::string_view where) {
  NotedJson noted;
  noted.value = TreeBuilder<Json>(text, where, &noted).build();
  return noted;
}

}  // namespace caravan
