#pragma once
// The operations of a pickle and reading their arguments, never beyond the end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "caravan/core/error.h"

namespace caravan::checkpoint {

// Opcodes of the Python module pickletools, protocols 0 to 5; those that are missing here are
// refused.
enum class Op : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kEmptyDict = '}',
  kBinFloat = 'G',
  kProto = 0x80,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class PickleInput {
 public:
  PickleInput(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  /// @throws InputError with place and reason unless `condition` holds.
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    CARAVAN_CHECK(condition, InputError, "{}: the pickle cannot be read (at byte {}): {}", where_,
                  at_, fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename T>
  T number() {
    T value{};
    const auto bytes = take(sizeof(T));
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> take(std::uint64_t count) {
    check(count <= bytes_.size() - at_, "it ends in the middle of a value");
    const auto result = bytes_.subspan(at_, count);
    at_ += count;
    return result;
  }

  std::string text(std::uint64_t count) {
    check(count <= kMaxTextBytes, "a text of {} bytes, expected at most {}", count, kMaxTextBytes);
    const auto bytes = take(count);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Up to the end of a line, which is skipped.
  std::string line() {
    const auto rest = bytes_.subspan(at_, std::min(bytes_.size() - at_, kMaxTextBytes));
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    check(end != rest.end(), "a name without end");
    std::string result = text(static_cast<std::uint64_t>(end - rest.begin()));
    take(1);
    return result;
  }

 private:
  static constexpr std::size_t kMaxTextBytes = 65535;

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace caravan::checkpoint
