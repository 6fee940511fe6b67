#pragma once
// Compares the tensors of a converted checkpoint with hashes that were computed without this
// program.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "caravan/checkpoint/model_file.h"
#include "caravan/io/sha256.h"

namespace caravan::checkpoint {

/// @param expected  for each tensor, by name: dtype, shape and sha256 of its stored bytes; all
/// tensors and no others.
inline void expect_stored_tensors(ModelFile& file, const nlohmann::json& expected) {
  EXPECT_EQ(file.tensors().size(), expected.size());
  for (const StoredTensor& tensor : file.tensors()) {
    ASSERT_TRUE(expected.contains(tensor.spec.name)) << tensor.spec.name;
    const nlohmann::json& entry = expected.at(tensor.spec.name);
    EXPECT_EQ(dtype_name(tensor.dtype), entry.at("dtype").get<std::string>()) << tensor.spec.name;
    nlohmann::json shape = nlohmann::json::array({tensor.spec.rows});
    if (!tensor.spec.is_vector) shape.push_back(tensor.spec.columns);
    EXPECT_EQ(shape, entry.at("shape")) << tensor.spec.name;
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
    file.read_rows(tensor.spec, {0, tensor.spec.rows}, bytes.data());
    io::Sha256 hash;
    hash.update(bytes);
    EXPECT_EQ(hash.hex_digest(), entry.at("sha256").get<std::string>()) << tensor.spec.name;
  }
}

}  // namespace caravan::checkpoint
