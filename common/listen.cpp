#include "common/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <system_error>

#include "common/contract.h"
#include "common/file.h"

namespace muster {
namespace {

// All other workers of a gang may dial one at once, and who finds no room comes again later. The
// system has a bound of its own, mostly the same.
constexpr int kBacklog = 4096;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

}  // namespace

int bound_port(int fd) {
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length) != 0) return 0;
  if (bound.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

Result<Listener> listen_tcp(const std::string& address, int port) {
  const auto refused = [&](const std::string& why) {
    return Error(ErrorCode::kIo,
                 "listen on " + address + " port " + std::to_string(port) + ": " + why)
        .with_exit_code(contract::exit_code::kPort);
  };
  const auto failed = [&] { return refused(std::generic_category().message(errno)); };
  if (port < 0 || port > 65535) return refused("a port is 0 to 65535");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* list = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return refused("the address must be numeric, such as 127.0.0.1");
  }
  const std::unique_ptr<addrinfo, FreeAddresses> found(list);
  UniqueFd fd(socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  // A worker that starts again must get its port although old connections linger.
  if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || listen(fd.get(), kBacklog) != 0) {
    return failed();
  }
  const int bound = bound_port(fd.get());
  return Listener{fd.release(), bound};
}

}  // namespace muster
