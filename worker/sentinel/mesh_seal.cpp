#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "worker/sentinel/mesh.h"

namespace muster::sentinel {
namespace {

constexpr std::array<char, 4> kMagic{'M', 'S', 'M', '2'};
constexpr std::array<char, 4> kRefusalMagic{'M', 'S', 'R', '1'};
constexpr std::size_t kMacBytes = 32;
constexpr std::size_t kReceiverBytes = 8;
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

std::array<std::byte, kReceiverBytes> bytes_of(WorkerId receiver) {
  std::array<std::byte, kReceiverBytes> bytes{};
  for (std::size_t i = 0; i < kReceiverBytes; ++i) {
    const auto number = static_cast<std::uint32_t>(i < 4 ? receiver.slot : receiver.attempt);
    bytes[i] = static_cast<std::byte>(number >> (8 * (i % 4)));
  }
  return bytes;
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
MeshSeal::MeshSeal(const std::string& job_key, std::string job_uid, WorkerId self)
    : key_(hmac(chars(job_key), chars(kPurpose))), job_uid_(std::move(job_uid)), self_(self) {}

MeshSeal::Mac MeshSeal::make_mac(std::span<const std::byte> receiver_and_message) const {
  std::vector<unsigned char> text(job_uid_.begin(), job_uid_.end());
  text.push_back(0);
  const auto* bytes = reinterpret_cast<const unsigned char*>(receiver_and_message.data());
  text.insert(text.end(), bytes, bytes + receiver_and_message.size());
  return hmac(key_, text);
}

std::vector<std::byte> MeshSeal::seal(WorkerId to, std::span<const std::byte> message) const {
  const std::size_t head = kMagic.size() + kMacBytes;
  std::vector<std::byte> out(head);
  out.reserve(head + kReceiverBytes + message.size());
  const auto receiver = bytes_of(to);
  out.insert(out.end(), receiver.begin(), receiver.end());
  out.insert(out.end(), message.begin(), message.end());
  const Mac mac = make_mac(std::span(out).subspan(head));
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  std::memcpy(out.data() + kMagic.size(), mac.data(), mac.size());
  return out;
}

std::optional<Message> MeshSeal::open(std::span<const std::byte> datagram, MeshDrops& drops) {
  const std::size_t head = kMagic.size() + kMacBytes;
  if (datagram.size() < head + kReceiverBytes ||
      std::memcmp(datagram.data(), kMagic.data(), kMagic.size()) != 0) {
    ++drops.garbage;
    return std::nullopt;
  }
  const std::span<const std::byte> signed_part = datagram.subspan(head);
  const std::span<const std::byte> receiver = signed_part.first(kReceiverBytes);
  // Before the key is looked at: who was here before may have been of another job, and neither is
  // this worker's refusal meant for those who write to him.
  if (!std::ranges::equal(receiver, bytes_of(self_))) {
    ++drops.misdirected;
    return std::nullopt;
  }
  const Mac mac = make_mac(signed_part);
  if (CRYPTO_memcmp(mac.data(), datagram.data() + kMagic.size(), mac.size()) != 0) {
    ++drops.unauthorized;
    return std::nullopt;
  }
  auto message = decode_message(signed_part.subspan(kReceiverBytes));
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
