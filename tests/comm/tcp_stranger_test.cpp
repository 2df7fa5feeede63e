// Who may not come in, and bytes that may not come in.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tests/comm/tcp_ranks.h"
#include "worker/comm/crc32c.h"
#include "worker/comm/frame.h"
#include "worker/comm/memory_lane.h"
#include "worker/comm/socket.h"

using namespace muster;
using namespace muster::comm;
using namespace muster::test;

namespace {

// A blocking connection made by hand.
UniqueFd dial(int port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  const timeval patience{30, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

UniqueFd accept_one(int listen_fd) {
  pollfd polled{listen_fd, POLLIN, 0};
  REQUIRE(poll(&polled, 1, 30'000) == 1);
  UniqueFd fd(accept(listen_fd, nullptr, nullptr));
  const timeval patience{30, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  REQUIRE(fd);
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
}

template <std::size_t N>
std::array<std::byte, N> read_exactly(int fd) {
  std::array<std::byte, N> bytes{};
  REQUIRE(recv(fd, bytes.data(), N, MSG_WAITALL) == static_cast<ssize_t>(N));
  return bytes;
}

// True when the other side closed without another byte.
bool is_closed(int fd) {
  std::byte byte;
  return recv(fd, &byte, 1, 0) <= 0;
}

template <std::size_t N, typename M>
void write_message(int fd, const M& message) {
  std::array<std::byte, N> bytes{};
  encode(message, bytes);
  write_all(fd, bytes);
}

Hello hello_of(const TcpOptions& options, int to) {
  return Hello{.from = static_cast<std::uint32_t>(options.rank),
               .to = static_cast<std::uint32_t>(to),
               .size = static_cast<std::uint32_t>(options.peers.size()),
               .epoch = static_cast<std::uint64_t>(options.epoch),
               .nonce = {}};
}

// A hand-made rank 1 that is connected with the real rank 0.
struct Puppet {
  std::unique_ptr<Communicator> rank0;
  UniqueFd fd;
  std::uint32_t session = 0;
  bool lane_is_taken = false;
};

// Sends and receives by the connection, unless rank 0 finds a lane there where `make_lane` says.
using MakeLane = std::function<LaneOffer(const Proof& right)>;

Puppet connected_puppet(const MakeLane& make_lane = nullptr) {
  std::vector<TcpOptions> options = tcp_options<SharedMemory>(2);
  Puppet puppet;
  std::thread real([&] {
    auto made = make_tcp_communicator(options[0]);
    if (made) puppet.rank0 = *std::move(made);
  });
  close(options[1].listen_fd);
  puppet.fd = dial(options[0].peers[0].port);
  const Hello hello = hello_of(options[1], 0);
  write_message<kHelloBytes>(puppet.fd.get(), hello);
  const auto answer = decode_answer(read_exactly<kAnswerBytes>(puppet.fd.get()));
  REQUIRE(answer);
  const JobKey job_key = *parse_job_key(kKey);
  CHECK(equal(answer->proof, make_proof(job_key, "listener", options[0].job_uid, hello, *answer)));
  Introduction introduction{make_proof(job_key, "dialer", options[0].job_uid, hello, *answer), {}};
  if (make_lane) {
    introduction.lane = make_lane(make_proof(job_key, "lane", options[0].job_uid, hello, *answer));
  }
  write_message<kProofBytes>(puppet.fd.get(), introduction);
  const auto accept = decode_accept(read_exactly<kAcceptBytes>(puppet.fd.get()));
  REQUIRE(accept);
  puppet.lane_is_taken = accept->lane_is_taken;
  puppet.session = session_of(job_key, options[0].job_uid, hello, *answer);
  real.join();
  REQUIRE(puppet.rank0);
  return puppet;
}

FrameHeader header_for(const Puppet& puppet, std::span<const std::byte> payload);

// What rank 0 says when it waits for 100 bytes of step 1 and gets `bytes`.
Status status_after(Puppet& puppet, std::span<const std::byte> bytes) {
  std::vector<std::byte> buffer(100);
  const ReceiveBuffer receive{1, buffer.data(), buffer.size()};
  auto work = puppet.rank0->start(1, Memory::kHost, {}, {&receive, 1});
  if (!work) return work.error();  // The connection was seen to be cut already.
  write_all(puppet.fd.get(), bytes);
  return (*work)->wait(in(kPatience));
}

std::vector<std::byte> frame_bytes(const FrameHeader& header, std::span<const std::byte> payload) {
  FrameHeaderBytes encoded;
  encode(header, encoded);
  std::vector<std::byte> bytes(encoded.begin(), encoded.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

FrameHeader header_for(const Puppet& puppet, std::span<const std::byte> payload) {
  FrameHeader header;
  header.session = puppet.session;
  header.epoch = 3;
  header.step = 1;
  header.sequence = 1;
  header.message_bytes = payload.size();
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = crc32c(0, payload.data(), payload.size());
  return header;
}

// What rank 0 says of a frame with a changed header.
Status status_of_header(const std::function<void(FrameHeader&)>& change) {
  Puppet puppet = connected_puppet();
  const std::vector<std::byte> payload(100, std::byte{5});
  FrameHeader header = header_for(puppet, payload);
  change(header);
  return status_after(puppet, frame_bytes(header, payload));
}

ErrorCode code_of(const Status& status) {
  REQUIRE_FALSE(status);
  return status.error().code();
}

}  // namespace

TEST_CASE("a hand-made peer with the right key and the right frame is heard") {
  const Status heard = status_of_header([](FrameHeader&) {});
  CHECK_MESSAGE(heard, text_of(heard));
}

TEST_CASE("a frame of another session, epoch, step, group or length is corrupt") {
  CHECK(code_of(status_of_header([](FrameHeader& h) { ++h.session; })) == ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { --h.epoch; })) == ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { ++h.step; })) == ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { ++h.sequence; })) == ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { ++h.message_bytes; })) ==
        ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { --h.payload_bytes; })) ==
        ErrorCode::kCorrupt);
  CHECK(code_of(status_of_header([](FrameHeader& h) { ++h.payload_crc; })) == ErrorCode::kCorrupt);
}

