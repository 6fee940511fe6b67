#pragma once
// CRC32C (Castagnoli, RFC 3720): the checksum of every band of a checkpoint.
//
// Uses the processor's instruction where it has one, tables otherwise; the values are the same.

#include <cstddef>
#include <cstdint>
#include <span>

namespace caravan::io {

/// Checksum of `bytes`; to continue over a further piece, pass the checksum of what came before.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// The table version, whatever the processor offers (for tests).
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace caravan::io
