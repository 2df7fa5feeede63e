#include "worker/comm/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace muster::comm {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;

using ByteTables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: the remainder of byte b followed by k zero bytes.
constexpr ByteTables make_tables() {
  ByteTables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t remainder = b;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1u) != 0 ? kPolynomial : 0u);
    }
    tables[0][b] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t before = tables[k - 1][b];
      tables[k][b] = (before >> 8) ^ tables[0][before & 0xFFu];
    }
  }
  return tables;
}
constexpr ByteTables kTables = make_tables();

std::uint32_t step_table(std::uint32_t state, const unsigned char* at, std::size_t bytes) {
  while (bytes >= 8) {
    std::uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= std::uint64_t{at[i]} << (8 * i);
    word ^= state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xFFu];
    at += 8;
    bytes -= 8;
  }
  for (; bytes > 0; --bytes, ++at) state = (state >> 8) ^ kTables[0][(state ^ *at) & 0xFFu];
  return state;
}

#if defined(__x86_64__)
// The instruction has a latency of three cycles and starts one a cycle, so three parts of a block
// are summed side by side and put together: moving a remainder past kPartBytes zero bytes is linear
// over GF(2), a look-up per byte of the remainder.
constexpr std::size_t kPartBytes = 1024;
constexpr std::size_t kLineBytes = 64;
using ShiftTable = std::array<std::array<std::uint32_t, 256>, 4>;

ShiftTable make_shift_table() {
  std::array<std::uint32_t, 32> image{};
  const std::array<unsigned char, kPartBytes> zeros{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    image[bit] = step_table(1u << bit, zeros.data(), zeros.size());
  }
  ShiftTable table{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((b >> bit & 1u) != 0) table[k][b] ^= image[8 * k + bit];
      }
    }
  }
  return table;
}

std::uint64_t load_word(const unsigned char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// A hint: past the end of the memory, too, it does nothing.
void fetch(const unsigned char* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

__attribute__((target("sse4.2"))) std::uint32_t step_sse42(std::uint32_t state,
                                                           const unsigned char* at,
                                                           std::size_t bytes) {
  static const ShiftTable shift = make_shift_table();
  const auto shifted = [](std::uint64_t remainder) {
    return shift[0][remainder & 0xFFu] ^ shift[1][remainder >> 8 & 0xFFu] ^
           shift[2][remainder >> 16 & 0xFFu] ^ shift[3][remainder >> 24 & 0xFFu];
  };
  std::uint64_t a = state;
  while (bytes >= 3 * kPartBytes) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    for (std::size_t i = 0; i < kPartBytes; i += 8) {
      // Three short streams are no pattern that a processor fetches ahead by itself.
      if (i % kLineBytes == 0) {
        for (std::size_t part = 0; part < 3; ++part) fetch(at + (3 + part) * kPartBytes + i);
      }
      a = _mm_crc32_u64(a, load_word(at + i));
      b = _mm_crc32_u64(b, load_word(at + kPartBytes + i));
      c = _mm_crc32_u64(c, load_word(at + 2 * kPartBytes + i));
    }
    a = shifted(a) ^ b;
    a = shifted(a) ^ c;
    at += 3 * kPartBytes;
    bytes -= 3 * kPartBytes;
  }
  for (; bytes >= 8; bytes -= 8, at += 8) a = _mm_crc32_u64(a, load_word(at));
  std::uint32_t rest = static_cast<std::uint32_t>(a);
  for (; bytes > 0; --bytes, ++at) rest = _mm_crc32_u8(rest, *at);
  return rest;
}

bool has_sse42() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
#endif

}  // namespace

std::uint32_t crc32c_table(std::uint32_t previous, const void* data, std::size_t bytes) {
  return ~step_table(~previous, static_cast<const unsigned char*>(data), bytes);
}

std::uint32_t crc32c(std::uint32_t previous, const void* data, std::size_t bytes) {
#if defined(__x86_64__)
  if (has_sse42()) return ~step_sse42(~previous, static_cast<const unsigned char*>(data), bytes);
#endif
  return crc32c_table(previous, data, bytes);
}

}  // namespace muster::comm
