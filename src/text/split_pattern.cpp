#include "split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <limits>

#include "caravan/core/error.h"
#include "unicode_classes.h"

namespace caravan::text {
namespace {

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

/// Length of a POSIX class name such as [:alpha:] at `position`, or 0.
std::size_t posix_class_length(std::string_view pattern, std::size_t position) {
  if (pattern.substr(position, 2) != "[:") return 0;
  const std::size_t end = pattern.find(":]", position + 2);
  return end == std::string_view::npos ? 0 : end + 2 - position;
}

/// A character set as it stands in a pattern, and what replaces it.
struct CharacterSet {
  std::string_view spelling;
  std::string_view open;  // outside a class
  std::string_view members;
  bool negated = false;
};
constexpr std::array<CharacterSet, 4> kCharacterSets = {{
    {R"(\s)", "[", kWhiteSpace},
    {R"(\S)", "[^", kWhiteSpace, true},
    {R"(\p{L})", "[", kLetters},
    {R"(\p{N})", "[", kNumbers},
}};

const CharacterSet* character_set_at(std::string_view pattern, std::size_t position) {
  for (const CharacterSet& set : kCharacterSets) {
    if (pattern.substr(position, set.spelling.size()) == set.spelling) return &set;
  }
  return nullptr;
}

/// Length of the escape sequence at `position`; \Q includes all up to its \E.
std::size_t escape_length(std::string_view pattern, std::size_t position) {
  if (pattern.substr(position, 2) != "\\Q") return 2;
  const std::size_t end = pattern.find("\\E", position);
  return end == std::string_view::npos ? pattern.size() - position : end + 2 - position;
}

/// Length of the beginning of a class at `position`: a first ] is a member.
std::size_t class_opening_length(std::string_view pattern, std::size_t position) {
  std::size_t length = 1;
  if (pattern.substr(position + length, 1) == "^") ++length;
  if (pattern.substr(position + length, 1) == "]") ++length;
  return length;
}

/// `pattern` with its character sets replaced by those of unicode_classes.h. A negated set cannot
/// be written as a member of a class, so \S stays PCRE2's own there.
std::string with_unicode_sets(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size();) {
    const CharacterSet* set = character_set_at(pattern, i);
    if (set != nullptr && !(in_class && set->negated)) {
      if (!in_class) result.append(set->open);
      result.append(set->members);
      if (!in_class) result.append("]");
      i += set->spelling.size();
      continue;
    }
    std::size_t copied = 1;
    if (pattern[i] == '\\') {
      copied = escape_length(pattern, i);
    } else if (in_class) {
      copied = std::max<std::size_t>(posix_class_length(pattern, i), 1);
      in_class = pattern[i] != ']';
    } else if (pattern[i] == '[') {
      copied = class_opening_length(pattern, i);
      in_class = true;
    }
    result.append(pattern.substr(i, copied));
    i += copied;
  }
  return result;
}

}  // namespace

void Pcre2CodeTraits::release(Handle handle) noexcept { pcre2_code_free(handle); }
void Pcre2MatchDataTraits::release(Handle handle) noexcept { pcre2_match_data_free(handle); }
void Pcre2MatchContextTraits::release(Handle handle) noexcept { pcre2_match_context_free(handle); }
void Pcre2JitStackTraits::release(Handle handle) noexcept { pcre2_jit_stack_free(handle); }

SplitPattern::SplitPattern(const std::string& pattern) : pattern_(pattern) {
  const std::string rewritten = with_unicode_sets(pattern);
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
  std::size_t machine_code_bytes = 0;
  compiled_to_machine_code_ =
      pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0 &&
      pcre2_pattern_info(code_.get(), PCRE2_INFO_JITSIZE, &machine_code_bytes) == 0 &&
      machine_code_bytes > 0;  // a pattern can ask for none
}

SplitMatcher::SplitMatcher(const SplitPattern& pattern)
    : pattern_(&pattern),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  CARAVAN_CHECK(data_ && context_, InternalError, "out of memory for matching a split pattern");
}

void SplitMatcher::set_limit(std::size_t text_size) {
  if (text_size == limit_text_size_) return;
  limit_text_size_ = text_size;
  // A run of 100 million spaces may cost a few steps per byte; a pattern with exponential
  // backtracking must not take hours.
  constexpr std::uint64_t kSteps = 10'000'000, kStepsPerByte = 16;
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(context_.get(), static_cast<std::uint32_t>(
                                            std::min(kSteps + kStepsPerByte * text_size, kMax)));
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
  set_limit(text.size());
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