TEST_CASE("an oversized frame is refused from its header alone") {
  Puppet puppet = connected_puppet();
  FrameHeader header = header_for(puppet, std::vector<std::byte>(100));
  header.message_bytes = 1ull << 62;
  header.payload_bytes = 0xFFFFFFF0u;
  CHECK(code_of(status_after(puppet, frame_bytes(header, {}))) == ErrorCode::kCorrupt);
}

TEST_CASE("garbage instead of frames is corrupt, and a cut inside a frame is a lost rank") {
  {
    Puppet puppet = connected_puppet();
    CHECK(code_of(status_after(puppet, std::vector<std::byte>(4096, std::byte{0xA5}))) ==
          ErrorCode::kCorrupt);
    CHECK_MESSAGE(is_closed(puppet.fd.get()), "the connection is closed on garbage");
  }
  const std::vector<std::byte> payload(100, std::byte{5});
  for (const std::size_t cut : {0u, 1u, 55u, 56u, 57u, 155u}) {
    Puppet puppet = connected_puppet();
    std::vector<std::byte> bytes = frame_bytes(header_for(puppet, payload), payload);
    bytes.resize(cut);
    write_all(puppet.fd.get(), bytes);
    shutdown(puppet.fd.get(), SHUT_RDWR);
    const Status status = status_after(puppet, {});
    CHECK(code_of(status) == ErrorCode::kAborted);
    CHECK(status.error().message().find("rank 1 was lost") != std::string::npos);
  }
}

TEST_CASE("a frame that arrives byte by byte is heard") {
  Puppet puppet = connected_puppet();
  const std::vector<std::byte> payload(100, std::byte{5});
  const std::vector<std::byte> bytes = frame_bytes(header_for(puppet, payload), payload);
  std::vector<std::byte> buffer(100);
  const ReceiveBuffer receive{1, buffer.data(), buffer.size()};
  auto work = puppet.rank0->start(1, Memory::kHost, {}, {&receive, 1});
  REQUIRE(work);
  std::thread drip([&] {
    for (const std::byte& b : bytes) write_all(puppet.fd.get(), {&b, 1});
  });
  const Status heard = (*work)->wait(in(kPatience));
  drip.join();
  CHECK_MESSAGE(heard, text_of(heard));
  CHECK(buffer == payload);
}

