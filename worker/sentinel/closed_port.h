// Whether a peer's own kernel says that nobody listens there any more. The system gives one error
// for that and for a firewall's refusal on the way, which says nothing about the peer; who said it
// stands in the socket's error queue alone.
#pragma once

#include "worker/sentinel/socket_address.h"

namespace muster::sentinel {

/// Has the errors that come back for the datagrams of `fd`, of the address family `family`, queued
/// with who sent them. From then on each makes one send or recv fail that has nothing to do with
/// it.
bool queue_errors(int fd, int family);

/// Takes the errors of `fd`, a connected datagram socket: whether one of them is a closed port (and
/// not a host, a network or a protocol that cannot be reached, or a datagram that is too long) and
/// comes from the address of `peer` itself. At most 16 of the queue; then there is more to take.
/// Blocks: no.
bool take_closed_port(int fd, const SocketAddress& peer);

}  // namespace muster::sentinel
