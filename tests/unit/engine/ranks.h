// Runs one function on every rank of a group of local communicators, each on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"

namespace muster::test {

inline void on_all_ranks(int size, const std::function<void(comm::Communicator&)>& body) {
  const SystemClock clock;
  const auto group = comm::make_local_communicators(size, clock);
  std::vector<std::jthread> threads;
  for (const auto& communicator : group) {
    threads.emplace_back([&body, &communicator] { body(*communicator); });
  }
}

}  // namespace muster::test
