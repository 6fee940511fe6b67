#pragma once
// Numbers of this program that are part of what an answer is.

namespace caravan::batch {

/// Raised whenever a change of the program may change the bits of an answer. Part of every
/// fingerprint and manifest.
inline constexpr int kNumericsVersion = 3;

/// Layout of output lines and of the journal.
inline constexpr int kOutputVersion = 1;

}  // namespace caravan::batch
