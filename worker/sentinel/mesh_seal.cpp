#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "worker/sentinel/mesh.h"

namespace muster::sentinel {
namespace {

constexpr std::array<char, 4> kMagic{'M', 'S', 'M', '2'};
constexpr std::array<char, 4> kPieceMagic{'M', 'S', 'P', '1'};
constexpr std::array<char, 4> kRefusalMagic{'M', 'S', 'R', '1'};
constexpr std::size_t kMacBytes = 32;
constexpr std::size_t kReceiverBytes = 8;
constexpr std::size_t kSealBytes = kMagic.size() + kMacBytes + kReceiverBytes;
constexpr std::size_t kMostUncutBytes = kUncutDatagramBytes - kSealBytes;
constexpr std::size_t kPieceHeadBytes = 20;
constexpr std::size_t kMostPieceBytes = kMostUncutBytes - kPieceHeadBytes;
constexpr std::size_t kMostPieces = (kMaxMessageBytes + kMostPieceBytes - 1) / kMostPieceBytes;
/// More than a gang has members, each of whom may be about to send one.
constexpr std::size_t kMostUnfinished = 1'024;
constexpr int kMaxSlots = 4'096;
constexpr std::string_view kPurpose = "muster sentinel mesh";
constexpr std::string_view kPiecePurpose = "muster sentinel mesh, in pieces";

std::array<unsigned char, kMacBytes> hmac(std::span<const unsigned char> key,
                                          std::span<const unsigned char> text) {
  std::array<unsigned char, kMacBytes> mac{};
  unsigned int length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   text.data(), text.size(), mac.data(), &length);
  MUSTER_CHECK(made != nullptr && length == mac.size());
  return mac;
}

void put_little(std::span<std::byte> out, std::uint64_t number) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(number >> (8 * i));
}

std::uint64_t get_little(std::span<const std::byte> in) {
  std::uint64_t number = 0;
  for (std::size_t i = in.size(); i-- > 0;) number = number << 8 | std::to_integer<unsigned>(in[i]);
  return number;
}

std::array<std::byte, kReceiverBytes> bytes_of(WorkerId worker) {
  std::array<std::byte, kReceiverBytes> bytes{};
  put_little(std::span(bytes).first(4), static_cast<std::uint32_t>(worker.slot));
  put_little(std::span(bytes).last(4), static_cast<std::uint32_t>(worker.attempt));
  return bytes;
}

