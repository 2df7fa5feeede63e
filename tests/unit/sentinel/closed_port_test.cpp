#include "worker/sentinel/closed_port.h"

#include <doctest/doctest.h>

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "common/file.h"
#include "common/listen.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

SocketAddress address_of(const std::string& host, int port) {
  SocketAddress address;
  REQUIRE(fill_address(host, port, address));
  return address;
}

/// A socket connected to a port of `host` at which nobody listens any more; nothing where the
/// system has no such address.
UniqueFd connect_to_nobody(const std::string& host, int& port) {
  SocketAddress nobody = address_of(host, 0);
  const int family = nobody.storage.ss_family;
  UniqueFd listener(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!listener || bind(listener.get(), nobody.get(), nobody.size) != 0) return UniqueFd();
  port = bound_port(listener.get());
  REQUIRE(port > 0);
  nobody = address_of(host, port);
  UniqueFd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(queue_errors(fd.get(), family));
  REQUIRE(connect(fd.get(), nobody.get(), nobody.size) == 0);
  return fd;
}

void send_and_wait(const UniqueFd& fd) {
  REQUIRE(send(fd.get(), "beat", 4, MSG_NOSIGNAL) == 4);
  pollfd failed{fd.get(), 0, 0};
  REQUIRE(poll(&failed, 1, 30'000) == 1);
}

}  // namespace

TEST_CASE(
    "a closed port is the peer's word when the peer's own address says so, and else nobody's") {
  std::string host = "127.0.0.1", other = "127.0.0.2";
  SUBCASE("IPv4") {}
  SUBCASE("IPv6") {
    host = "::1";
    other = "::2";
  }
  int port = 0;
  const UniqueFd fd = connect_to_nobody(host, port);
  if (!fd) {
    MESSAGE("not tested: there is no ", host);
    return;
  }
  const SocketAddress nobody = address_of(host, port);
  CHECK_FALSE(take_closed_port(fd.get(), nobody));  // nothing was asked
  send_and_wait(fd);
  CHECK(take_closed_port(fd.get(), nobody));
  CHECK_FALSE(take_closed_port(fd.get(), nobody));  // it is taken
  send_and_wait(fd);
  CHECK_FALSE(take_closed_port(fd.get(), address_of(other, port)));
  // One of the other family is not the peer, whatever its bytes are.
  send_and_wait(fd);
  CHECK_FALSE(take_closed_port(fd.get(), address_of(host == "::1" ? "127.0.0.1" : "::1", 1)));
  // What was taken keeps nobody awake, and nothing from being sent.
  pollfd failed{fd.get(), 0, 0};
  CHECK(poll(&failed, 1, 0) == 0);
  CHECK(send(fd.get(), "beat", 4, MSG_NOSIGNAL) == 4);
}

TEST_CASE("a datagram that is too long says nothing about the peer") {
  SocketAddress peer = address_of("127.0.0.1", 0);
  const UniqueFd listener(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(listener.get(), peer.get(), peer.size) == 0);
  REQUIRE(getsockname(listener.get(), peer.get(), &peer.size) == 0);
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  REQUIRE(queue_errors(fd.get(), AF_INET));
  REQUIRE(connect(fd.get(), peer.get(), peer.size) == 0);
  const std::string much(70'000, 'x');
  CHECK(send(fd.get(), much.data(), much.size(), MSG_NOSIGNAL) < 0);
  CHECK(errno == EMSGSIZE);
  CHECK_FALSE(take_closed_port(fd.get(), peer));
  CHECK(send(fd.get(), "beat", 4, MSG_NOSIGNAL) == 4);
}
