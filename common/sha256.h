// SHA-256 through OpenSSL, for the identity of parameters, data and checkpoints.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace muster {

using Sha256Digest = std::array<unsigned char, 32>;

/// Digest of one buffer.
Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view bytes);

/// Digest of a stream of pieces. Not copyable; finish() may be called once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  Sha256Digest finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Lower-case hexadecimal.
std::string to_hex(std::span<const unsigned char> bytes);

}  // namespace muster
