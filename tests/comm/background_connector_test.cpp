// Connecting the next epoch while somebody trains in this one: what is overtaken gives way, and
// nobody is left waiting for it.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <memory>
#include <new>
#include <thread>

#include "common/contract.h"
#include "tests/comm/tcp_ranks.h"
#include "tests/raw_socket.h"
#include "worker/comm/background_connector.h"
#include "worker/comm/socket.h"

using namespace muster;
using namespace muster::comm;
using namespace muster::test;

namespace {

using Connected = BackgroundConnector::Connected;

/// Processes that go from epoch to epoch with one listening socket each.
class Gang {
 public:
  explicit Gang(int size, milliseconds look_pause = BackgroundConnector::kLookPause) {
    for (int i = 0; i < size; ++i) {
      const auto socket = listen_tcp("127.0.0.1", 0);
      REQUIRE(socket);
      sockets_.emplace_back(socket->fd);
      addresses_.push_back({"127.0.0.1", socket->port});
      connectors_.push_back(std::make_unique<BackgroundConnector>(kSystemClock, look_pause));
    }
  }

  BackgroundConnector& operator[](int process) {
    return *connectors_[static_cast<std::size_t>(process)];
  }
  /// Its process ends: all it has closes.
  void end(int process) { connectors_[static_cast<std::size_t>(process)].reset(); }

  /// `process` wants to be connected with `members`, of which it is one.
  TcpOptions options(std::int64_t epoch, int process, const std::vector<int>& members) const {
    TcpOptions one;
    for (const int member : members) {
      if (member == process) one.rank = static_cast<int>(one.peers.size());
      one.peers.push_back(addresses_[static_cast<std::size_t>(member)]);
    }
    one.listen_fd = sockets_[static_cast<std::size_t>(process)].get();
    one.job_key = kKey;
    one.job_uid = "0b5c7a4e-uid";
    one.epoch = epoch;
    one.connect_deadline = in(kPatience);
    one.clock = &kSystemClock;
    return one;
  }
  void want(std::int64_t epoch, int process, const std::vector<int>& members) {
    (*this)[process].want(options(epoch, process, members));
  }
  Connected wait(std::int64_t epoch, int process) {
    return (*this)[process].wait(epoch, in(kPatience), nullptr);
  }
  /// What all of them have been connected with.
  Ranks wait_all(std::int64_t epoch, const std::vector<int>& processes) {
    Ranks ranks;
    for (const int process : processes) {
      auto connected = wait(epoch, process);
      REQUIRE(connected);
      ranks.push_back(*std::move(connected));
    }
    return ranks;
  }

 private:
  std::vector<UniqueFd> sockets_;
  std::vector<PeerAddress> addresses_;
  std::vector<std::unique_ptr<BackgroundConnector>> connectors_;
};

ErrorCode code_of(const Connected& connected) {
  return connected ? ErrorCode::kInternal : connected.error().code();
}

/// Whether all of them reach each other.
void check_connected(Ranks ranks) {
  const auto statuses = on_all(static_cast<int>(ranks.size()), [&](int rank) {
    return barrier(*ranks[static_cast<std::size_t>(rank)], 1, in(kPatience));
  });
  for (const Status& status : statuses) CHECK_MESSAGE(status, text_of(status));
}

}  // namespace

TEST_CASE("ranks are connected in the background, and each communicator is taken once") {
  Gang gang(3);
  for (int process = 0; process < 3; ++process) gang.want(4, process, {0, 1, 2});
  Ranks ranks;
  for (int process = 0; process < 3; ++process) {
    auto connected = gang.wait(4, process);
    REQUIRE(connected);
    CHECK((*connected)->rank() == process);
    ranks.push_back(*std::move(connected));
    const auto again = gang[process].poll(4);
    REQUIRE(again);
    CHECK(code_of(*again) == ErrorCode::kAborted);
  }
  check_connected(std::move(ranks));
}

