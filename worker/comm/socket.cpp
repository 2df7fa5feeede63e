#include "worker/comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace muster::comm {
namespace {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

Result<AddressList> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) {
    return Error(ErrorCode::kUnavailable, "resolve " + host + ": " + gai_strerror(code));
  }
  return AddressList(found);
}

/// Of a call that has just failed on the way to a peer.
Error call_failed(const char* call) {
  const int error = errno;
  return Error(is_own_lack(error) ? ErrorCode::kIo : ErrorCode::kUnavailable,
               errno_text(call, error));
}

}  // namespace

bool is_own_lack(int error) {
  // The last is what a dial meets when no port is left to dial from.
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
         error == EADDRNOTAVAIL;
}

std::string errno_text(const char* call, int error) {
  return std::string(call) + ": " + std::generic_category().message(error);
}

Status set_connection_options(int fd) {
  const auto set = [&](int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof value) == 0;
  };
  constexpr int kQuietSeconds = 10, kProbes = 4;
  constexpr int kProbeSeconds = (kUnansweredMost / seconds{1} - kQuietSeconds) / kProbes;
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
      !set(IPPROTO_TCP, TCP_NODELAY, 1) || !set(SOL_SOCKET, SO_KEEPALIVE, 1) ||
      !set(IPPROTO_TCP, TCP_KEEPIDLE, kQuietSeconds) ||
      !set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds) || !set(IPPROTO_TCP, TCP_KEEPCNT, kProbes)) {
    return Error(ErrorCode::kIo, errno_text("set socket options", errno));
  }
  return {};
}

bool is_unanswered(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  // A peer that reads nothing has closed its window, and then no byte is under way.
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_unacked > 0 &&
         milliseconds{info.tcpi_last_ack_recv} >= kUnansweredMost;
}

Result<UniqueFd> start_connect(const PeerAddress& address) {
  auto resolved = resolve(address.host, address.port, AI_NUMERICHOST);
  if (!resolved) resolved = resolve(address.host, address.port, 0);
  if (!resolved) return resolved.error();
  const addrinfo& first = **resolved;
  UniqueFd fd(socket(first.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return call_failed("socket");
  MUSTER_RETURN_IF_ERROR(set_connection_options(fd.get()));
  if (connect(fd.get(), first.ai_addr, first.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return call_failed("connect");
  }
  return fd;
}

std::size_t count_waiting(int listen_fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  const bool is_known = getsockopt(listen_fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
                        info.tcpi_state == TCP_LISTEN;
  return is_known ? info.tcpi_unacked : 0;  // Of a socket that listens this is what it counts.
}

std::size_t close_waiting(int listen_fd, std::size_t most) {
  std::size_t closed = 0;
  while (closed < most) {
    const UniqueFd fd(accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) break;
    ++closed;
  }
  return closed;
}

bool has_one_address(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof own, peer_length = sizeof peer;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 ||
      own.ss_family != peer.ss_family) {
    return false;
  }
  if (own.ss_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(&own)->sin6_addr,
                       &reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr,
                       sizeof(in6_addr)) == 0;
  }
  return reinterpret_cast<const sockaddr_in*>(&own)->sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr.s_addr;
}

}  // namespace muster::comm
