#pragma once
// Counts calls of operator new of the whole program, ATen included: a test that uses it lists
// allocation_counter.cpp among its sources.

#include <cstdint>

namespace caravan::test {

/// Calls of operator new so far, by all threads.
std::int64_t allocation_count();

}  // namespace caravan::test
