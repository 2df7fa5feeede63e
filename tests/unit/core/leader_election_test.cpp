#include "operator/core/leader_election.h"

#include <doctest/doctest.h>

#include "tests/test_main.h"

using namespace muster;
using core::LeaderElection;
using Role = LeaderElection::Role;

namespace {

constexpr seconds kLease{15};
constexpr milliseconds kRenew{10'000}, kRetry{2'000};

core::ElectionOptions options_of(const std::string& identity) {
  core::ElectionOptions options;
  options.lease = {"muster", "muster-operator"};
  options.identity = identity;
  options.lease_duration = kLease;
  options.renew_deadline = kRenew;
  options.retry_period = kRetry;
  return options;
}

/// The API server's one Lease: writes demand the version they were made from.
struct Server {
  std::optional<api::Lease> lease;
  int version = 0;
  int writes = 0;

  Result<api::Lease> read() const {
    if (!lease) return Error(ErrorCode::kNotFound, "no lease");
    return *lease;
  }
  Result<api::Lease> write(api::Lease wish) {
    const bool creates = wish.meta.resource_version.empty();
    if (creates && lease) return Error(ErrorCode::kAlreadyExists, "there");
    if (!creates && (!lease || lease->meta.resource_version != wish.meta.resource_version)) {
      return Error(ErrorCode::kConflict, "newer");
    }
    wish.meta.resource_version = std::to_string(++version);
    lease = std::move(wish);
    ++writes;
    return *lease;
  }
};

const Error kAway(ErrorCode::kUnavailable, "connection refused");

/// One candidate with a clock of its own rate; what it does reaches the server or not.
struct Candidate {
  Server& server;
  LeaderElection election;
  ManualClock clock;
  bool connected = true;
  bool loses_replies = false;

  Candidate(Server& the_server, const std::string& name, std::uint64_t seed)
      : server(the_server), election(options_of(name), seed) {}

  /// Everything that is due now.
  void work() {
    for (int i = 0; i < 10; ++i) {
      const MonoTime now = clock.mono_now();
      const auto request = election.next(now, clock.wall_now());
      if (std::holds_alternative<LeaderElection::Wait>(request)) return;
      if (const auto* write = std::get_if<LeaderElection::Write>(&request)) {
        Result<api::Lease> done = connected ? server.write(write->lease) : kAway;
        if (loses_replies) done = Error(ErrorCode::kDeadlineExceeded, "no answer in time");
        election.on_written(now, now, done);
      } else {
        election.on_read(now, connected ? server.read() : Result<api::Lease>(kAway));
      }
    }
    FAIL("the election never waits");
  }
  void pass(nanoseconds time) {
    for (nanoseconds gone{0}; gone < time; gone += milliseconds(100)) {
      clock.advance(milliseconds(100));
      work();
    }
  }
  bool may_write() {
    (void)election.next(clock.mono_now(), clock.wall_now());
    return election.role() == Role::kLeader && clock.mono_now() < election.deadline();
  }
};

}  // namespace

TEST_CASE("who comes first leads and keeps leading") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2);
  a.work();
  b.work();
  CHECK(a.election.role() == Role::kLeader);
  CHECK(server.lease->holder == "a@1");
  CHECK(server.lease->transitions == 0);
  for (int i = 0; i < 600; ++i) {
    a.pass(milliseconds(100));
    b.pass(milliseconds(100));
  }
  CHECK(a.may_write());
  CHECK(b.election.role() == Role::kStandby);
  CHECK(b.election.holder() == "a@1");
  // A minute at one renewal in two seconds.
  CHECK(server.writes <= 32);
}

TEST_CASE("a leader that is gone is followed after the lease, not before") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2);
  a.work();
  b.work();
  b.pass(kLease - seconds(1));
  CHECK(b.election.role() == Role::kStandby);
  b.pass(kRetry + seconds(2));
  CHECK(b.election.role() == Role::kLeader);
  CHECK(server.lease->holder == "b@2");
  CHECK(server.lease->transitions == 1);
}

TEST_CASE("a leader that cannot renew stops before another may begin") {
  Server server;
  Candidate a(server, "a@1", 1);
  a.work();
  a.connected = false;
  a.pass(kRenew - seconds(1));
  CHECK(a.may_write());
  a.pass(seconds(2));
  CHECK_FALSE(a.may_write());
  CHECK(a.election.role() == Role::kLost);
  // For ever, even when the connection is back and nobody took over.
  a.connected = true;
  a.pass(seconds(60));
  CHECK(a.election.role() == Role::kLost);
}

TEST_CASE("a renewal counts from when it was sent, however long its answer took") {
  LeaderElection election(options_of("a@1"), 1);
  const MonoTime sent(seconds(100));
  election.on_read(sent, Error(ErrorCode::kNotFound, ""));
  api::Lease lease;
  lease.holder = "a@1";
  election.on_written(sent, sent + seconds(8), lease);
  CHECK(election.role() == Role::kLeader);
  CHECK(election.deadline() == sent + kRenew);
  // Others count from the renewal that they see, which may be that old.
  LeaderElection late(options_of("a@1"), 1);
  late.on_read(sent, Error(ErrorCode::kNotFound, ""));
  late.on_written(sent, sent + kRenew, lease);
  CHECK(late.role() == Role::kStandby);
}

