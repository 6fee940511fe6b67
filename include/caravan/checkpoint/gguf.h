#pragma once
// The container of a GGUF file (versions 2 and 3): metadata and places of its tensors, all checked.
//
// Leaves out: what the metadata mean for a model (gguf_source).

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "caravan/checkpoint/source_tensor.h"
#include "caravan/io/input_file.h"

namespace caravan::checkpoint {

/// Integers of any width become 64-bit ones, reals become double. Arrays of arrays are refused.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

class GgufFile {
 public:
  /// Time is bounded by the size of the metadata, memory by about 8 times that and by 256 MiB.
  /// @throws InputError with the file and the key or tensor at fault.
  static GgufFile read(io::InputFile& file);

  const std::vector<SourceTensor>& tensors() const { return tensors_; }

  // One value; empty when there is no such key.
  // @throws InputError naming key and file if the value has another type.
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<double> real(const std::string& key) const;  // integers too
  std::optional<bool> boolean(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;      // empty when absent
  std::vector<std::int64_t> integers(const std::string& key) const;  // empty when absent
  std::vector<double> reals(const std::string& key) const;           // empty when absent

 private:
  template <typename T>
  const T* find(const std::string& key, const char* expected) const;

  std::string path_;
  std::map<std::string, GgufValue> metadata_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace caravan::checkpoint
