#pragma once
// Conversations that tell chat layouts apart.

#include <vector>

#include "chat_layouts.h"

namespace caravan::text {

/// With and without system text, white space of all kinds at both ends, empty contents, few and
/// many turns, an answer at the end, roles that do not alternate or are missing, thoughts and what
/// looks like marks of layouts, control tokens as text, long texts, images.
std::vector<Messages> layout_probes();

}  // namespace caravan::text
