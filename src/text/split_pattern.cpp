#include "split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <limits>

#include "caravan/core/error.h"

namespace caravan::text {
namespace {

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

/// The White_Space property (Unicode 15, PropList.txt) as the inside of a class. Written out
/// because older PCRE2 do not know \p{White_Space}.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// Length of a POSIX class name such as [:alpha:] at `position`, or 0.
std::size_t posix_class_length(std::string_view pattern, std::size_t position) {
  if (pattern.substr(position, 2) != "[:") return 0;
  const std::size_t end = pattern.find(":]", position + 2);
  return end == std::string_view::npos ? 0 : end + 2 - position;
}

/// `pattern` with \s and \S replaced by White_Space. Inside a class only \s can be: a negated set
/// is no member of a class.
std::string with_unicode_white_space(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    std::size_t copied = 1;
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[i + 1];
      if (escaped == 's' || (escaped == 'S' && !in_class)) {
        const std::string_view open = in_class ? "" : escaped == 's' ? "[" : "[^";
        result.append(open).append(kWhiteSpace).append(in_class ? "" : "]");
        ++i;
        continue;
      }
      copied = 2;
      if (escaped == 'Q') {  // literal text up to \E
        const std::size_t end = pattern.find("\\E", i);
        copied = end == std::string_view::npos ? pattern.size() - i : end + 2 - i;
      }
    } else if (in_class && pattern[i] == '[') {
      copied = std::max<std::size_t>(posix_class_length(pattern, i), 1);
    } else if (pattern[i] == '[') {
      in_class = true;
      if (pattern.substr(i + 1, 1) == "^") ++copied;
      if (pattern.substr(i + copied, 1) == "]") ++copied;  // a first ] is a member
    } else if (in_class && pattern[i] == ']') {
      in_class = false;
    }
    result.append(pattern.substr(i, copied));
    i += copied - 1;
  }
  return result;
}

}  // namespace

void Pcre2CodeTraits::release(Handle handle) noexcept { pcre2_code_free(handle); }
void Pcre2MatchDataTraits::release(Handle handle) noexcept { pcre2_match_data_free(handle); }
void Pcre2MatchContextTraits::release(Handle handle) noexcept { pcre2_match_context_free(handle); }
void Pcre2JitStackTraits::release(Handle handle) noexcept { pcre2_jit_stack_free(handle); }

SplitPattern::SplitPattern(const std::string& pattern) : pattern_(pattern) {
  const std::string rewritten = with_unicode_white_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  code_ = UniqueHandle<Pcre2CodeTraits>(
      pcre2_compile(units(rewritten), rewritten.size(), kOptions, &error, &offset, nullptr));
  CARAVAN_CHECK(code_, ConfigError,
                "split pattern \"{}\" does not compile: {} (at byte {} of \"{}\")", pattern,
                message_of(error), offset, rewritten);
  // Without machine code (PCRE2 built without it, or memory may not be executable) matching is
  // slower, not different.
  compiled_to_machine_code_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

SplitMatcher::SplitMatcher(const SplitPattern& pattern)
    : pattern_(&pattern),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  CARAVAN_CHECK(data_ && context_, InternalError, "out of memory for matching a split pattern");
  // The limits guard against patterns, not against long text: a run of 100 million spaces may cost
  // a step per byte.
  pcre2_set_match_limit(context_.get(), std::numeric_limits<std::uint32_t>::max());
}

int SplitMatcher::match(std::string_view text, std::size_t offset) {
  // PCRE2_NO_UTF_CHECK: the caller has checked; PCRE2 would check the whole rest at each match.
  constexpr std::uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  const auto interpret = [&](std::uint32_t more_options) {
    return pcre2_match(pattern_->code_.get(), units(text), text.size(), offset,
                       kOptions | more_options, data_.get(), context_.get());
  };
  if (!pattern_->compiled_to_machine_code_) return interpret(0);
  const auto run = [&] {
    return pcre2_jit_match(pattern_->code_.get(), units(text), text.size(), offset, PCRE2_NOTEMPTY,
                           data_.get(), context_.get());
  };
  int result = run();
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
    constexpr std::size_t kStartBytes = 64 << 10, kMaxBytes = 16 << 20;
    stack_ =
        UniqueHandle<Pcre2JitStackTraits>(pcre2_jit_stack_create(kStartBytes, kMaxBytes, nullptr));
    if (stack_) {
      pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
      result = run();
    }
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = interpret(PCRE2_NO_JIT);
  return result;
}

std::optional<std::pair<std::size_t, std::size_t>> SplitMatcher::next(std::string_view text,
                                                                      std::size_t offset) {
  if (offset >= text.size()) return std::nullopt;
  const int result = match(text, offset);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  CARAVAN_CHECK(result >= 0, InputError,
                "split pattern \"{}\" fails at byte {} of a text of {} bytes: {}",
                pattern_->pattern_, offset, text.size(), message_of(result));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
  // \K inside a look-around can move the start behind the end, or before the search.
  CARAVAN_CHECK(ends[0] >= offset && ends[0] < ends[1], InputError,
                "split pattern \"{}\" gives an impossible match [{}, {}) from byte {}",
                pattern_->pattern_, ends[0], ends[1], offset);
  return std::pair(ends[0], ends[1]);
}

}  // namespace caravan::text