TEST_CASE(
    "memory that is none of this pair's is left alone, and the connection carries the frames") {
  std::unique_ptr<MemoryLane> lane;
  const auto of_others = [&](const Proof&) {
    lane = *MemoryLane::make(Proof{}, MemoryLane::ring_bytes(1));
    return lane->offer();
  };
  const auto not_there = [](const Proof&) { return LaneOffer{1, 4'000'000}; };
  for (const MakeLane& make_lane : {MakeLane(of_others), MakeLane(not_there)}) {
    Puppet puppet = connected_puppet(make_lane);
    CHECK_FALSE(puppet.lane_is_taken);
    const std::vector<std::byte> payload(100, std::byte{5});
    const Status heard = status_after(puppet, frame_bytes(header_for(puppet, payload), payload));
    CHECK_MESSAGE(heard, text_of(heard));
  }
}

TEST_CASE("frames in shared memory are judged as on a connection, and bytes there are only wakes") {
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{2}}) {
    std::unique_ptr<MemoryLane> lane;
    Puppet puppet = connected_puppet([&](const Proof& right) {
      lane = *MemoryLane::make(right, MemoryLane::ring_bytes(1));
      return lane->offer();
    });
    REQUIRE(puppet.lane_is_taken);
    const std::vector<std::byte> payload(100, std::byte{5});
    FrameHeader header = header_for(puppet, payload);
    header.step = step;
    std::vector<std::byte> frame = frame_bytes(header, payload);
    const iovec piece{frame.data(), frame.size()};
    const auto moved = lane->write({&piece, 1});
    REQUIRE(moved);
    CHECK(moved->bytes == frame.size());
    const Status status = status_after(puppet, std::vector<std::byte>(1000, std::byte{0xA5}));
    if (step == 1) {
      CHECK_MESSAGE(status, text_of(status));
    } else {
      CHECK(code_of(status) == ErrorCode::kCorrupt);
    }
  }
}

TEST_CASE("who writes nonsense into shared memory is named") {
  std::unique_ptr<MemoryLane> lane;
  Puppet puppet = connected_puppet([&](const Proof& right) {
    lane = *MemoryLane::make(right, MemoryLane::ring_bytes(1));
    return lane->offer();
  });
  REQUIRE(puppet.lane_is_taken);
  constexpr std::size_t kHead = 4096;
  void* const head = mmap(nullptr, kHead, PROT_READ | PROT_WRITE, MAP_SHARED,
                          static_cast<int>(lane->offer().fd), 0);
  REQUIRE(head != MAP_FAILED);
  std::memset(head, 0x55, kHead);
  munmap(head, kHead);
  const Status status = status_after(puppet, std::vector<std::byte>(1));
  CHECK(code_of(status) == ErrorCode::kCorrupt);
  CHECK(status.error().message().find("rank 1") != std::string::npos);
}

TEST_CASE("strangers of every kind are closed and counted, and the ranks still meet") {
  std::vector<TcpOptions> options = tcp_options(2);
  RefusedConnections refused;
  options[0].refused = &refused;
  const int port = options[0].peers[0].port;
  Ranks ranks(2);
  Status first;
  std::thread real([&] {
    auto made = make_tcp_communicator(options[0]);
    if (made) {
      ranks[0] = *std::move(made);
    } else {
      first = made.error();
    }
  });

  const UniqueFd garbage = dial(port);
  write_all(garbage.get(), std::vector<std::byte>(1000, std::byte{'G'}));
  CHECK(is_closed(garbage.get()));

  const UniqueFd cut = dial(port);
  write_all(cut.get(), std::vector<std::byte>(10, std::byte{'M'}));
  shutdown(cut.get(), SHUT_WR);
  CHECK(is_closed(cut.get()));

  const auto closed_on_hello = [&](auto change) {
    Hello hello = hello_of(options[1], 0);
    change(hello);
    const UniqueFd fd = dial(port);
    write_message<kHelloBytes>(fd.get(), hello);
    return is_closed(fd.get());
  };
  CHECK(closed_on_hello([](Hello& h) { --h.epoch; }));
  CHECK(closed_on_hello([](Hello& h) { ++h.epoch; }));
  CHECK(closed_on_hello([](Hello& h) { h.size = 3; }));
  CHECK(closed_on_hello([](Hello& h) { h.from = 0; }));
  CHECK(closed_on_hello([](Hello& h) { h.from = 2; }));
  CHECK(closed_on_hello([](Hello& h) { h.to = 1; }));

  // Another key, and the proof of one handshake said again in another.
  Introduction old;
  for (int round = 0; round < 2; ++round) {
    const Hello hello = hello_of(options[1], 0);
    const UniqueFd fd = dial(port);
    write_message<kHelloBytes>(fd.get(), hello);
    const auto answer = decode_answer(read_exactly<kAnswerBytes>(fd.get()));
    REQUIRE(answer);
    if (round == 0) {
      const JobKey wrong = *parse_job_key(std::string(64, '8'));
      old.proof = make_proof(*parse_job_key(kKey), "dialer", options[0].job_uid, hello, *answer);
      write_message<kProofBytes>(
          fd.get(),
          Introduction{make_proof(wrong, "dialer", options[0].job_uid, hello, *answer), {}});
    } else {
      write_message<kProofBytes>(fd.get(), old);
    }
    CHECK(is_closed(fd.get()));
  }

  auto second = make_tcp_communicator(options[1]);
  real.join();
  CHECK_MESSAGE(first, text_of(first));
  REQUIRE(second);
  REQUIRE(ranks[0]);
  ranks[1] = *std::move(second);
  run_collectives(ranks, kSystemClock);
  CHECK(refused.garbage == 2);
  CHECK(refused.epoch == 3);
  CHECK(refused.rank == 3);
  CHECK(refused.unauthorized == 2);
}

