// Ranks connected by TCP over loopback inside one test process.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/listen.h"
#include "tests/comm/collective_cases.h"
#include "worker/comm/communicator.h"

namespace muster::test {

inline const SystemClock kSystemClock;
inline const std::string kKey(64, '7');

inline MonoTime in(nanoseconds time) { return kSystemClock.mono_now() + time; }

/// What carries the frames of ranks that all are on this machine; for TEST_CASE_TEMPLATE.
struct Connection {
  static constexpr bool shares_memory = false;
};
struct SharedMemory {
  static constexpr bool shares_memory = true;
};

/// Listening sockets and options for `size` ranks that can connect with each other.
template <typename Way = Connection>
std::vector<comm::TcpOptions> tcp_options(int size) {
  std::vector<comm::PeerAddress> peers;
  std::vector<comm::TcpOptions> options(static_cast<std::size_t>(size));
  for (comm::TcpOptions& one : options) {
    const auto socket = listen_tcp("127.0.0.1", 0);
    REQUIRE(socket);
    one.listen_fd = socket->fd;
    peers.push_back({"127.0.0.1", socket->port});
  }
  for (int rank = 0; rank < size; ++rank) {
    comm::TcpOptions& one = options[static_cast<std::size_t>(rank)];
    one.rank = rank;
    one.peers = peers;
    one.job_key = kKey;
    one.job_uid = "0b5c7a4e-uid";
    one.epoch = 3;
    one.connect_deadline = in(kPatience);
    one.clock = &kSystemClock;
    one.shares_memory = Way::shares_memory;
  }
  return options;
}

/// Connects all; each rank in its own thread. Results by rank.
inline std::vector<Status> try_connect(const std::vector<comm::TcpOptions>& options, Ranks& ranks) {
  ranks.clear();
  ranks.resize(options.size());
  return on_all(static_cast<int>(options.size()), [&](int rank) -> Status {
    const auto index = static_cast<std::size_t>(rank);
    auto made = comm::make_tcp_communicator(options[index]);
    if (!made) return made.error();
    ranks[index] = *std::move(made);
    return {};
  });
}

template <typename Way>
Ranks connected_ranks(int size) {
  Ranks ranks;
  for (const Status& status : try_connect(tcp_options<Way>(size), ranks)) {
    REQUIRE_MESSAGE(status, text_of(status));
  }
  return ranks;
}

}  // namespace muster::test
