// Numeric addresses as the system takes them.
#pragma once

#include <sys/socket.h>

#include <string>

namespace muster::sentinel {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Whether `text` is a numeric address of either family.
bool fill_address(const std::string& text, int port, SocketAddress& out);
std::string host_of(const SocketAddress& address);

}  // namespace muster::sentinel
