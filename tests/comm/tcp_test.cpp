// The TCP transport with ranks as threads: what every transport must do, and how ranks meet.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "common/listen.h"
#include "tests/comm/tcp_ranks.h"

using namespace muster;
using namespace muster::comm;
using namespace muster::test;

namespace {
// One header a message, and messages of up to 3 frames in the cases.
constexpr std::uint64_t kOverhead = std::uint64_t{56} * 3 * 2 * 6;
}  // namespace

TEST_CASE_TEMPLATE("ranks exchange pieces of any size by the collectives", Way, Connection,
                   SharedMemory) {
  for (const int size : {1, 2, 3, 4}) {
    Ranks ranks = connected_ranks<Way>(size);
    for (const auto& rank : ranks)
      CHECK(rank->shares_memory() == (Way::shares_memory || size == 1));
    run_collectives(ranks, kSystemClock);
  }
}

TEST_CASE_TEMPLATE("several buffers for one peer arrive in order, however they are cut", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  run_uneven_pieces(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("two groups under way at once are kept apart", Way, Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  run_two_groups(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("a group is waited for in parts: what some have sent is there before the rest",
                   Way, Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  run_waits_for_some(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("some of a subset are waited for by their ranks there", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  run_waits_for_some_of_subset(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("some of the ranks are a communicator of their own", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(6);
  run_subsets(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("a length that the other side does not expect is corrupt", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  run_length_mismatch(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("an aborted rank ends the transfers of the others at once", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  run_abort(ranks, kSystemClock);
}

TEST_CASE_TEMPLATE("bytes sent are those of the messages and their headers, and no more", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  run_bytes_sent(ranks, kSystemClock, kOverhead);
}

TEST_CASE_TEMPLATE("a message of 9 KB costs less than 2 % more on the wire", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  const std::uint64_t before = ranks[0]->sent_bytes();
  const auto results = on_all(2, [&](int rank) -> Status {
    std::vector<std::byte> buffer(19'000);
    const std::vector<std::size_t> offsets{0, 9500, 19'000};
    for (std::uint64_t step = 0; step < 100; ++step) {
      MUSTER_RETURN_IF_ERROR(
          all_gather(*ranks[static_cast<std::size_t>(rank)], step, buffer, offsets, in(kPatience)));
    }
    return {};
  });
  for (const Status& result : results) CHECK_MESSAGE(result, text_of(result));
  const std::uint64_t sent = ranks[0]->sent_bytes() - before;
  CHECK(sent >= 950'000);
  CHECK(sent <= 950'000 * 102 / 100);
}

TEST_CASE_TEMPLATE("the handshake costs less than 200 bytes a connection", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  CHECK(ranks[0]->sent_bytes() > 0);
  CHECK(ranks[0]->sent_bytes() < 200);
  CHECK(ranks[1]->sent_bytes() < 200);
}

TEST_CASE_TEMPLATE("a rank that is done and gone does not take its last messages with it", Way,
                   Connection, SharedMemory) {
  for (int round = 0; round < 20; ++round) {
    Ranks ranks = connected_ranks<Way>(3);
    const auto results = on_all(3, [&](int rank) -> Status {
      auto& self = ranks[static_cast<std::size_t>(rank)];
      std::vector<std::byte> buffer(600'000);
      const std::vector<std::size_t> offsets{0, 200'000, 400'000, 600'000};
      const Status gathered = all_gather(*self, 1, buffer, offsets, in(kPatience));
      self.reset();
      return gathered;
    });
    for (const Status& result : results) CHECK_MESSAGE(result, text_of(result));
  }
}

TEST_CASE_TEMPLATE("a transfer with a rank that has left is aborted", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  ranks[1].reset();
  const Status left = barrier(*ranks[0], 1, in(kPatience));
  REQUIRE_FALSE(left);
  CHECK(left.error().code() == ErrorCode::kAborted);
  CHECK(left.error().message().find("rank 1 was lost") != std::string::npos);
}

namespace {

/// From rank 1 to rank 0, of far more than the sockets hold: who sends is done only when the other
/// has read. Both have been started.
struct LargeTransfer {
  LargeTransfer(Ranks& ranks, std::size_t bytes) : out(bytes, std::byte{9}), into(bytes) {
    const SendBuffer send{0, out.data(), out.size()};
    const ReceiveBuffer receive{1, into.data(), into.size()};
    auto reading = ranks[0]->start(1, Memory::kHost, {}, {&receive, 1});
    auto writing = ranks[1]->start(1, Memory::kHost, {&send, 1}, {});
    REQUIRE(reading);
    REQUIRE(writing);
    reads = *std::move(reading);
    writes = *std::move(writing);
  }

  std::vector<std::byte> out, into;
  std::unique_ptr<Work> reads, writes;
};

}  // namespace

TEST_CASE_TEMPLATE("a large transfer goes on while its rank does something else than wait", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  LargeTransfer large(ranks, 64 << 20);
  large.reads->proceed_alone();
  const Status written = large.writes->wait(in(kPatience));
  CHECK_MESSAGE(written, text_of(written));
  const Status read = large.reads->wait(in(kPatience));
  CHECK_MESSAGE(read, text_of(read));
  CHECK(large.into == large.out);
}

TEST_CASE_TEMPLATE("who is waited for is told by rank; what was there before costs nothing", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  CHECK(ranks[0]->waited_seconds() == std::vector<double>{0, 0, 0});
  std::vector<std::byte> early(100), late(100);
  const ReceiveBuffer from_early{2, early.data(), early.size()};
  const ReceiveBuffer from_late{1, late.data(), late.size()};
  const auto send = [&](std::size_t rank, std::uint64_t step) {
    const std::vector<std::byte> out(100, std::byte{3});
    const SendBuffer to{0, out.data(), out.size()};
    for (std::uint64_t before = 1; before < step; ++before) {
      REQUIRE(ranks[rank]->start(before, Memory::kHost, {}, {}));  // groups are counted by all
    }
    auto work = ranks[rank]->start(step, Memory::kHost, {&to, 1}, {});
    REQUIRE(work);
    CHECK((*work)->wait(in(kPatience)));
  };
  auto first = ranks[0]->start(1, Memory::kHost, {}, {&from_early, 1});
  auto second = ranks[0]->start(2, Memory::kHost, {}, {&from_late, 1});
  REQUIRE(first);
  REQUIRE(second);
  std::thread others([&] {
    send(2, 1);
    send(1, 2);
  });
  CHECK((*second)->wait(in(kPatience)));
  CHECK((*first)->wait(in(kPatience)));
  others.join();
  const std::vector<double> waited = ranks[0]->waited_seconds();
  CHECK(waited[0] == 0);
  CHECK(waited[1] > 0);
  CHECK(waited[2] == 0);
}

TEST_CASE_TEMPLATE("how fast large messages come over a connection is told, and no other's", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(3);
  const std::size_t small = kLargeMessage - 1, large = std::size_t{8} << 20;
  double rate = 0;
  // One that comes while its reader is kept from its processor is not timed.
  for (std::uint64_t step = 1; step == 1 || (rate == 0 && step < 1000); ++step) {
    const auto results = on_all(3, [&](int rank) -> Status {
      std::vector<std::byte> from_small(small), from_large(large);
      const std::size_t own = rank == 1 ? small : large;
      const SendBuffer send{0, from_large.data(), own};
      const std::vector<ReceiveBuffer> receives{{1, from_small.data(), small},
                                                {2, from_large.data(), large}};
      const std::size_t sent = rank == 0 ? 0 : 1, received = rank == 0 ? receives.size() : 0;
      MUSTER_ASSIGN_OR_RETURN(auto work, ranks[static_cast<std::size_t>(rank)]->start(
                                             step, Memory::kHost, std::span(&send, sent),
                                             std::span(receives.data(), received)));
      return work->wait(in(kPatience));
    });
    for (const Status& result : results) REQUIRE_MESSAGE(result, text_of(result));
    const std::vector<Arrivals> arrivals = ranks[0]->take_arrivals();
    REQUIRE(arrivals.size() == 3);
    CHECK(arrivals[0] == Arrivals{});
    CHECK(arrivals[1] == Arrivals{});
    CHECK(arrivals[2].bytes == (Way::shares_memory ? 0 : large));
    rate = arrivals[2].bytes_per_second;
    if (Way::shares_memory) break;
  }
  CHECK((rate > 0) != Way::shares_memory);
  CHECK(ranks[0]->take_arrivals() == std::vector<Arrivals>(3));
  CHECK(ranks[2]->take_arrivals() == std::vector<Arrivals>(3));
}

TEST_CASE_TEMPLATE("a wait whose deadline passes names the rank and ends the communicator", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  std::vector<std::byte> buffer(1000);
  const ReceiveBuffer receive{1, buffer.data(), buffer.size()};
  auto work = ranks[0]->start(4, Memory::kHost, {}, {&receive, 1});
  REQUIRE(work);
  const Status late = (*work)->wait(in(milliseconds(5)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kDeadlineExceeded);
  CHECK(late.error().message().find("from rank 1 0 of 1000 bytes (step 4)") != std::string::npos);
  CHECK_FALSE(barrier(*ranks[0], 5, in(kPatience)));
  const Status other = barrier(*ranks[1], 1, in(kPatience));
  REQUIRE_FALSE(other);
  CHECK(other.error().code() == ErrorCode::kAborted);
}

namespace {

/// Each look at it takes a twentieth of a second.
class ImpatientClock final : public Clock {
 public:
  MonoTime mono_now() const override { return MonoTime(milliseconds(50) * ++looks_); }
  WallTime wall_now() const override { return {}; }

 private:
  mutable std::atomic<int> looks_{0};
};

}  // namespace

TEST_CASE_TEMPLATE("a deadline waits for what is large as long as it moves", Way, Connection,
                   SharedMemory) {
  const ImpatientClock clock;
  auto options = tcp_options<Way>(2);
  options[0].clock = &clock;
  options[0].connect_deadline = MonoTime(kPatience * 100);
  Ranks ranks;
  for (const Status& status : try_connect(options, ranks)) {
    REQUIRE_MESSAGE(status, text_of(status));
  }
  LargeTransfer large(ranks, 128 << 20);
  large.writes->proceed_alone();
  // A hundred looks, and one look moves a frame at most.
  const Status read = large.reads->wait(clock.mono_now() + seconds(5));
  CHECK_MESSAGE(read, text_of(read));
  CHECK(large.writes->wait(in(kPatience)));
  CHECK(large.into == large.out);
}

TEST_CASE_TEMPLATE("a large send to a rank that does not read ends by its deadline", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  const std::vector<std::byte> much(64 << 20);
  const SendBuffer send{1, much.data(), much.size()};
  auto work = ranks[0]->start(1, Memory::kHost, {&send, 1}, {});
  REQUIRE(work);
  const Status late = (*work)->wait(in(milliseconds(50)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kDeadlineExceeded);
}

TEST_CASE_TEMPLATE("a group given up before its end aborts, and its buffers are let go", Way,
                   Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  {
    std::vector<std::byte> buffer(5'000'000);
    const ReceiveBuffer receive{1, buffer.data(), buffer.size()};
    auto work = ranks[0]->start(1, Memory::kHost, {}, {&receive, 1});
    REQUIRE(work);
  }
  const std::vector<std::byte> much(5'000'000);
  const SendBuffer send{0, much.data(), much.size()};
  auto work = ranks[1]->start(1, Memory::kHost, {&send, 1}, {});
  if (work) {
    const Status gone = (*work)->wait(in(kPatience));
    REQUIRE_FALSE(gone);
    CHECK(gone.error().code() == ErrorCode::kAborted);
  } else {
    CHECK(work.error().code() == ErrorCode::kAborted);
  }
  CHECK_FALSE(barrier(*ranks[0], 2, in(kPatience)));
}

TEST_CASE_TEMPLATE("a group of transfers may outlive its communicator", Way, Connection,
                   SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  std::vector<std::byte> buffer(1000);
  const ReceiveBuffer receive{1, buffer.data(), buffer.size()};
  auto work = ranks[0]->start(1, Memory::kHost, {}, {&receive, 1});
  REQUIRE(work);
  ranks[0].reset();
  const Status gone = (*work)->wait(in(kPatience));
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code() == ErrorCode::kAborted);
}

TEST_CASE_TEMPLATE("abort from another thread wakes a wait", Way, Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(2);
  const auto results = on_all(2, [&](int thread) -> Status {
    if (thread == 0) return barrier(*ranks[0], 1, in(kPatience));
    ranks[0]->abort();
    return {};
  });
  REQUIRE_FALSE(results[0]);
  CHECK(results[0].error().code() == ErrorCode::kAborted);
}

TEST_CASE_TEMPLATE("device memory is refused", Way, Connection, SharedMemory) {
  Ranks ranks = connected_ranks<Way>(1);
  const auto work = ranks[0]->start(1, Memory::kCuda, {}, {});
  REQUIRE_FALSE(work);
  CHECK(work.error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("ranks of which one shares no memory meet all the same, whoever dials") {
  for (std::size_t without = 0; without < 2; ++without) {
    std::vector<TcpOptions> options = tcp_options<SharedMemory>(2);
    options[without].shares_memory = false;
    Ranks ranks;
    for (const Status& status : try_connect(options, ranks)) {
      REQUIRE_MESSAGE(status, text_of(status));
    }
    CHECK_FALSE(ranks[0]->shares_memory());
    run_collectives(ranks, kSystemClock);
  }
}

TEST_CASE("ranks under one address are on one host, also those of a part of them") {
  std::vector<TcpOptions> options = tcp_options(3);
  const auto elsewhere = listen_tcp("127.0.0.2", 0);
  REQUIRE(elsewhere);
  close(std::exchange(options[1].listen_fd, elsewhere->fd));
  for (TcpOptions& one : options) one.peers[1] = {"127.0.0.2", elsewhere->port};
  Ranks ranks;
  for (const Status& status : try_connect(options, ranks)) REQUIRE_MESSAGE(status, text_of(status));
  for (const auto& rank : ranks) CHECK(rank->hosts() == std::vector<int>{0, 1, 0});
  CHECK(make_subset(*ranks[2], {1, 2}, 1)->hosts() == std::vector<int>{1, 0});
}

TEST_CASE("options that cannot be right are refused before anything is connected") {
  const auto refused = [](auto change) {
    std::vector<TcpOptions> options = tcp_options(2);
    change(options[0]);
    const auto made = make_tcp_communicator(options[0]);
    close(options[1].listen_fd);
    REQUIRE_FALSE(made);
    return made.error().code() == ErrorCode::kInvalid;
  };
  CHECK(refused([](TcpOptions& o) { o.rank = 2; }));
  CHECK(refused([](TcpOptions& o) { o.rank = -1; }));
  CHECK(refused([](TcpOptions& o) { o.job_key = "short"; }));
  CHECK(refused([](TcpOptions& o) { o.epoch = -1; }));
  CHECK(refused([](TcpOptions& o) { o.peers[1].port = 0; }));
  CHECK(refused([](TcpOptions& o) { o.peers[1].host.clear(); }));
}
