#include <doctest/doctest.h>

#include "tests/comm/collective_cases.h"
#include "worker/comm/communicator.h"

using namespace muster;
using namespace muster::comm;

namespace {

const SystemClock kClock;
MonoTime in(nanoseconds time) { return kClock.mono_now() + time; }

}  // namespace

TEST_CASE("ranks in one process exchange pieces of any size by the collectives") {
  for (const int size : {1, 2, 3, 4, 7}) {
    auto ranks = make_local_communicators(size, kClock);
    test::run_collectives(ranks, kClock);
  }
}

TEST_CASE("several buffers for one peer arrive in order, however they are cut on the other side") {
  auto ranks = make_local_communicators(2, kClock);
  test::run_uneven_pieces(ranks, kClock);
}

TEST_CASE("two groups under way at once are kept apart") {
  auto ranks = make_local_communicators(2, kClock);
  test::run_two_groups(ranks, kClock);
}

TEST_CASE("a group is waited for in parts: what some have sent is there before the rest") {
  auto ranks = make_local_communicators(3, kClock);
  test::run_waits_for_some(ranks, kClock);
}

TEST_CASE("some of a subset are waited for by their ranks there") {
  auto ranks = make_local_communicators(3, kClock);
  test::run_waits_for_some_of_subset(ranks, kClock);
}

TEST_CASE("some of the ranks are a communicator of their own, as often as they meet") {
  auto ranks = make_local_communicators(6, kClock);
  test::run_subsets(ranks, kClock);
}

TEST_CASE(
    "a length that the other side does not expect is corrupt on one side and ends the other") {
  auto ranks = make_local_communicators(2, kClock);
  test::run_length_mismatch(ranks, kClock);
}

TEST_CASE("an aborted rank ends the transfers of those that wait for it, and nobody hangs") {
  auto ranks = make_local_communicators(3, kClock);
  test::run_abort(ranks, kClock);
}

TEST_CASE("a wait whose deadline passes says so and ends the communicator") {
  auto ranks = make_local_communicators(2, kClock);
  const Status late = barrier(*ranks[0], 1, in(milliseconds(5)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kDeadlineExceeded);
  const Status after = barrier(*ranks[0], 2, in(seconds(10)));
  REQUIRE_FALSE(after);
  CHECK(after.error().code() == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("bytes sent are the bytes of the pieces for others") {
  auto ranks = make_local_communicators(3, kClock);
  test::run_bytes_sent(ranks, kClock, 0);
}

TEST_CASE("ranks in one process are on the hosts that a test says") {
  const auto ranks = make_local_communicators(3, kClock, {4, 4, 2});
  CHECK(ranks[1]->hosts() == std::vector<int>{4, 4, 2});
  CHECK(make_subset(*ranks[2], {0, 2}, 1)->hosts() == std::vector<int>{4, 2});
  CHECK(make_local_communicators(2, kClock)[0]->hosts().empty());
}

TEST_CASE("device memory is refused by a transport for host memory") {
  auto ranks = make_local_communicators(2, kClock);
  const auto work = ranks[0]->start(1, Memory::kCuda, {}, {});
  REQUIRE_FALSE(work);
  CHECK(work.error().code() == ErrorCode::kUnsupported);
}
