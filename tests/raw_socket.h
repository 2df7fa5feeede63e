// A TCP connection to loopback that says exactly what a test tells it, right or wrong.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace muster::test {

class RawSocket {
 public:
  /// Connects to 127.0.0.1:`port`; ok() tells whether it did within 20 s.
  explicit RawSocket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    ok_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawSocket() { close(fd_); }
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool ok() const { return ok_; }

  /// Sends as much as the other side takes before it closes.
  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  /// Reads until `mark` has been read, or the other side closed, or 20 s passed without a byte.
  std::string read_until(std::string_view mark) const {
    std::string text;
    while (mark.empty() || text.find(mark) == std::string::npos) {
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, 20'000) != 1) return text + "<timeout>";
      char piece[4096];
      const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
      if (n <= 0) return text;
      text.append(piece, static_cast<std::size_t>(n));
    }
    return text;
  }
  std::string read_to_end() const { return read_until(""); }

 private:
  int fd_;
  bool ok_ = false;
};

}  // namespace muster::test
