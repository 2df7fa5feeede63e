#include "worker/sentinel/mesh.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/contract.h"
#include "common/listen.h"
#include "common/log.h"
#include "worker/sentinel/closed_port.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kMaxDatagramBytes = 65'536;
constexpr std::size_t kMaxPeers = 8'192;
constexpr int kMaxDatagrams = 1'000;
/// Answers of one peer that are looked at at a time.
constexpr int kMaxAnswers = 16;
/// A few hundred sentinels may all speak at once.
constexpr int kReceiveBufferBytes = 4 * 1024 * 1024;

Error socket_error(const std::string& what) {
  return Error(ErrorCode::kIo, what + ": " + std::strerror(errno))
      .with_exit_code(contract::exit_code::kPort);
}

bool watch(int epoll_fd, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

Result<Mesh> Mesh::open(const std::string& address) {
  SocketAddress wanted;
  if (!fill_address(address, 0, wanted)) {
    return Error(ErrorCode::kInvalid, "\"" + address + "\" is not a numeric address")
        .with_exit_code(contract::exit_code::kUsage);
  }
  Mesh mesh;
  mesh.socket_ =
      UniqueFd(socket(wanted.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  mesh.epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  const int bytes = kReceiveBufferBytes;
  // More than the system allows is cut by it: what does not fit is lost, as datagrams may be.
  (void)setsockopt(mesh.socket_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  const bool ok = mesh.socket_ && mesh.epoll_ &&
                  bind(mesh.socket_.get(), wanted.get(), wanted.size) == 0 &&
                  (mesh.port_ = bound_port(mesh.socket_.get())) > 0 &&
                  watch(mesh.epoll_.get(), mesh.socket_.get(), EPOLLIN);
  if (!ok) return socket_error("listen on " + address + " for the other sentinels");
  mesh.buffer_.resize(kMaxDatagramBytes);
  return mesh;
}

Mesh::Peer* Mesh::find_or_connect(WorkerId to, const std::string& host, int port) {
  const auto known = peers_.find(to);
  if (known != peers_.end() && known->second.host == host && known->second.port == port) {
    return &known->second;
  }
  SocketAddress address;
  const bool has_room = known != peers_.end() || peers_.size() < kMaxPeers;
  if (!has_room || !fill_address(host, port, address)) return nullptr;
  UniqueFd fd(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Connected, so that the other kernel's refusal comes back to us.
  if (!fd || !queue_errors(fd.get(), address.storage.ss_family) ||
      connect(fd.get(), address.get(), address.size) != 0 ||
      !watch(epoll_.get(), fd.get(), EPOLLIN)) {
    return nullptr;
  }
  Peer& peer = peers_[to];
  peer.fd = std::move(fd);
  peer.host = host;
  peer.port = port;
  peer.address = address;
  peer.sent = 0;
  forget_earlier(to);
  return &peer;
}

/// Workers are replaced as long as a job lasts, and each has a descriptor here. One that is spoken
/// to again after all is connected anew.
void Mesh::forget_earlier(WorkerId than) {
  auto one = peers_.lower_bound({than.slot, 0});
  const auto end = peers_.lower_bound({than.slot + 1, 0});
  for (auto surplus = std::distance(one, end) - kAttemptsKept; surplus > 0; --surplus) {
    one = one->first == than ? std::next(one) : peers_.erase(one);
  }
}

void Mesh::send(WorkerId to, const std::string& host, int port, const Message& message) {
  const std::vector<std::byte> body = encode(message);
  if (body.empty() && !std::exchange(is_size_told_, true)) {
    log_error("a message to the other sentinels is too long and is not sent: there are too many",
              {{"message", name_of(message.body)}});
  }
  Peer* peer = seal_ && !body.empty() ? find_or_connect(to, host, port) : nullptr;
  if (peer == nullptr) return;
  const auto datagrams = seal_->seal(to, message.sequence, body);
  // Of pieces the first's alone: all would push out those of the messages before.
  peer->echoes[peer->sent++ % kEchoesKept] = echo_of(datagrams.front());
  for (const auto& datagram : datagrams) {
    if (!send_one(to, *peer, datagram)) return;
  }
}

bool Mesh::send_one(WorkerId to, const Peer& peer, std::span<const std::byte> datagram) {
  // What one send returns may be the error of the one before; then this one has not gone.
  for (int i = 0; i < 2; ++i) {
    if (::send(peer.fd.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL) >= 0) return true;
    take_errors(to, peer);
  }
  return false;
}

void Mesh::take_errors(WorkerId of, const Peer& peer) {
  if (!take_closed_port(peer.fd.get(), peer.address)) return;
  if (std::find(refused_.begin(), refused_.end(), of) == refused_.end()) refused_.push_back(of);
}

void Mesh::refuse(std::span<const std::byte> datagram, SocketAddress from,
                  Received& received) const {
  std::string host = host_of(from);
  std::vector<std::string>& all = received.strangers;
  if (all.size() >= kMaxStrangers || std::find(all.begin(), all.end(), host) != all.end()) return;
  all.push_back(std::move(host));
  const auto answer = make_refusal(echo_of(datagram));
  // It is only a courtesy: what does not go now comes with the stranger's next datagram.
  (void)sendto(socket_.get(), answer.data(), answer.size(), MSG_NOSIGNAL, from.get(), from.size);
}

bool Mesh::take_refusals(const Peer& peer) {
  const auto known = std::span(peer.echoes).first(std::min(peer.sent, kEchoesKept));
  bool is_refused = false;
  std::array<std::byte, kRefusalBytes + 1> buffer{};  // a longer one is seen to be longer
  for (int i = 0; i < kMaxAnswers; ++i) {
    const ssize_t bytes = recv(peer.fd.get(), buffer.data(), buffer.size(), 0);
    if (bytes < 0) break;
    const auto echo = read_refusal(std::span(buffer).first(static_cast<std::size_t>(bytes)));
    is_refused =
        is_refused || (echo && std::find(known.begin(), known.end(), *echo) != known.end());
  }
  return is_refused;
}

Mesh::Received Mesh::receive() {
  Received received;
  received.is_more = true;
  for (int i = 0; i < kMaxDatagrams; ++i) {
    SocketAddress from;
    from.size = sizeof from.storage;
    const ssize_t bytes =
        recvfrom(socket_.get(), buffer_.data(), buffer_.size(), 0, from.get(), &from.size);
    if (bytes < 0) {
      received.is_more = false;
      break;
    }
    if (!seal_) continue;
    const auto datagram = std::span(buffer_).first(static_cast<std::size_t>(bytes));
    const std::uint64_t unauthorized = drops_.unauthorized;
    auto message = seal_->open(datagram, drops_);
    if (message) received.messages.push_back(std::move(*message));
    if (drops_.unauthorized != unauthorized) refuse(datagram, from, received);
  }
  std::array<epoll_event, 64> events{};
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const int fd = event.data.fd;
    if (fd == socket_.get()) continue;
    const auto found = std::find_if(peers_.begin(), peers_.end(), [fd](const auto& entry) {
      return entry.second.fd.get() == fd;
    });
    if (found == peers_.end()) continue;
    if ((event.events & EPOLLERR) != 0) take_errors(found->first, found->second);
    if ((event.events & EPOLLIN) == 0 || !take_refusals(found->second)) continue;
    received.unauthorized.push_back(found->first);
  }
  received.refused = std::exchange(refused_, {});
  return received;
}

}  // namespace muster::sentinel
