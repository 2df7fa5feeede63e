// Collectives as groups of sends and receives; they add nothing and keep nothing.
#include <cstring>

#include "worker/comm/communicator.h"

namespace muster::comm {
namespace {

Status run(Communicator& communicator, std::uint64_t step, std::span<const SendBuffer> sends,
           std::span<const ReceiveBuffer> receives, MonoTime deadline) {
  MUSTER_ASSIGN_OR_RETURN(auto work, communicator.start(step, Memory::kHost, sends, receives));
  return work->wait(deadline);
}

}  // namespace

Status all_to_all(Communicator& communicator, std::uint64_t step,
                  std::span<const std::span<const std::byte>> sends,
                  std::span<const std::span<std::byte>> receives, MonoTime deadline) {
  const auto size = static_cast<std::size_t>(communicator.size());
  const auto own = static_cast<std::size_t>(communicator.rank());
  MUSTER_CHECK_MSG(sends.size() == size && receives.size() == size, "one span per rank");
  MUSTER_CHECK_MSG(sends[own].size() == receives[own].size(), "the own piece changes its length");
  std::vector<SendBuffer> outgoing;
  std::vector<ReceiveBuffer> incoming;
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == own) continue;
    const int to = static_cast<int>(peer);
    outgoing.push_back({to, sends[peer].data(), sends[peer].size()});
    incoming.push_back({to, receives[peer].data(), receives[peer].size()});
  }
  MUSTER_ASSIGN_OR_RETURN(auto work, communicator.start(step, Memory::kHost, outgoing, incoming));
  if (!sends[own].empty() && sends[own].data() != receives[own].data()) {
    std::memcpy(receives[own].data(), sends[own].data(), sends[own].size());
  }
  return work->wait(deadline);
}

Status all_gather(Communicator& communicator, std::uint64_t step, std::span<std::byte> buffer,
                  std::span<const std::size_t> offsets, MonoTime deadline) {
  const auto size = static_cast<std::size_t>(communicator.size());
  const auto own = static_cast<std::size_t>(communicator.rank());
  MUSTER_CHECK_MSG(offsets.size() == size + 1, "one piece per rank");
  const auto piece = [&](std::size_t rank) {
    MUSTER_CHECK_MSG(offsets[rank] <= offsets[rank + 1] && offsets[rank + 1] <= buffer.size(),
                     "offsets must ascend inside the buffer");
    return buffer.subspan(offsets[rank], offsets[rank + 1] - offsets[rank]);
  };
  std::vector<SendBuffer> outgoing;
  std::vector<ReceiveBuffer> incoming;
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (peer == own) continue;
    const int to = static_cast<int>(peer);
    outgoing.push_back({to, piece(own).data(), piece(own).size()});
    incoming.push_back({to, piece(peer).data(), piece(peer).size()});
  }
  return run(communicator, step, outgoing, incoming, deadline);
}

Status broadcast(Communicator& communicator, std::uint64_t step, int root,
                 std::span<std::byte> buffer, MonoTime deadline) {
  MUSTER_CHECK(root >= 0 && root < communicator.size());
  std::vector<SendBuffer> outgoing;
  std::vector<ReceiveBuffer> incoming;
  if (communicator.rank() == root) {
    for (int peer = 0; peer < communicator.size(); ++peer) {
      if (peer != root) outgoing.push_back({peer, buffer.data(), buffer.size()});
    }
  } else {
    incoming.push_back({root, buffer.data(), buffer.size()});
  }
  return run(communicator, step, outgoing, incoming, deadline);
}

Status barrier(Communicator& communicator, std::uint64_t step, MonoTime deadline) {
  const std::byte here{1};
  std::vector<std::byte> theirs(static_cast<std::size_t>(communicator.size()));
  std::vector<SendBuffer> outgoing;
  std::vector<ReceiveBuffer> incoming;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    outgoing.push_back({peer, &here, 1});
    incoming.push_back({peer, &theirs[static_cast<std::size_t>(peer)], 1});
  }
  return run(communicator, step, outgoing, incoming, deadline);
}

}  // namespace muster::comm