TEST_CASE("one who never comes holds nobody up who does something else meanwhile") {
  Gang gang(3);
  gang.want(4, 0, {0, 1, 2});
  gang.want(4, 1, {0, 1, 2});
  CHECK_FALSE(gang[0].poll(4));
  CHECK_FALSE(gang[1].poll(4));
  const auto late = gang[0].wait(4, kSystemClock.mono_now(), nullptr);
  CHECK(code_of(late) == ErrorCode::kDeadlineExceeded);
  CHECK_FALSE(gang[0].poll(4));  // the deadline was that of the wait alone
}

TEST_CASE("a newer epoch calls off the one under way, whoever was missing in it") {
  Gang gang(4);
  gang.want(4, 0, {0, 1, 2});
  gang.want(4, 1, {0, 1, 2});
  gang.want(5, 0, {0, 1, 3});
  gang.want(5, 3, {0, 1, 3});
  const auto overtaken = gang.wait(4, 0);
  CHECK(code_of(overtaken) == ErrorCode::kAborted);
  CHECK_FALSE(gang[1].poll(4));  // it has not heard of the newer one yet
  gang.want(5, 1, {0, 1, 3});
  check_connected(gang.wait_all(5, {0, 1, 3}));
}

TEST_CASE("a joiner dies while it is being connected, and the others connect without it") {
  Gang gang(3);
  for (int process = 0; process < 3; ++process) gang.want(4, process, {0, 1, 2});
  gang.end(2);
  gang.want(5, 0, {0, 1});
  gang.want(5, 1, {0, 1});
  check_connected(gang.wait_all(5, {0, 1}));
}

TEST_CASE("who has taken an epoch that another passes over sees its connections close") {
  for (const bool is_none_wanted : {false, true}) {
    CAPTURE(is_none_wanted);
    Gang gang(2);
    gang.want(4, 0, {0, 1});
    gang.want(4, 1, {0, 1});
    auto taken = gang.wait(4, 1);
    REQUIRE(taken);
    if (is_none_wanted) {
      gang[0].want_none();
    } else {
      gang.want(5, 0, {0});
    }
    const Status met = barrier(**taken, 1, in(kPatience));
    REQUIRE_FALSE(met);
    CHECK(met.error().code() == ErrorCode::kAborted);
  }
}

TEST_CASE("an epoch that was taken stays, whatever is wanted next") {
  Gang gang(2);
  Ranks ranks;
  for (const int process : {0, 1}) gang.want(4, process, {0, 1});
  for (const int process : {0, 1}) {
    auto connected = gang.wait(4, process);
    REQUIRE(connected);
    ranks.push_back(*std::move(connected));
    gang.want(5, process, {process});
  }
  check_connected(std::move(ranks));
}

TEST_CASE("strangers who fill the queue while nobody connects are closed, and peers find room") {
  Gang gang(2, milliseconds{1});
  for (const int process : {0, 1}) gang.want(4, process, {0, 1});
  for (const int process : {0, 1}) REQUIRE(gang.wait(4, process));
  const TcpOptions next = gang.options(5, 0, {0, 1});
  REQUIRE(listen(next.listen_fd, 1) == 0);  // room for two
  const int port = next.peers[0].port;
  const RawSocket silent(port), speaks(port);
  speaks.send("GET / HTTP/1.1");
  for (const RawSocket* stranger : {&silent, &speaks}) {
    REQUIRE(stranger->ok());
    REQUIRE(stranger->read_to_end().empty());
  }
  gang[0].want(next);
  gang.want(5, 1, {0, 1});
  check_connected(gang.wait_all(5, {0, 1}));
}

