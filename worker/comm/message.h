// One message as a list of caller-owned pieces, walked by the transports in order.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

/// A place in a list of pieces.
struct PiecePosition {
  std::size_t piece = 0;
  std::size_t offset = 0;  ///< inside the piece; always less than its length, or piece is the end
};

/// All buffers of one group to or from one peer, in the order given.
class Message {
 public:
  /// Adds `bytes` bytes; empty pieces are left out.
  void add(void* data, std::size_t bytes);
  std::size_t bytes() const { return bytes_; }

  /// Appends up to `bytes` bytes from `position` to `out`, in at most `out_max` entries in all;
  /// returns how many bytes that is.
  std::size_t collect(PiecePosition position, std::size_t bytes, std::size_t out_max,
                      std::vector<iovec>& out) const;
  PiecePosition advance(PiecePosition position, std::size_t bytes) const;
  /// CRC32C of `bytes` bytes from `position`.
  std::uint32_t crc(PiecePosition position, std::size_t bytes) const;

 private:
  std::vector<iovec> pieces_;
  std::size_t bytes_ = 0;
};

/// The sends and receives of one start() by peer. Index: rank.
struct MessagesByPeer {
  std::vector<Message> sends;
  std::vector<Message> receives;
};
/// Requires every peer in [0, size) and not `rank`.
MessagesByPeer by_peer(int rank, int size, std::span<const SendBuffer> sends,
                       std::span<const ReceiveBuffer> receives);

/// Numbers of the groups that one rank starts, by which both ends see that they mean the same one.
class GroupNumbers {
 public:
  /// The channel in the highest byte, and below it how many groups that one has had.
  std::uint64_t take(int channel) {
    MUSTER_CHECK(channel >= 0 && channel < kChannels);
    const auto index = static_cast<std::size_t>(channel);
    return (static_cast<std::uint64_t>(channel) << 56) | ++taken_[index];
  }

 private:
  std::array<std::uint64_t, kChannels> taken_{};
};

/// Copies a message into another of the same length.
void copy(const Message& from, const Message& to);

}  // namespace muster::comm
