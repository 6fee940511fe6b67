#pragma once
// Cuts text into pieces with a PCRE2 pattern, piece by piece, in constant memory.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "caravan/core/unique_handle.h"

// Types of pcre2.h, which only split_pattern.cpp includes.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace caravan::text {

struct Pcre2CodeTraits {
  using Handle = pcre2_real_code_8*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept;
};
struct Pcre2MatchDataTraits {
  using Handle = pcre2_real_match_data_8*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept;
};
struct Pcre2MatchContextTraits {
  using Handle = pcre2_real_match_context_8*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept;
};
struct Pcre2JitStackTraits {
  using Handle = pcre2_real_jit_stack_8*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept;
};

/// A compiled pattern. Immutable: many threads may match with it at once.
class SplitPattern {
 public:
  /// `\s`, `\S`, `\p{L}` and `\p{N}` mean the sets of Unicode 16, as in the libraries that
  /// tokenizers are trained with, whatever version PCRE2 has (unicode_classes.h).
  /// @throws ConfigError with PCRE2's message and the offset.
  explicit SplitPattern(const std::string& pattern);

 private:
  friend class SplitMatcher;
  std::string pattern_;
  UniqueHandle<Pcre2CodeTraits> code_;
  bool compiled_to_machine_code_ = false;
};

/// One thread's use of a pattern.
class SplitMatcher {
 public:
  /// `pattern` outlives this object.
  explicit SplitMatcher(const SplitPattern& pattern);

  /// Begin and end of the first non-empty match at or after `offset`. `text` is valid UTF-8 and
  /// `offset` a character boundary.
  /// @throws InputError if the pattern needs more than PCRE2's limits on this text.
  std::optional<std::pair<std::size_t, std::size_t>> next(std::string_view text,
                                                          std::size_t offset);

 private:
  int match(std::string_view text, std::size_t offset);
  void set_limit(std::size_t text_size);

  const SplitPattern* pattern_;
  UniqueHandle<Pcre2MatchDataTraits> data_;
  UniqueHandle<Pcre2MatchContextTraits> context_;
  UniqueHandle<Pcre2JitStackTraits> stack_;  // made when the machine stack is too small
  std::size_t limit_text_size_ = 0;          // what the match limit was set for
};

/// Calls `sink` with each piece of `text`, in order: `matchers[level]` and those behind it, each
/// applied to the pieces left by the one before.
template <typename Sink>
void split_text(std::vector<SplitMatcher>& matchers, std::size_t level, std::string_view text,
                const Sink& sink) {
  if (level == matchers.size()) {
    sink(text);
    return;
  }
  std::size_t offset = 0;
  while (const auto match = matchers[level].next(text, offset)) {
    const auto [begin, end] = *match;
    if (begin > offset) {
      split_text(matchers, level + 1, text.substr(offset, begin - offset), sink);
    }
    split_text(matchers, level + 1, text.substr(begin, end - begin), sink);
    offset = end;
  }
  if (offset < text.size()) split_text(matchers, level + 1, text.substr(offset), sink);
}

}  // namespace caravan::text
