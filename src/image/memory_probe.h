#pragma once
// Whether memory is there. A decoder that gets none says no more than one that meets damage, and a
// record must not be answered as damaged because the machine was short of memory.

#include <cstdint>

namespace caravan::image {

/// Called before a library is let to take up to `bytes`, and when it refused something for which it
/// may have taken them: without them, the refusal means nothing.
/// @throws std::bad_alloc if that much cannot be had.
void require_memory(std::int64_t bytes);

}  // namespace caravan::image
