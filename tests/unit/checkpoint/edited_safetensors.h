#pragma once
// The tensors of a safetensors file, to be renamed, changed and written again.

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "generated_files.h"

namespace caravan::test {

struct EditedSafetensors {
  struct Tensor {
    std::string type;
    std::vector<std::int64_t> shape;
    std::string bytes;
  };

  explicit EditedSafetensors(const std::string& file) {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    const std::size_t data = sizeof(header_bytes) + header_bytes;
    const auto header = nlohmann::json::parse(file.substr(sizeof(header_bytes), header_bytes));
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = entry["data_offsets"][0].get<std::size_t>();
      const auto end = entry["data_offsets"][1].get<std::size_t>();
      tensors[name] = {entry["dtype"], entry["shape"], file.substr(data + begin, end - begin)};
    }
  }

  /// Names that start with `from` start with `to` instead.
  void rename_prefix(const std::string& from, const std::string& to) {
    std::map<std::string, Tensor> renamed;
    for (auto& [name, tensor] : tensors)
      renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = std::move(tensor);
    tensors = std::move(renamed);
  }

  /// One float32 element.
  void set(const std::string& name, std::int64_t index, float value) {
    std::memcpy(tensors.at(name).bytes.data() + index * std::int64_t{sizeof(float)}, &value,
                sizeof(value));
  }

  std::string file() const {
    SafetensorsBuilder builder;
    for (const auto& [name, tensor] : tensors)
      builder.add_raw(name, tensor.type, tensor.shape, tensor.bytes);
    return builder.file();
  }

  std::map<std::string, Tensor> tensors;
};

}  // namespace caravan::test
