// Numeric addresses, and which of them this machine has.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "common/file.h"
#include "worker/sentinel/launch.h"
#include "worker/sentinel/socket_address.h"

namespace muster::sentinel {
namespace {

constexpr int kAnyPort = 9;

}  // namespace

bool fill_address(const std::string& text, int port, SocketAddress& out) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<std::uint16_t>(port));
    out.size = sizeof *v4;
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<std::uint16_t>(port));
  out.size = sizeof *v6;
  return true;
}

std::string host_of(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* bytes = &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
  if (address.storage.ss_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  }
  (void)inet_ntop(address.storage.ss_family, bytes, text, sizeof text);
  return text;
}

Result<std::vector<std::string>> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int wrong = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (wrong != 0) {
    return Error(ErrorCode::kUnavailable, "look up " + host + ": " + gai_strerror(wrong));
  }
  std::vector<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    address.size = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    addresses.push_back(host_of(address));
  }
  freeaddrinfo(found);
  return addresses;
}

Result<std::string> own_address(const std::vector<std::string>& towards) {
  // Connecting a datagram socket sends nothing; it asks the system for the route and so the
  // address.
  for (const std::string& address : towards) {
    SocketAddress there, local;
    if (!fill_address(address, kAnyPort, there)) continue;
    const UniqueFd fd(socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    local.size = sizeof local.storage;
    if (fd && connect(fd.get(), there.get(), there.size) == 0 &&
        getsockname(fd.get(), local.get(), &local.size) == 0) {
      return host_of(local);
    }
  }
  return Error(ErrorCode::kUnavailable, "this machine has no route to " + towards.front());
}

}  // namespace muster::sentinel
