// A TCP socket that listens.
#pragma once

#include <string>

#include "common/result.h"

namespace muster {

struct Listener {
  int fd = -1;  ///< non-blocking, close-on-exec; the caller's
  int port = 0;
};

/// On `address`, a numeric one, and `port`, 0 for any free one. As many as the system lets may wait
/// there to be accepted, 4,096 at most. Errors: kIo naming address and port (taken, not permitted),
/// with exit code kPort.
Result<Listener> listen_tcp(const std::string& address, int port);

/// Of a socket of either family, of TCP or UDP; 0 where it has none.
int bound_port(int fd);

}  // namespace muster
