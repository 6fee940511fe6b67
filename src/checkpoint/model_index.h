#pragma once
// What all ranks know of a checkpoint: description, places and checksums, as bytes and as a hash.

#include <cstdint>
#include <string>
#include <vector>

#include "byte_stream.h"
#include "caravan/checkpoint/model_file.h"

namespace caravan::checkpoint {

struct ModelIndex {
  std::string path;
  std::int64_t file_bytes = 0;
  ModelDescription description;
  std::vector<StoredTensor> tensors;
};

void put_index(ByteWriter& out, const ModelIndex& index);
void get_index(ByteReader& in, ModelIndex& index);

/// SHA-256 over all that decides answers: architecture, tokenizer, chat format, generation
/// defaults, and type, shape and checksums of every tensor. Names and places do not count.
std::string content_hash(const ModelDescription& description,
                         const std::vector<StoredTensor>& tensors);

}  // namespace caravan::checkpoint
