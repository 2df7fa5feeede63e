#include "worker/sentinel/mesh.h"

#include <doctest/doctest.h>

#include <poll.h>

#include <filesystem>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

const std::string kKey(64, 'a');

const Pace kPace{5,
                 99,
                 1,
                 4,
                 microseconds(50),
                 microseconds(1),
                 microseconds(40),
                 microseconds(2),
                 microseconds(8),
                 true,
                 microseconds(3),
                 {{0, microseconds(30)}, {2, microseconds(4)}}};

Message beat_of(WorkerId from, std::uint64_t sequence) {
  Beat beat;
  beat.self = {from, "127.0.0.1", 7, 2, {{0, 3, 21}, {1, 0, 22}}};
  beat.unheard = {1, 4};
  beat.dead = {{4, 2}};
  beat.newcomers = {{9, 1}};
  beat.paces = {kPace};
  return {from, sequence, 5, beat};
}

/// What arrives within 30 s, as soon as something does.
Mesh::Received wait_for(Mesh& mesh) {
  pollfd ready{mesh.event_fd(), POLLIN, 0};
  REQUIRE(poll(&ready, 1, 30'000) == 1);
  return mesh.receive();
}

}  // namespace

TEST_CASE("a message is taken once, in whatever order, and only under the job's key") {
  MeshSeal seal(kKey, "uid");
  MeshSeal other_key(std::string(64, 'b'), "uid"), other_job(kKey, "another");
  MeshDrops drops;
  const auto datagram = [&](std::uint64_t sequence) {
    return seal.seal(encode(beat_of({1, 0}, sequence)));
  };
  MeshSeal taker(kKey, "uid");
  for (const std::uint64_t sequence : {1, 100, 99, 37, 101}) {
    const auto message = taker.open(datagram(sequence), drops);
    REQUIRE(message);
    CHECK(message->sequence == sequence);
    CHECK(std::get<Beat>(message->body).self.trainers[0].incarnation == 3);
    CHECK(std::get<Beat>(message->body).paces == std::vector<Pace>{kPace});
    CHECK_FALSE(taker.open(datagram(sequence), drops));
  }
  CHECK_FALSE(taker.open(datagram(36), drops));  // too old to tell
  CHECK(drops.repeated == 6);
  CHECK_FALSE(other_key.open(datagram(200), drops));
  CHECK_FALSE(other_job.open(datagram(200), drops));
  CHECK(drops.unauthorized == 2);
  CHECK(drops.garbage == 0);
}

TEST_CASE(
    "workers are replaced for ever: the newest are heard, and of the forgotten nothing is taken") {
  MeshSeal seal(kKey, "uid"), taker(kKey, "uid");
  MeshDrops drops;
  const auto take = [&](WorkerId from, std::uint64_t sequence) {
    return taker.open(seal.seal(encode(beat_of(from, sequence))), drops).has_value();
  };
  for (int attempt = 0; attempt < 20'000; ++attempt) REQUIRE(take({1, attempt}, 1));
  CHECK_FALSE(take({1, 19'999}, 1));
  CHECK(take({1, 19'998}, 2));
  CHECK_FALSE(take({1, 19'998}, 2));
  CHECK_FALSE(take({1, 5}, 1));  // a replay
  CHECK_FALSE(take({1, 5}, 1'000));
  CHECK(take({2, 0}, 1));
  CHECK_FALSE(take({4'096, 0}, 1));  // no such slot
}

TEST_CASE("changed, cut and foreign datagrams are dropped and counted") {
  MeshSeal seal(kKey, "uid");
  Rng rng(test::seed());
  MeshDrops drops;
  const std::vector<std::byte> good = seal.seal(encode(beat_of({1, 0}, 1)));
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> bad = good;
    bad[rng.below(bad.size())] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(seal.open(bad, drops));
    bad.resize(rng.below(good.size()));
    CHECK_FALSE(seal.open(bad, drops));
  }
  CHECK(drops.garbage + drops.unauthorized == 1'000);
  CHECK_FALSE(seal.open(seal.seal(std::vector<std::byte>(40)), drops));  // sealed, and no message
  CHECK(seal.open(good, drops));
}

TEST_CASE("sentinels hear each other, and learn from the kernel that one is gone") {
  auto first = Mesh::open("127.0.0.1");
  REQUIRE(first);
  first->set_seal(MeshSeal(kKey, "uid"));
  int port = 0;
  {
    auto second = Mesh::open("127.0.0.1");
    REQUIRE(second);
    second->set_seal(MeshSeal(kKey, "uid"));
    port = second->port();
    first->send({1, 0}, "127.0.0.1", port, beat_of({0, 0}, 1));
    const auto got = wait_for(*second);
    REQUIRE(got.messages.size() == 1);
    CHECK((got.messages[0].from == WorkerId{0, 0}));
    CHECK(got.refused.empty());
  }
  first->send({1, 0}, "127.0.0.1", port, beat_of({0, 0}, 2));
  const auto gone = wait_for(*first);
  REQUIRE(gone.refused.size() == 1);
  CHECK((gone.refused[0] == WorkerId{1, 0}));
  first->send({2, 0}, "not an address", port, beat_of({0, 0}, 3));  // costs nothing
}

TEST_CASE("workers that are replaced again and again leave no descriptor behind") {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  auto first = Mesh::open("127.0.0.1");
  auto second = Mesh::open("127.0.0.1");
  REQUIRE(first);
  REQUIRE(second);
  first->set_seal(MeshSeal(kKey, "uid"));
  second->set_seal(MeshSeal(kKey, "uid"));
  const auto before = descriptors();
  std::uint64_t sequence = 0;
  for (int attempt = 1; attempt <= 100; ++attempt) {
    for (const int slot : {1, 2}) {
      first->send({slot, attempt}, "127.0.0.1", second->port(), beat_of({0, 0}, ++sequence));
      // An old one is answered, too.
      first->send({slot, 1}, "127.0.0.1", second->port(), beat_of({0, 0}, ++sequence));
    }
  }
  CHECK(descriptors() - before <= 8);
  std::size_t heard = 0;
  while (heard < sequence) {
    const std::size_t more = wait_for(*second).messages.size();
    REQUIRE(more > 0);
    heard += more;
  }
}

TEST_CASE("an address that is none is refused") { CHECK_FALSE(Mesh::open("somewhere")); }
