// Views from the sentinel to a trainer: one view is cut into packets that a socket takes whole.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "worker/sentinel/channel.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} * 1024;

struct PacketHead {
  std::uint32_t serial = 0;  ///< of the view, so that pieces of two are never mixed
  std::uint32_t total = 0;   ///< bytes of the whole view
  std::uint32_t offset = 0;  ///< of this piece
};

struct ViewHead {
  std::int64_t epoch = 0;
  std::int32_t rank = -1;
  std::uint32_t count = 0;
  std::uint8_t urgent = 0, stop = 0, leaves = 0;
  std::array<std::uint8_t, 5> unused{};
};

struct PeerHead {
  std::int64_t incarnation = 0;
  std::int32_t port = 0, slot = 0, local_rank = 0;
  std::uint32_t host_bytes = 0;
  std::uint64_t domain = 0;
};

constexpr std::size_t kMaxToldViewBytes =
    sizeof(ViewHead) + kMaxViewPeers * (sizeof(PeerHead) + kMaxHostBytes);

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

/// Whether there were enough bytes; `in` then begins after them.
template <typename T>
bool take(std::span<const std::byte>& in, T& value) {
  if (in.size() < sizeof value) return false;
  std::memcpy(&value, in.data(), sizeof value);
  in = in.subspan(sizeof value);
  return true;
}

}  // namespace

bool concerns(const ViewMessage& next, const ViewMessage& present, const ViewMessage& before) {
  if (before.epoch <= present.epoch) return true;
  return !std::all_of(present.peers.begin(), present.peers.end(), [&](const ViewPeer& one) {
    return std::find(next.peers.begin(), next.peers.end(), one) != next.peers.end();
  });
}

std::vector<std::byte> encode(const ViewMessage& view) {
  ViewHead head;
  head.epoch = view.epoch;
  head.rank = view.rank;
  head.count = static_cast<std::uint32_t>(std::min(view.peers.size(), kMaxViewPeers));
  head.urgent = view.urgent ? 1 : 0;
  head.stop = view.stop ? 1 : 0;
  head.leaves = view.leaves ? 1 : 0;
  std::vector<std::byte> bytes;
  put(bytes, head);
  for (std::size_t i = 0; i < head.count; ++i) {
    const ViewPeer& peer = view.peers[i];
    PeerHead one;
    one.incarnation = peer.incarnation;
    one.port = peer.port;
    one.slot = peer.slot;
    one.local_rank = peer.local_rank;
    one.domain = peer.domain;
    one.host_bytes = static_cast<std::uint32_t>(std::min(peer.host.size(), kMaxHostBytes));
    put(bytes, one);
    const auto* host = reinterpret_cast<const std::byte*>(peer.host.data());
    bytes.insert(bytes.end(), host, host + one.host_bytes);
  }
  return bytes;
}

Result<ViewMessage> decode_view(std::span<const std::byte> in) {
  const Error corrupt(ErrorCode::kCorrupt, "a sentinel's view of " + std::to_string(in.size()) +
                                               " bytes has no known form");
  ViewHead head;
  if (!take(in, head) || head.count > kMaxViewPeers) return corrupt;
  ViewMessage view;
  view.epoch = head.epoch;
  view.urgent = head.urgent != 0;
  view.stop = head.stop != 0;
  view.leaves = head.leaves != 0;
  view.rank = head.rank;
  for (std::uint32_t i = 0; i < head.count; ++i) {
    PeerHead one;
    if (!take(in, one) || one.host_bytes > kMaxHostBytes || one.host_bytes > in.size()) {
      return corrupt;
    }
    std::string host(reinterpret_cast<const char*>(in.data()), one.host_bytes);
    in = in.subspan(one.host_bytes);
    view.peers.push_back(
        {std::move(host), one.port, one.slot, one.local_rank, one.incarnation, one.domain});
  }
  if (!in.empty() || view.rank < -1 || view.rank >= static_cast<int>(view.peers.size())) {
    return corrupt;
  }
  return view;
}

void ViewSender::set(ViewMessage view) {
  view.urgent = view.urgent || (has_unsent() && is_urgent_);
  is_urgent_ = view.urgent;
  bytes_ = encode(view);
  sent_ = 0;
  ++serial_;
  pump();
}

void ViewSender::pump() {
  while (has_unsent()) {
    const std::size_t piece = std::min(bytes_.size() - sent_, kPieceBytes);
    std::vector<std::byte> packet;
    put(packet, PacketHead{serial_, static_cast<std::uint32_t>(bytes_.size()),
                           static_cast<std::uint32_t>(sent_)});
    packet.insert(packet.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent_),
                  bytes_.begin() + static_cast<std::ptrdiff_t>(sent_ + piece));
    if (send(fd_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
      if (!is_full) sent_ = bytes_.size();  // the trainer is gone: nobody is left to be told
      return;
    }
    sent_ += piece;
  }
}

Result<std::optional<ViewMessage>> ViewReader::wait(milliseconds timeout) {
  pollfd ready{fd_, POLLIN, 0};
  int left_ms = static_cast<int>(timeout.count());
  while (poll(&ready, 1, left_ms) > 0) {
    auto view = take_packet();
    if (!view || *view) return view;
    left_ms = 0;  // pieces of one view come together; the rest is for the next call
  }
  return std::optional<ViewMessage>();
}

Result<std::optional<ViewMessage>> ViewReader::take_packet() {
  std::array<std::byte, sizeof(PacketHead) + kPieceBytes> buffer;
  const ssize_t got = recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    return std::optional<ViewMessage>();
  }
  if (got <= 0) return Error(ErrorCode::kUnavailable, "the sentinel is gone");
  std::span<const std::byte> in(buffer.data(), static_cast<std::size_t>(got));
  PacketHead head;
  if (!take(in, head) || head.total > kMaxToldViewBytes || head.offset + in.size() > head.total) {
    return Error(ErrorCode::kCorrupt, "a sentinel's packet has no known form");
  }
  if (head.offset == 0) {
    bytes_.clear();
    serial_ = head.serial;
  }
  if (head.serial != serial_ || head.offset != bytes_.size()) {
    return Error(ErrorCode::kCorrupt, "a sentinel's view lacks a piece");
  }
  bytes_.insert(bytes_.end(), in.begin(), in.end());
  if (bytes_.size() < head.total) return std::optional<ViewMessage>();
  MUSTER_ASSIGN_OR_RETURN(ViewMessage view, decode_view(bytes_));
  bytes_.clear();
  return std::optional<ViewMessage>(std::move(view));
}

}  // namespace muster::sentinel
