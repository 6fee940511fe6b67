#pragma once
// Small safetensors and GGUF files made in memory, right or deliberately wrong.

#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace caravan::test {

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string bytes_of_one(T value) {
  return bytes_of(std::vector<T>{value});
}

/// Header length, header and data of a safetensors file.
inline std::string safetensors_file(const std::string& header, std::string_view data) {
  return bytes_of_one<std::uint64_t>(header.size()) + header + std::string(data);
}

/// A safetensors file from float32 tensors, laid out one after the other.
class SafetensorsBuilder {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& shape,
           const std::vector<float>& values) {
    add_raw(name, "F32", shape, bytes_of(values));
  }
  void add_raw(const std::string& name, const std::string& type,
               const std::vector<std::int64_t>& shape, const std::string& bytes) {
    header_[name] = {{"dtype", type},
                     {"shape", shape},
                     {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  }
  void remove(const std::string& name) { header_.erase(name); }
  std::string file() const { return safetensors_file(header_.dump(), data_); }

 private:
  nlohmann::json header_ = {{"__metadata__", {{"format", "pt"}}}};
  std::string data_;
};

/// A GGUF file of version 3. Values are appended as they come; nothing is checked.
class GgufBuilder {
 public:
  void text(const std::string& key, const std::string& value) {
    begin(key, 8);
    keys_ += counted(value);
  }
  void u32(const std::string& key, std::uint32_t value) {
    begin(key, 4);
    keys_ += bytes_of_one(value);
  }
  void f32(const std::string& key, float value) {
    begin(key, 6);
    keys_ += bytes_of_one(value);
  }
  void boolean(const std::string& key, bool value) {
    begin(key, 7);
    keys_ += value ? '\1' : '\0';
  }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    begin_array(key, 8, values.size());
    for (const std::string& value : values) keys_ += counted(value);
  }
  void integers(const std::string& key, const std::vector<std::int32_t>& values) {
    begin_array(key, 5, values.size());
    keys_ += bytes_of(values);
  }
  /// A key with any type number and bytes.
  void raw(const std::string& key, std::uint32_t type, const std::string& bytes) {
    begin(key, type);
    keys_ += bytes;
  }
  /// `dims` as GGUF writes them, the fastest-varying first.
  void tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
              const std::string& bytes) {
    data_.resize((data_.size() + 31) / 32 * 32);
    tensor_at(name, dims, type, data_.size());
    data_ += bytes;
  }
  void tensor_at(const std::string& name, const std::vector<std::uint64_t>& dims,
                 std::uint32_t type, std::uint64_t offset) {
    tensors_ += counted(name) + bytes_of_one(static_cast<std::uint32_t>(dims.size())) +
                bytes_of(dims) + bytes_of_one(type) + bytes_of_one(offset);
    ++num_tensors_;
  }
  std::string file(std::uint32_t version = 3) const {
    std::string out = "GGUF" + bytes_of_one(version) + bytes_of_one(num_tensors_) +
                      bytes_of_one(num_keys_) + keys_ + tensors_;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data_;
  }

  static std::string counted(const std::string& text) {
    return bytes_of_one<std::uint64_t>(text.size()) + text;
  }

 private:
  void begin(const std::string& key, std::uint32_t type) {
    keys_ += counted(key) + bytes_of_one(type);
    ++num_keys_;
  }
  void begin_array(const std::string& key, std::uint32_t type, std::size_t count) {
    begin(key, 9);
    keys_ += bytes_of_one(type) + bytes_of_one<std::uint64_t>(count);
  }

  std::string keys_;
  std::string tensors_;
  std::string data_;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
};

/// The 256 single bytes in GGUF's byte-level alphabet (model-independent), then the given texts.
inline std::vector<std::string> byte_tokens(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    if (code < 128) {
      tokens.emplace_back(1, static_cast<char>(code));
    } else {
      tokens.push_back(
          {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
    }
  }
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

}  // namespace caravan::test
