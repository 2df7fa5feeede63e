// CRC32C (Castagnoli), the checksum of every frame: the SSE4.2 instruction where the machine has
// it, tables elsewhere; the same value from both. Source: RFC 3720, appendix B.4 (polynomial
// 0x11EDC6F41, reflected 0x82F63B78).
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::comm {

/// Checksum of `bytes` bytes at `data`; `previous` is the checksum of what stands before them, 0 at
/// the start. crc32c(crc32c(0, a), b) is the checksum of a followed by b. Threads: any.
std::uint32_t crc32c(std::uint32_t previous, const void* data, std::size_t bytes);

/// The same from tables alone: what machines without the instruction use, and the truth in tests.
std::uint32_t crc32c_table(std::uint32_t previous, const void* data, std::size_t bytes);

}  // namespace muster::comm
