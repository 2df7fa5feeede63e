// TCP sockets with the options that all connections share.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/file.h"
#include "common/result.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

/// "connect: Connection refused" for messages.
std::string errno_text(const char* call, int error);

/// Whether a call failed because this process or its machine has no descriptor, memory or port
/// left: the peers are not to blame, and waiting for them does not help.
bool is_own_lack(int error);

/// Starts connecting to `address`; the socket is non-blocking and becomes writable when done.
/// Blocks: no for a numeric host; for a name, as long as the resolver's own timeouts.
/// Errors: kUnavailable; kIo for what this process lacks itself.
Result<UniqueFd> start_connect(const PeerAddress& address);

/// A way to a peer on which its kernel has answered nothing for so long leads nowhere. The kernel
/// answers whatever its process does, or does not.
inline constexpr milliseconds kUnansweredMost{30'000};

/// Non-blocking, close-on-exec, without Nagle's delay; one on which nothing is under way fails
/// after kUnansweredMost (ETIMEDOUT). Errors: kIo.
Status set_connection_options(int fd);

/// Whether bytes are under way on the connection, and nothing was answered for kUnansweredMost. By
/// itself the kernel would try for a quarter of an hour.
bool is_unanswered(int fd);

/// How many connections wait to be accepted on `listen_fd`; 0 where the system does not tell.
std::size_t count_waiting(int listen_fd);
/// Accepts and closes the `most` of them that have waited longest, and gives how many those were.
/// Blocks: no, if `listen_fd` does not.
std::size_t close_waiting(int listen_fd, std::size_t most);

/// Whether both ends of a connection have one address: they are in one network namespace, so on one
/// machine.
bool has_one_address(int fd);

}  // namespace muster::comm
