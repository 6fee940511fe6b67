#pragma once
// Which numbers of ranks a model can be shared by, and what each rank then needs: for choosing an
// allocation.

#include <cstdint>
#include <string>
#include <vector>

#include "caravan/app/memory_plan.h"

namespace caravan::app {

/// The rank that needs most, of `num_ranks`.
struct SizeRow {
  int num_ranks = 1;
  std::int64_t min_query_heads = 0;  // of a rank
  std::int64_t max_query_heads = 0;
  std::int64_t max_kv_heads = 0;
  std::int64_t program_bytes = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t image_bytes = 0;  // keys and values of images
  std::int64_t buffer_bytes = 0;
  std::int64_t total_bytes() const {
    return program_bytes + weight_bytes + kv_bytes + image_bytes + buffer_bytes;
  }
};

/// With the KV cache and image memory that the request would like, whatever is free.
SizeRow size_row(const MemoryRequest& request, int num_ranks);

/// Rows for 1, 2, 4, 8, 16 and `num_ranks` ranks, and the smallest usual memory (of a GPU, or of
/// a rank's share of a node) of which a rank takes at most nine tenths.
std::string size_table_text(const MemoryRequest& request, int num_ranks);

}  // namespace caravan::app
