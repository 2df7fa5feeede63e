#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "worker/sentinel/mesh.h"

namespace muster::sentinel {
namespace {

constexpr std::array<char, 4> kMagic{'M', 'S', 'M', '1'};
constexpr std::array<char, 4> kRefusalMagic{'M', 'S', 'R', '1'};
constexpr std::size_t kMacBytes = 32;
constexpr int kMaxSlots = 4'096;
constexpr std::string_view kPurpose = "muster sentinel mesh";

std::array<unsigned char, kMacBytes> hmac(std::span<const unsigned char> key,
                                          std::span<const unsigned char> text) {
  std::array<unsigned char, kMacBytes> mac{};
  unsigned int length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   text.data(), text.size(), mac.data(), &length);
  MUSTER_CHECK(made != nullptr && length == mac.size());
  return mac;
}

std::span<const unsigned char> chars(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

}  // namespace

Echo echo_of(std::span<const std::byte> datagram) {
  Echo echo{};
  MUSTER_CHECK(datagram.size() >= kMagic.size() + kMacBytes);
  std::memcpy(echo.data(), datagram.data() + kMagic.size(), echo.size());
  return echo;
}

std::array<std::byte, kRefusalBytes> make_refusal(const Echo& echo) {
  std::array<std::byte, kRefusalBytes> out{};
  std::memcpy(out.data(), kRefusalMagic.data(), kRefusalMagic.size());
  std::memcpy(out.data() + kRefusalMagic.size(), echo.data(), echo.size());
  return out;
}

std::optional<Echo> read_refusal(std::span<const std::byte> datagram) {
  if (datagram.size() != kRefusalBytes ||
      std::memcmp(datagram.data(), kRefusalMagic.data(), kRefusalMagic.size()) != 0) {
    return std::nullopt;
  }
  Echo echo{};
  std::memcpy(echo.data(), datagram.data() + kRefusalMagic.size(), echo.size());
  return echo;
}

// A key of its own, so that no proof of a connection is ever a datagram's.
MeshSeal::MeshSeal(const std::string& job_key, std::string job_uid)
    : key_(hmac(chars(job_key), chars(kPurpose))), job_uid_(std::move(job_uid)) {}

MeshSeal::Mac MeshSeal::make_mac(std::span<const std::byte> message) const {
  std::vector<unsigned char> text(job_uid_.begin(), job_uid_.end());
  text.push_back(0);
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  text.insert(text.end(), bytes, bytes + message.size());
  return hmac(key_, text);
}

std::vector<std::byte> MeshSeal::seal(std::span<const std::byte> message) const {
  const Mac mac = make_mac(message);
  std::vector<std::byte> out(kMagic.size() + mac.size() + message.size());
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  std::memcpy(out.data() + kMagic.size(), mac.data(), mac.size());
  if (!message.empty()) {
    std::memcpy(out.data() + kMagic.size() + mac.size(), message.data(), message.size());
  }
  return out;
}

std::optional<Message> MeshSeal::open(std::span<const std::byte> datagram, MeshDrops& drops) {
  const std::size_t head = kMagic.size() + kMacBytes;
  if (datagram.size() < head || std::memcmp(datagram.data(), kMagic.data(), kMagic.size()) != 0) {
    ++drops.garbage;
    return std::nullopt;
  }
  const std::span<const std::byte> body = datagram.subspan(head);
  const Mac mac = make_mac(body);
  if (CRYPTO_memcmp(mac.data(), datagram.data() + kMagic.size(), mac.size()) != 0) {
    ++drops.unauthorized;
    return std::nullopt;
  }
  auto message = decode_message(body);
  if (!message) {
    ++drops.garbage;
    return std::nullopt;
  }
  if (!take_once(message->from, message->sequence)) {
    ++drops.repeated;
    return std::nullopt;
  }
  return std::move(*message);
}

/// The window of a sender; none of one that newer attempts at its slot have made forget, because
/// then nothing tells what was taken of it before.
MeshSeal::Window* MeshSeal::window_of(WorkerId from) {
  if (const auto known = windows_.find(from); known != windows_.end()) return &known->second;
  const auto first = windows_.lower_bound({from.slot, 0});
  const auto end = windows_.lower_bound({from.slot + 1, 0});
  if (std::distance(first, end) >= kAttemptsKept) {
    if (from < first->first) return nullptr;
    windows_.erase(first);
  }
  return &windows_[from];
}

bool MeshSeal::take_once(WorkerId from, std::uint64_t sequence) {
  if (from.slot < 0 || from.slot >= kMaxSlots) return false;
  Window* const found = window_of(from);
  if (found == nullptr) return false;
  Window& window = *found;
  if (sequence > window.newest) {
    const std::uint64_t ahead = sequence - window.newest;
    window.taken = ahead >= 64 ? 1 : (window.taken << ahead) | 1;
    window.newest = sequence;
    return true;
  }
  const std::uint64_t behind = window.newest - sequence;
  if (behind >= 64 || (window.taken >> behind & 1) != 0) return false;
  window.taken |= std::uint64_t{1} << behind;
  return true;
}

}  // namespace muster::sentinel
