#pragma once
// SHA-256 of data that comes in pieces.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace caravan::io {

class Sha256 {
 public:
  /// @throws InternalError if the library has no SHA-256.
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// 64 hexadecimal digits. Once, last.
  std::string hex_digest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caravan::io
