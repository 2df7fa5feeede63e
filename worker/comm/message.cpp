#include "worker/comm/message.h"

#include <algorithm>
#include <cstring>

#include "worker/comm/crc32c.h"

namespace muster::comm {

void Message::add(void* data, std::size_t bytes) {
  if (bytes == 0) return;
  MUSTER_CHECK(data != nullptr);
  pieces_.push_back({data, bytes});
  bytes_ += bytes;
}

std::size_t Message::collect(PiecePosition position, std::size_t bytes, std::size_t out_max,
                             std::vector<iovec>& out) const {
  std::size_t left = bytes;
  while (left > 0 && position.piece < pieces_.size() && out.size() < out_max) {
    const iovec& piece = pieces_[position.piece];
    const std::size_t here = std::min(left, piece.iov_len - position.offset);
    out.push_back({static_cast<std::byte*>(piece.iov_base) + position.offset, here});
    left -= here;
    position = {position.piece + 1, 0};
  }
  return bytes - left;
}

PiecePosition Message::advance(PiecePosition position, std::size_t bytes) const {
  while (bytes > 0) {
    MUSTER_CHECK(position.piece < pieces_.size());
    const std::size_t here = pieces_[position.piece].iov_len - position.offset;
    if (bytes < here) return {position.piece, position.offset + bytes};
    bytes -= here;
    position = {position.piece + 1, 0};
  }
  return position;
}

std::uint32_t Message::crc(PiecePosition position, std::size_t bytes) const {
  std::uint32_t sum = 0;
  while (bytes > 0) {
    MUSTER_CHECK(position.piece < pieces_.size());
    const iovec& piece = pieces_[position.piece];
    const std::size_t here = std::min(bytes, piece.iov_len - position.offset);
    sum = crc32c(sum, static_cast<const std::byte*>(piece.iov_base) + position.offset, here);
    bytes -= here;
    position = {position.piece + 1, 0};
  }
  return sum;
}

MessagesByPeer by_peer(int rank, int size, std::span<const SendBuffer> sends,
                       std::span<const ReceiveBuffer> receives) {
  const auto index = [&](int peer) {
    MUSTER_CHECK_MSG(peer >= 0 && peer < size && peer != rank, "a transfer with no other rank");
    return static_cast<std::size_t>(peer);
  };
  MessagesByPeer result;
  result.sends.resize(static_cast<std::size_t>(size));
  result.receives.resize(static_cast<std::size_t>(size));
  // Sends are only read from; iovec has no const form.
  for (const SendBuffer& s : sends) {
    result.sends[index(s.peer)].add(const_cast<void*>(s.data), s.bytes);
  }
  for (const ReceiveBuffer& r : receives) result.receives[index(r.peer)].add(r.data, r.bytes);
  return result;
}

void copy(const Message& from, const Message& to) {
  MUSTER_CHECK(from.bytes() == to.bytes());
  PiecePosition source;
  PiecePosition target;
  std::vector<iovec> read;
  std::vector<iovec> write;
  for (std::size_t done = 0; done < from.bytes();) {
    read.clear();
    write.clear();
    from.collect(source, from.bytes() - done, 1, read);
    to.collect(target, from.bytes() - done, 1, write);
    const std::size_t bytes = std::min(read[0].iov_len, write[0].iov_len);
    std::memcpy(write[0].iov_base, read[0].iov_base, bytes);
    source = from.advance(source, bytes);
    target = to.advance(target, bytes);
    done += bytes;
  }
}

}  // namespace muster::comm
