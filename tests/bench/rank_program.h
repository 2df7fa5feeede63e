// What the benchmarks that run as several processes share: RANK PORT,PORT,... and a connection to
// all others.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/listen.h"
#include "common/result.h"
#include "worker/comm/communicator.h"

namespace muster::bench {

/// Ends the program where something fails.
[[noreturn]] inline void die(const Error& error) {
  std::fprintf(stderr, "benchmark: %s\n", error.message().c_str());
  std::exit(1);
}

template <typename T>
T or_die(Result<T> result) {
  if (!result) die(result.error());
  return *std::move(result);
}

inline void or_die(const Status& status) {
  if (!status) die(status.error());
}

inline std::vector<std::size_t> numbers(const std::string& text, char between) {
  std::vector<std::size_t> out;
  for (std::size_t at = 0; at < text.size();) {
    out.push_back(std::strtoul(text.c_str() + at, nullptr, 10));
    const std::size_t end = text.find(between, at);
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return out;
}

/// Options of rank `rank` of as many processes of this machine as there are `ports`.
inline comm::TcpOptions tcp_options(int rank, const std::vector<int>& ports, const Clock& clock) {
  comm::TcpOptions tcp;
  tcp.rank = rank;
  tcp.listen_fd = or_die(listen_tcp("127.0.0.1", ports[static_cast<std::size_t>(rank)])).fd;
  for (const int port : ports) tcp.peers.push_back({"127.0.0.1", port});
  tcp.job_key = std::string(64, '0');
  tcp.job_uid = "bench";
  tcp.epoch = 1;
  tcp.connect_deadline = clock.mono_now() + seconds(60);
  tcp.clock = &clock;
  return tcp;
}

}  // namespace muster::bench