TEST_CASE("a second process of a connected rank is closed, and after the first's death let in") {
  std::vector<TcpOptions> options = tcp_options(3);
  RefusedConnections refused;
  options[0].refused = &refused;
  const int port = options[0].peers[0].port;
  Status first;
  Ranks ranks(3);
  std::thread real([&] {
    auto made = make_tcp_communicator(options[0]);
    if (made) {
      ranks[0] = *std::move(made);
    } else {
      first = made.error();
    }
  });
  const JobKey key = *parse_job_key(kKey);
  const auto enter = [&]() -> UniqueFd {
    const Hello hello = hello_of(options[1], 0);
    UniqueFd fd = dial(port);
    write_message<kHelloBytes>(fd.get(), hello);
    const auto answer = decode_answer(read_exactly<kAnswerBytes>(fd.get()));
    REQUIRE(answer);
    write_message<kProofBytes>(
        fd.get(), Introduction{make_proof(key, "dialer", options[0].job_uid, hello, *answer), {}});
    CHECK(decode_accept(read_exactly<kAcceptBytes>(fd.get())));
    return fd;
  };
  {
    const UniqueFd holder = enter();
    const UniqueFd twin = dial(port);
    write_message<kHelloBytes>(twin.get(), hello_of(options[1], 0));
    CHECK(is_closed(twin.get()));
  }
  std::thread second([&] {
    auto made = make_tcp_communicator(options[1]);
    if (made) ranks[1] = *std::move(made);
  });
  auto third = make_tcp_communicator(options[2]);
  real.join();
  second.join();
  CHECK_MESSAGE(first, text_of(first));
  REQUIRE(third);
  REQUIRE(ranks[0]);
  REQUIRE(ranks[1]);
  ranks[2] = *std::move(third);
  run_collectives(ranks, kSystemClock);
  CHECK(refused.rank >= 1);
}

TEST_CASE("many silent strangers do not keep the ranks from meeting") {
  std::vector<TcpOptions> options = tcp_options(2);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(dial(options[0].peers[0].port));
  Ranks ranks;
  for (const Status& status : try_connect(options, ranks)) CHECK_MESSAGE(status, text_of(status));
}

TEST_CASE("peers that dial all at once do not throw each other out") {
  constexpr int kRanks = 101;
  std::vector<TcpOptions> options = tcp_options(kRanks);
  RefusedConnections refused;
  options[0].refused = &refused;
  std::vector<UniqueFd> peers;
  for (std::size_t rank = 1; rank < kRanks; ++rank) {
    close(options[rank].listen_fd);
    peers.push_back(dial(options[0].peers[0].port));
    write_message<kHelloBytes>(peers.back().get(), hello_of(options[rank], 0));
  }
  Result<std::unique_ptr<Communicator>> made = Error(ErrorCode::kInternal, "not made");
  std::thread real([&] { made = make_tcp_communicator(options[0]); });
  const JobKey job_key = *parse_job_key(kKey);
  std::vector<Answer> answers;
  // Nobody proves itself before all have been answered.
  for (const UniqueFd& peer : peers) {
    const auto answer = decode_answer(read_exactly<kAnswerBytes>(peer.get()));
    REQUIRE(answer);
    answers.push_back(*answer);
  }
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Hello hello = hello_of(options[i + 1], 0);
    const Proof proof = make_proof(job_key, "dialer", options[0].job_uid, hello, answers[i]);
    write_message<kProofBytes>(peers[i].get(), Introduction{proof, {}});
  }
  real.join();
  CHECK_MESSAGE(made, (made ? "" : made.error().message()));
  CHECK(refused.silent == 0);
}

