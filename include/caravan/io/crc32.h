#pragma once
// CRC-32 as zip archives have it (ISO 3309): checks what others wrote. Our own files have CRC32C.
//
// Uses the processor's carry-less product where it has one, tables otherwise; the values are the
// same.

#include <cstddef>
#include <cstdint>
#include <span>

namespace caravan::io {

/// Checksum of `bytes`; to continue over a further piece, pass the checksum of what came before.
std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// The table version, whatever the processor offers (for tests).
std::uint32_t crc32_portable(std::span<const std::byte> bytes, std::uint32_t previous = 0);

/// Checksum of a text from those of its two halves, the second of `second_bytes`. It is linear: the
/// checksum of a text in any number of pieces is the exclusive or, over the pieces, of
/// crc32_joined(piece's checksum, 0, bytes behind the piece).
std::uint32_t crc32_joined(std::uint32_t first, std::uint32_t second, std::int64_t second_bytes);

}  // namespace caravan::io
