#include "worker/sentinel/closed_port.h"

#include <linux/errqueue.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace muster::sentinel {
namespace {

/// Errors that are looked at at a time: whoever forges them has no more of the sentinel's time.
constexpr int kMaxErrors = 16;
constexpr std::size_t kControlBytes = 512;

bool is_port_unreachable(const sock_extended_err& error) {
  if (error.ee_origin == SO_EE_ORIGIN_ICMP) {
    return error.ee_type == ICMP_DEST_UNREACH && error.ee_code == ICMP_PORT_UNREACH;
  }
  return error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMP6_DST_UNREACH &&
         error.ee_code == ICMP6_DST_UNREACH_NOPORT;
}

/// `header` has the error, and behind it the address of who sent it.
bool says_closed(const cmsghdr& header, const SocketAddress& peer) {
  const bool is_error = (header.cmsg_level == SOL_IP && header.cmsg_type == IP_RECVERR) ||
                        (header.cmsg_level == SOL_IPV6 && header.cmsg_type == IPV6_RECVERR);
  sock_extended_err error{};
  if (!is_error || header.cmsg_len < CMSG_LEN(sizeof error)) return false;
  std::memcpy(&error, CMSG_DATA(&header), sizeof error);
  SocketAddress offender;
  const std::size_t rest = header.cmsg_len - CMSG_LEN(sizeof error);
  offender.size = static_cast<socklen_t>(std::min(rest, sizeof offender.storage));
  std::memcpy(&offender.storage, CMSG_DATA(&header) + sizeof error, offender.size);
  return is_port_unreachable(error) && offender.storage.ss_family == peer.storage.ss_family &&
         host_of(offender) == host_of(peer);
}

}  // namespace

bool queue_errors(int fd, int family) {
  const int on = 1;
  return family == AF_INET6 ? setsockopt(fd, SOL_IPV6, IPV6_RECVERR, &on, sizeof on) == 0
                            : setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof on) == 0;
}

bool take_closed_port(int fd, const SocketAddress& peer) {
  bool is_closed = false;
  for (int i = 0; i < kMaxErrors; ++i) {
    alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
      is_closed = is_closed || says_closed(*one, peer);
    }
  }
  // One that the queue had no room for is pending all the same, and would keep poll awake.
  int pending = 0;
  socklen_t size = sizeof pending;
  (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &size);
  return is_closed;
}

}  // namespace muster::sentinel