TEST_CASE("of those who wait to be accepted as many are closed as were counted, the oldest first") {
  const auto socket = listen_tcp("127.0.0.1", 0);
  REQUIRE(socket);
  const UniqueFd listening(socket->fd);
  const auto has_come = [&] {
    pollfd come{listening.get(), POLLIN, 0};
    return ::poll(&come, 1, 30'000) == 1;
  };
  CHECK(count_waiting(listening.get()) == 0);
  CHECK(close_waiting(listening.get(), 8) == 0);
  const RawSocket old(socket->port);
  REQUIRE(has_come());
  CHECK(count_waiting(listening.get()) == 1);
  const RawSocket young(socket->port);
  CHECK(close_waiting(listening.get(), 1) == 1);
  CHECK(old.read_to_end().empty());
  REQUIRE(has_come());
  CHECK(count_waiting(listening.get()) == 1);
  CHECK(close_waiting(listening.get(), 8) == 1);
  CHECK(count_waiting(-1) == 0);
  CHECK(close_waiting(-1, 8) == 0);
}

TEST_CASE("the thread that connects never speaks for the one that trains") {
  Gang gang(2);
  std::atomic<int> calls = 0;
  auto options = gang.options(4, 0, {0, 1});
  options.on_wait = [&] {
    ++calls;
    calls.notify_all();
  };
  gang[0].want(options);
  gang.want(4, 1, {0, 1});
  const auto first = gang.wait(4, 0);
  const auto second = gang.wait(4, 1);
  REQUIRE(first);
  REQUIRE(second);
  CHECK(calls == 0);
  const auto statuses = on_all(2, [&](int rank) {
    if (rank == 1) calls.wait(0);
    const Status met = barrier(rank == 0 ? **first : **second, 1, in(kPatience));
    options.on_wait();  // nobody waits for a first call that never comes
    return met;
  });
  for (const Status& status : statuses) CHECK_MESSAGE(status, text_of(status));

  int waits = 0;
  const auto none = gang[0].wait(9, in(kPatience), [&] { ++waits; });
  CHECK(code_of(none) == ErrorCode::kAborted);
  CHECK(waits == 1);
}

TEST_CASE("an exception while connecting ends no process without a word") {
  class NoMemory final : public Clock {
   public:
    MonoTime mono_now() const override { throw std::bad_alloc(); }
    WallTime wall_now() const override { return {}; }
  };
  const NoMemory clock;
  Gang gang(2);
  auto options = gang.options(4, 1, {0, 1});
  options.clock = &clock;
  gang[1].want(options);
  const auto connected = gang.wait(4, 1);
  REQUIRE(code_of(connected) == ErrorCode::kIo);
  CHECK(connected.error().exit_code() == contract::exit_code::kOutOfMemory);
}

TEST_CASE("what a process lacks itself is told as such") {
  Gang gang(2);
  auto options = gang.options(4, 0, {0, 1});
  options.listen_fd = -1;
  gang[0].want(options);
  const auto connected = gang.wait(4, 0);
  CHECK(code_of(connected) == ErrorCode::kIo);
}

TEST_CASE("what is over has ended before the next epoch is connected, whose room it may take") {
  Gang gang(2);
  for (const int process : {0, 1}) gang.want(4, process, {0, 1});
  auto over = gang.wait(4, 0);
  REQUIRE(over);
  REQUIRE(gang.wait(4, 1));
  gang.want(5, 0, {0, 1});  // nobody comes, so that its thread has no time for what is over
  std::atomic<bool> is_over = false;
  gang[0].end(std::shared_ptr<Communicator>(over->release(), [&](Communicator* one) {
    delete one;
    is_over = true;
  }));
  gang.want(6, 0, {0});
  CHECK(gang.wait(6, 0));
  CHECK(is_over);
}

TEST_CASE("what is over ends beside who trains") {
  Gang gang(2);
  for (const int process : {0, 1}) gang.want(4, process, {0, 1});
  auto first = gang.wait(4, 0);
  REQUIRE(first);
  REQUIRE(gang.wait(4, 1));
  std::latch has_ended(1);
  std::thread::id ended_by;
  const auto end = [&](Communicator* over) {
    ended_by = std::this_thread::get_id();
    delete over;
    has_ended.count_down();
  };
  gang[0].end(std::shared_ptr<Communicator>(first->release(), end));
  gang[0].end(nullptr);
  has_ended.wait();
  CHECK(ended_by != std::this_thread::get_id());

  for (const int process : {0, 1}) gang.want(5, process, {0, 1});
  auto second = gang.wait(5, 0);
  REQUIRE(second);
  REQUIRE(gang.wait(5, 1));
  std::atomic<bool> is_over = false;
  gang[0].end(std::shared_ptr<Communicator>(second->release(), [&](Communicator* over) {
    delete over;
    is_over = true;
  }));
  gang.end(0);  // ends what is left
  CHECK(is_over);
}