TEST_CASE("a leader that was stopped for long finds itself lost before it does anything") {
  Server server;
  Candidate a(server, "a@1", 1);
  a.work();
  a.clock.advance(seconds(60));
  const int writes = server.writes;
  a.work();
  CHECK(a.election.role() == Role::kLost);
  CHECK(server.writes == writes);
}

TEST_CASE("a leader whose lease was taken is lost at once") {
  Server server;
  Candidate a(server, "a@1", 1);
  a.work();
  auto stolen = *server.lease;
  stolen.holder = "thief@3";
  REQUIRE(server.write(stolen));
  a.pass(kRetry);
  CHECK(a.election.role() == Role::kLost);
}

TEST_CASE("a renewal whose reply was lost is looked up, not counted") {
  Server server;
  Candidate a(server, "a@1", 1);
  a.work();
  a.loses_replies = true;
  a.pass(kRetry);
  a.loses_replies = false;
  a.pass(kRetry * 2);
  CHECK(a.may_write());
  CHECK(server.lease->transitions == 0);
  a.loses_replies = true;
  a.pass(kRenew + seconds(1));
  CHECK(a.election.role() == Role::kLost);
}

TEST_CASE("a lease that was given up is taken at the next look") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2);
  a.work();
  b.work();
  const auto release = a.election.release(a.clock.mono_now(), a.clock.wall_now());
  REQUIRE(release);
  REQUIRE(server.write(release->lease));
  CHECK(server.lease->holder.empty());
  b.pass(kRetry + milliseconds(500));
  CHECK(b.election.role() == Role::kLeader);
  CHECK_FALSE(b.election.release(MonoTime::max(), b.clock.wall_now()));
}

TEST_CASE("times inside the lease prove nothing, and its own duration is respected") {
  Server server;
  api::Lease odd;
  odd.holder = "old@9";
  odd.duration_seconds = 40;
  odd.renew_time = "1999-01-01T00:00:00.000000Z";
  REQUIRE(server.write(odd));
  Candidate b(server, "b@2", 2);
  b.work();
  b.pass(seconds(30));
  CHECK(b.election.role() == Role::kStandby);
  b.pass(seconds(15));
  CHECK(b.election.role() == Role::kLeader);
}

TEST_CASE("a lease that was deleted is made again by its leader") {
  Server server;
  Candidate a(server, "a@1", 1);
  a.work();
  server.lease.reset();
  a.pass(kRetry * 2);
  CHECK(a.may_write());
  CHECK(server.lease->holder == "a@1");
}

TEST_CASE("a lease that was deleted is no one's until whoever had it cannot write any more") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2);
  a.work();
  b.work();
  // The leader lives: it makes its Lease anew before anybody else.
  server.lease.reset();
  b.pass(kRetry * 3);
  CHECK(b.election.role() == Role::kStandby);
  CHECK(b.election.holder() == "");
  a.pass(kRetry * 2);
  REQUIRE(server.lease);
  CHECK(server.lease->holder == "a@1");
  b.pass(kRetry * 2);
  CHECK(b.election.holder() == "a@1");
  // The leader is gone, too.
  server.lease.reset();
  b.pass(kLease);
  CHECK(b.election.role() == Role::kStandby);
  b.pass(kRetry * 3);
  CHECK(b.election.role() == Role::kLeader);
  CHECK(server.lease->holder == "b@2");
  CHECK(server.lease->transitions == 1);
}

TEST_CASE("a renewal that nobody saw before the lease was deleted counts") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2);
  a.work();
  b.work();
  b.connected = false;
  a.pass(kLease);
  b.pass(kLease);
  server.lease.reset();
  a.connected = false;
  b.connected = true;
  b.pass(kRetry * 2);
  CHECK(a.may_write());
  CHECK_FALSE(b.may_write());
}

TEST_CASE("what was given up may have been taken before it was deleted") {
  Server server;
  Candidate a(server, "a@1", 1), b(server, "b@2", 2), c(server, "c@3", 3);
  a.work();
  c.work();
  REQUIRE(server.write(a.election.release(a.clock.mono_now(), a.clock.wall_now())->lease));
  const auto given_up = server.read();
  c.election.on_read(c.clock.mono_now(), given_up);
  b.work();
  REQUIRE(b.may_write());
  server.lease.reset();
  c.work();
  c.pass(kRetry * 2);
  CHECK_FALSE(c.may_write());
}

TEST_CASE("two never may write at once, whatever is stopped, cut off, lost or deleted") {
  Rng rng(test::seed());
  for (int round = 0; round < 200; ++round) {
    Server server;
    Candidate a(server, "a@1", rng()), b(server, "b@2", rng());
    // Who has never seen a Lease cannot know that one was deleted.
    a.work();
    b.work();
    // Once: of a Lease that is made anew and deleted again between two looks nobody can know.
    const std::uint64_t deletion = rng.below(100);
    for (std::uint64_t i = 0; i < 400; ++i) {
      if (i == deletion) server.lease.reset();
      // Clock rates differ by a tenth; deadlines leave a third.
      for (auto* one : {&a, &b}) {
        const bool is_stopped = rng.below(4) == 0;
        one->clock.advance(milliseconds(one == &a ? 500 : 550));
        one->connected = rng.below(3) != 0;
        one->loses_replies = rng.below(5) == 0;
        if (!is_stopped) one->work();
      }
      REQUIRE_FALSE((a.may_write() && b.may_write()));
    }
  }
}
