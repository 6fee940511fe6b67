#pragma once
// Sizes beyond which a tokenizer file is taken for damaged or hostile. Real ones stay far below.

#include <cstddef>
#include <cstdint>

namespace caravan::text {

constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 22;
constexpr std::size_t kMaxTokenBytes = 1024;

}  // namespace caravan::text
