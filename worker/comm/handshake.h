// Connects this rank with every other rank of its epoch, and with nobody else. Runs before the
// communicator exists; the connections it returns are proven both ways.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"
#include "worker/comm/frame.h"
#include "worker/comm/memory_lane.h"
#include "worker/comm/socket.h"

namespace muster::comm {

/// A connection that has not proven itself may stand so long, on either side.
inline constexpr seconds kUnprovenFor{5};

struct PeerConnection {
  UniqueFd fd;                       ///< non-blocking; nothing after the handshake has been read
  std::uint32_t session = 0;         ///< FrameHeader::session on this connection
  std::unique_ptr<MemoryLane> lane;  ///< where frames go instead, if both are on one machine
};

struct Peers {
  std::vector<PeerConnection> by_rank;  ///< that of the own rank is empty
  std::uint64_t sent_bytes = 0;         ///< written for handshakes, refused ones included
};

/// Dials the lower ranks and accepts the higher ones on `listen_fd` until all stand. Blocks and
/// errors: as make_tcp_communicator. `refused` counts what was turned away.
Result<Peers> connect_peers(const TcpOptions& options, const JobKey& key, int listen_fd,
                            RefusedConnections& refused);

}  // namespace muster::comm