bool begins_with(std::span<const std::byte> datagram, const std::array<char, 4>& magic) {
  return datagram.size() >= kSealBytes &&
         std::memcmp(datagram.data(), magic.data(), magic.size()) == 0;
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
    : key_(hmac(chars(job_key), chars(kPurpose))),
      piece_key_(hmac(chars(job_key), chars(kPiecePurpose))),
      job_uid_(std::move(job_uid)),
      self_(self) {}

MeshSeal::Mac MeshSeal::make_mac(const Mac& key,
                                 std::span<const std::byte> receiver_and_message) const {
  std::vector<unsigned char> text(job_uid_.begin(), job_uid_.end());
  text.push_back(0);
  const auto* bytes = reinterpret_cast<const unsigned char*>(receiver_and_message.data());
  text.insert(text.end(), bytes, bytes + receiver_and_message.size());
  return hmac(key, text);
}

std::vector<std::byte> MeshSeal::seal_one(const Form& form, WorkerId to,
                                          std::span<const std::byte> text) const {
  const std::size_t head = kMagic.size() + kMacBytes;
  std::vector<std::byte> out(head);
  out.reserve(kSealBytes + text.size());
  const auto receiver = bytes_of(to);
  out.insert(out.end(), receiver.begin(), receiver.end());
  out.insert(out.end(), text.begin(), text.end());
  const Mac mac = make_mac(form.key, std::span(out).subspan(head));
  std::memcpy(out.data(), form.magic.data(), form.magic.size());
  std::memcpy(out.data() + kMagic.size(), mac.data(), mac.size());
  return out;
}

std::vector<std::vector<std::byte>> MeshSeal::seal(WorkerId to, std::uint64_t sequence,
                                                   std::span<const std::byte> message) const {
  const auto heard = windows_.find(to);
  const bool takes_pieces = heard == windows_.end() || heard->second.newest >= kTakesPieces;
  if (message.size() <= kMostUncutBytes || !takes_pieces) {
    return {seal_one({kMagic, key_}, to, message)};
  }
  const std::size_t count = (message.size() + kMostPieceBytes - 1) / kMostPieceBytes;
  MUSTER_CHECK(count <= kMostPieces);
  std::vector<std::byte> piece(kPieceHeadBytes);
  const std::span<std::byte> head(piece);
  std::ranges::copy(bytes_of(self_), head.begin());
  put_little(head.subspan(8, 8), sequence);
  put_little(head.subspan(18, 2), count);
  std::vector<std::vector<std::byte>> datagrams;
  for (std::size_t i = 0; i < count; ++i) {
    const auto rest = message.subspan(i * kMostPieceBytes);
    const auto part = rest.first(std::min(rest.size(), kMostPieceBytes));
    piece.resize(kPieceHeadBytes);
    put_little(std::span(piece).subspan(16, 2), i);
    piece.insert(piece.end(), part.begin(), part.end());
    datagrams.push_back(seal_one({kPieceMagic, piece_key_}, to, piece));
  }
  return datagrams;
}

std::optional<Message> MeshSeal::open(std::span<const std::byte> datagram, MeshDrops& drops) {
  const bool is_piece = begins_with(datagram, kPieceMagic);
  if (!is_piece && !begins_with(datagram, kMagic)) {
    ++drops.garbage;
    return std::nullopt;
  }
  const std::span<const std::byte> signed_part = datagram.subspan(kMagic.size() + kMacBytes);
  const std::span<const std::byte> receiver = signed_part.first(kReceiverBytes);
  // Before the key is looked at: who was here before may have been of another job, and neither is
  // this worker's refusal meant for those who write to him.
  if (!std::ranges::equal(receiver, bytes_of(self_))) {
    ++drops.misdirected;
    return std::nullopt;
  }
  const Mac mac = make_mac(is_piece ? piece_key_ : key_, signed_part);
  if (CRYPTO_memcmp(mac.data(), datagram.data() + kMagic.size(), mac.size()) != 0) {
    ++drops.unauthorized;
    return std::nullopt;
  }
  std::span<const std::byte> text = signed_part.subspan(kReceiverBytes);
  std::vector<std::byte> whole;
  if (is_piece) {
    whole = take_piece(text, drops);
    if (whole.empty()) return std::nullopt;
    text = whole;
  }
  auto message = decode_message(text);
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

/// The message that `in` was the last missing piece of; empty when it is none's.
std::vector<std::byte> MeshSeal::take_piece(std::span<const std::byte> in, MeshDrops& drops) {
  if (in.size() <= kPieceHeadBytes || in.size() > kPieceHeadBytes + kMostPieceBytes) {
    ++drops.garbage;
    return {};
  }
  const WorkerId from{static_cast<int>(get_little(in.first(4))),
                      static_cast<int>(get_little(in.subspan(4, 4)))};
  const std::uint64_t sequence = get_little(in.subspan(8, 8));
  const std::size_t index = get_little(in.subspan(16, 2)), count = get_little(in.subspan(18, 2));
  if (count < 2 || count > kMostPieces || index >= count) {
    ++drops.garbage;
    return {};
  }
  const auto window = windows_.find(from);
  auto begun = unfinished_.find(from);
  const bool is_late = begun != unfinished_.end() && sequence < begun->second.sequence;
  if (is_late || (window != windows_.end() && window->second.has_taken(sequence))) {
    ++drops.repeated;
    return {};
  }
  if (begun == unfinished_.end() || sequence > begun->second.sequence) {
    // What is lost with them is sent again where it is still wanted.
    if (begun == unfinished_.end() && unfinished_.size() >= kMostUnfinished) unfinished_.clear();
    begun = unfinished_.insert_or_assign(from, Unfinished{sequence, {}}).first;
    begun->second.pieces.resize(count);
  }
  auto& pieces = begun->second.pieces;
  if (pieces.size() != count || !pieces[index].empty()) {
    ++(pieces.size() != count ? drops.garbage : drops.repeated);
    return {};
  }
  pieces[index].assign(in.begin() + kPieceHeadBytes, in.end());
  std::vector<std::byte> whole;
  for (const auto& piece : pieces) {
    if (piece.empty()) return {};
    whole.insert(whole.end(), piece.begin(), piece.end());
  }
  unfinished_.erase(begun);
  return whole;
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

bool MeshSeal::Window::has_taken(std::uint64_t sequence) const {
  const std::uint64_t behind = newest - sequence;
  return sequence <= newest && (behind >= 64 || (taken >> behind & 1) != 0);
}

bool MeshSeal::take_once(WorkerId from, std::uint64_t sequence) {
  if (from.slot < 0 || from.slot >= kMaxSlots) return false;
  Window* const found = window_of(from);
  if (found == nullptr) return false;
  Window& window = *found;
  if (window.has_taken(sequence)) return false;
  if (sequence > window.newest) {
    const std::uint64_t ahead = sequence - window.newest;
    window.taken = ahead >= 64 ? 1 : (window.taken << ahead) | 1;
    window.newest = sequence;
    return true;
  }
  window.taken |= std::uint64_t{1} << (window.newest - sequence);
  return true;
}

}  // namespace muster::sentinel