TEST_CASE("a rank that may open no more descriptors says so, and waits for nobody") {
  for (const std::size_t rank : {0u, 1u}) {  // the one accepts, the other dials
    std::vector<TcpOptions> options = tcp_options(2);
    const UniqueFd waiting = dial(options[0].peers[0].port);
    const UniqueFd other(options[1 - rank].listen_fd);
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int lowest_free = dup(STDERR_FILENO);
    close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto made = make_tcp_communicator(options[rank]);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE_FALSE(made);
    CHECK(made.error().code() == ErrorCode::kIo);
    CHECK(made.error().message() == (rank == 0 ? "connect rank 0: accept: Too many open files"
                                               : "connect rank 1: socket: Too many open files"));
  }
}

namespace {

std::atomic<int> port_out_of_reach = 0;  // 0: none

}  // namespace

/// Of all of this program, libraries too: has no port left to dial that one from.
extern "C" int connect(int fd, const sockaddr* address, socklen_t size) {
  static const auto next = reinterpret_cast<decltype(&::connect)>(dlsym(RTLD_NEXT, "connect"));
  sockaddr_in peer{};
  std::memcpy(&peer, address, std::min<std::size_t>(size, sizeof peer));
  if (peer.sin_family != AF_INET || port_out_of_reach == 0 ||
      ntohs(peer.sin_port) != port_out_of_reach) {
    return next(fd, address, size);
  }
  errno = EADDRNOTAVAIL;
  return -1;
}

TEST_CASE("a rank that has no port left to dial from says so, and waits for nobody") {
  std::vector<TcpOptions> options = tcp_options(2);
  const UniqueFd other(options[0].listen_fd);
  port_out_of_reach = options[0].peers[0].port;
  const auto made = make_tcp_communicator(options[1]);
  port_out_of_reach = 0;
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == ErrorCode::kIo);
  CHECK(made.error().message() == "connect rank 1: connect: Cannot assign requested address");
}

TEST_CASE("a rank that never comes is named when the deadline passes") {
  std::vector<TcpOptions> options = tcp_options(3);
  close(options[0].listen_fd);
  close(options[2].listen_fd);
  options[1].connect_deadline = in(milliseconds(50));
  const auto made = make_tcp_communicator(options[1]);
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == ErrorCode::kUnavailable);
  CHECK(made.error().message().find("rank 0 at 127.0.0.1:") != std::string::npos);
  CHECK(made.error().message().find("Connection refused") != std::string::npos);
  CHECK(made.error().message().find("rank 2") != std::string::npos);
}

TEST_CASE("ranks with different keys do not meet, and the dialer learns why") {
  std::vector<TcpOptions> options = tcp_options(2);
  RefusedConnections refused;
  options[0].refused = &refused;
  options[1].job_key = std::string(64, '9');
  for (TcpOptions& one : options) one.connect_deadline = in(milliseconds(300));
  Ranks ranks;
  const auto results = try_connect(options, ranks);
  CHECK(code_of(results[0]) == ErrorCode::kUnavailable);
  CHECK(code_of(results[1]) == ErrorCode::kUnauthorized);
}

TEST_CASE("a stranger at a peer's address gets no proof of the key that it could use") {
  // The dialer speaks first and proves itself only to who proved the key to it.
  std::vector<TcpOptions> options = tcp_options(2);
  options[1].connect_deadline = in(milliseconds(500));
  Status result;
  std::thread real([&] {
    const auto made = make_tcp_communicator(options[1]);
    if (!made) result = made.error();
  });
  {
    const UniqueFd fd = accept_one(options[0].listen_fd);
    read_exactly<kHelloBytes>(fd.get());
    write_message<kAnswerBytes>(fd.get(), Answer{.rank = 0, .epoch = 3, .nonce = {}, .proof = {}});
    CHECK(is_closed(fd.get()));
  }
  close(options[0].listen_fd);
  real.join();
  CHECK(code_of(result) == ErrorCode::kUnauthorized);
}
