// Runs one function on every rank of a group of local communicators, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/check.h"
#include "common/clock.h"
#include "common/listen.h"
#include "worker/comm/communicator.h"

namespace muster::test {

/// `clock` says when their waits are over.
inline void on_all_ranks_by(const Clock& clock, int size,
                            const std::function<void(comm::Communicator&)>& body) {
  const auto group = comm::make_local_communicators(size, clock);
  std::vector<std::jthread> threads;
  for (const auto& communicator : group) {
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
}

inline void on_all_ranks(int size, const std::function<void(comm::Communicator&)>& body) {
  on_all_ranks_by(SystemClock(), size, body);
}

/// The same over loopback TCP: what is counted there goes over a wire between pods.
inline void on_all_ranks_by_tcp(int size, const std::function<void(comm::Communicator&)>& body) {
  const SystemClock clock;
  std::vector<int> listening;
  std::vector<comm::PeerAddress> peers;
  for (int rank = 0; rank < size; ++rank) {
    const auto socket = listen_tcp("127.0.0.1", 0);
    MUSTER_CHECK(socket.has_value());
    listening.push_back(socket->fd);
    peers.push_back({"127.0.0.1", socket->port});
  }
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      comm::TcpOptions options;
      options.rank = rank;
      options.listen_fd = listening[static_cast<std::size_t>(rank)];
      options.peers = peers;
      options.job_key = std::string(64, 'a');
      options.job_uid = "uid";
      options.epoch = 1;
      options.connect_deadline = clock.mono_now() + seconds(60);
      options.clock = &clock;
      const auto communicator = comm::make_tcp_communicator(options);
      MUSTER_CHECK(communicator.has_value());
      body(**communicator);
    });
  }
}

}  // namespace muster::test
