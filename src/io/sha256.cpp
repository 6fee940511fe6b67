#include "caravan/io/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "caravan/core/error.h"
#include "caravan/core/unique_handle.h"

namespace caravan::io {
namespace {

struct DigestContextTraits {
  using Handle = EVP_MD_CTX*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept { EVP_MD_CTX_free(handle); }
};

}  // namespace

struct Sha256::State {
  UniqueHandle<DigestContextTraits> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CARAVAN_ASSERT(
      state_->context && EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) == 1,
      "libcrypto cannot start SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  CARAVAN_ASSERT(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1,
                 "libcrypto cannot hash {} bytes", bytes.size());
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text.data(), text.size())));
}

std::string Sha256::hex_digest() {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  CARAVAN_ASSERT(EVP_DigestFinal_ex(state_->context.get(), digest.data(), &size) == 1 && size == 32,
                 "libcrypto gave {} digest bytes", size);
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace caravan::io
