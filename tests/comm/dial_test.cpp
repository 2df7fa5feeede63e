// A dial that gets no answer: rank 0's queue of connections is full, so that its system drops what
// comes, as a network would.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstdio>
#include <fstream>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/comm/tcp_ranks.h"
#include "tests/raw_socket.h"

using namespace muster;
using namespace muster::comm;
using namespace muster::test;

namespace {

/// From which port of this machine `port` is being dialed without an answer yet; 0: none.
int dialed_from(int port) {
  constexpr unsigned kSynSent = 2;
  std::ifstream sockets("/proc/net/tcp");
  for (std::string line; std::getline(sockets, line);) {
    unsigned local = 0, remote = 0, state = 0;
    const int read =
        std::sscanf(line.c_str(), "%*d: %*8x:%4x %*8x:%4x %2x", &local, &remote, &state);
    if (read == 3 && state == kSynSent && remote == static_cast<unsigned>(port)) {
      return static_cast<int>(local);
    }
  }
  return 0;
}

/// Time in which nothing happens but dials of `port`: it passes when it is looked at.
class DialTime final : public Clock {
 public:
  explicit DialTime(int port) : port_(port) {}

  MonoTime mono_now() const override {
    constexpr milliseconds kOfDial{200}, kOtherwise{10};
    const std::lock_guard lock(mutex_);
    const int from = dialed_from(port_);
    if (from != 0 && (dials_.empty() || dials_.back().first != from)) {
      dials_.emplace_back(from, nanoseconds{0});
    }
    if (from != 0) dials_.back().second += kOfDial;
    now_ += from != 0 ? kOfDial : kOtherwise;
    const bool are_over = dials_.size() == 2 && from == 0;
    const bool lasts = !dials_.empty() && dials_.front().second > seconds{2};
    if ((are_over || lasts) && !std::exchange(is_told_, true)) two_are_over_.count_down();
    return now_;
  }
  WallTime wall_now() const override { return {}; }

  /// Until two dials were given up, or the first lasts as if it never were.
  void wait_for_two() const { two_are_over_.wait(); }
  /// How long each dial was waited for.
  std::vector<nanoseconds> dials() const {
    const std::lock_guard lock(mutex_);
    std::vector<nanoseconds> times;
    for (const auto& [from, time] : dials_) times.push_back(time);
    return times;
  }

 private:
  const int port_;
  mutable std::latch two_are_over_{1};
  mutable std::mutex mutex_;
  mutable MonoTime now_{seconds{1}};
  mutable bool is_told_ = false;
  mutable std::vector<std::pair<int, nanoseconds>> dials_;  ///< by their ports, in order
};

}  // namespace

TEST_CASE("a dial without an answer is made anew before the system would repeat it, then later") {
  std::vector<TcpOptions> options = tcp_options(2);
  const int port = options[0].peers[0].port;
  REQUIRE(listen(options[0].listen_fd, 1) == 0);  // room for two
  const RawSocket first(port), second(port);
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const DialTime dial_time(port);
  options[1].clock = &dial_time;
  options[1].connect_deadline = dial_time.mono_now() + std::chrono::hours{1};

  Ranks ranks(2);
  std::vector<Status> connected(2);
  const auto meet = [&](std::size_t rank) {
    auto made = make_tcp_communicator(options[rank]);
    if (made) ranks[rank] = *std::move(made);
    if (!made) connected[rank] = made.error();
  };
  std::thread dialer([&] { meet(1); });
  dial_time.wait_for_two();
  meet(0);  // makes room
  dialer.join();

  for (const Status& status : connected) CHECK_MESSAGE(status, text_of(status));
  const std::vector<nanoseconds> dials = dial_time.dials();
  REQUIRE(dials.size() >= 2);
  constexpr seconds kSystemRepeatsAfter{1};
  CHECK(dials[0] < kSystemRepeatsAfter);
  CHECK(dials[1] > dials[0]);  // for networks whose answers take longer than the first was given
}
