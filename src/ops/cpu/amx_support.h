#pragma once
// Whether tile instructions can be used. Private to src/ops.

namespace caravan::ops {

/// Whether CPU and system have tile registers and bf16 products of tiles, and the system lets this
/// process use them, which is asked for here: it saves their 8 KiB only for processes that do.
bool request_amx();

}  // namespace caravan::ops
