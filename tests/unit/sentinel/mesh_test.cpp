#include "worker/sentinel/mesh.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

const std::string kKey(64, 'a');
constexpr WorkerId kTaker{7, 3};

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

/// A sentinel of nobody's at 127.0.0.`last`, which says and hears bytes.
class Datagrams {
 public:
  explicit Datagrams(int last = 1) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = at(last, 0);
    socklen_t size = sizeof address;
    REQUIRE(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  int port() const { return port_; }
  void send(int port, std::span<const std::byte> bytes) const {
    const sockaddr_in to = at(1, port);
    REQUIRE(sendto(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                   sizeof to) >= 0);
  }
  struct Heard {
    int port = 0;
    std::vector<std::byte> bytes;
  };
  /// The next one; nothing when there is none now.
  std::optional<Heard> hear() const {
    std::vector<std::byte> bytes(65'536);
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t got = recvfrom(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&from), &size);
    if (got < 0) return std::nullopt;
    bytes.resize(static_cast<std::size_t>(got));
    return Heard{ntohs(from.sin_port), std::move(bytes)};
  }

 private:
  static sockaddr_in at(int last, int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(0x7f000000U + static_cast<std::uint32_t>(last));
    return address;
  }
  UniqueFd fd_;
  int port_ = 0;
};

}  // namespace

TEST_CASE("peers that cannot be spoken to take no room from those that can") {
  auto one = Mesh::open("127.0.0.1"), other = Mesh::open("127.0.0.1");
  REQUIRE((one && other));
  one->set_seal(MeshSeal(kKey, "uid", {1, 0}));
  other->set_seal(MeshSeal(kKey, "uid", {20'000, 0}));
  for (int slot = 0; slot < 10'000; ++slot) {
    one->send({slot, 0}, "nowhere", 1, beat_of({1, 0}, 1));
  }
  one->send({20'000, 0}, "127.0.0.1", other->port(), beat_of({1, 0}, 2));
  const auto received = wait_for(*other);
  REQUIRE(received.messages.size() == 1);
  CHECK(received.messages[0].sequence == 2);
}

TEST_CASE("a message is taken once, in whatever order, and only under the job's key") {
  MeshSeal seal(kKey, "uid", {1, 0});
  MeshSeal other_key(std::string(64, 'b'), "uid", kTaker), other_job(kKey, "another", kTaker);
  MeshDrops drops;
  const auto datagram = [&](std::uint64_t sequence) {
    return seal.seal(kTaker, encode(beat_of({1, 0}, sequence)));
  };
  MeshSeal taker(kKey, "uid", kTaker);
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
  CHECK(drops.garbage + drops.misdirected == 0);
}

TEST_CASE("what was said to one worker cannot be played to another, nor to who comes after it") {
  MeshSeal seal(kKey, "uid", {1, 0});
  MeshDrops drops;
  const auto heard = seal.seal(kTaker, encode(beat_of({1, 0}, 1)));
  for (const WorkerId other : {WorkerId{7, 4}, WorkerId{6, 3}}) {
    MeshSeal taker(kKey, "uid", other);
    CHECK_FALSE(taker.open(heard, drops));
    // Nor with another name on it: who receives it is under the key, too.
    auto renamed = heard;
    const auto to_other = seal.seal(other, {});
    std::copy(to_other.end() - 8, to_other.end(), renamed.begin() + 36);
    CHECK_FALSE(taker.open(renamed, drops));
  }
  CHECK(drops.misdirected == 2);
  CHECK(drops.unauthorized == 2);
}

TEST_CASE("what is for another worker says nothing about keys") {
  auto mesh = Mesh::open("127.0.0.1");
  REQUIRE(mesh);
  mesh->set_seal(MeshSeal(kKey, "uid", {0, 1}));
  const Datagrams late;
  const MeshSeal other(std::string(64, 'b'), "uid", {1, 0});
  late.send(mesh->port(), other.seal({0, 0}, encode(beat_of({1, 0}, 1))));
  CHECK(wait_for(*mesh).strangers.empty());
  CHECK_FALSE(late.hear());
  CHECK(mesh->drops().misdirected == 1);
}

TEST_CASE(
    "workers are replaced for ever: the newest are heard, and of the forgotten nothing is taken") {
  MeshSeal seal(kKey, "uid", {1, 0}), taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto take = [&](WorkerId from, std::uint64_t sequence) {
    return taker.open(seal.seal(kTaker, encode(beat_of(from, sequence))), drops).has_value();
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
  MeshSeal seal(kKey, "uid", kTaker);
  Rng rng(test::seed());
  MeshDrops drops;
  const std::vector<std::byte> good = seal.seal(kTaker, encode(beat_of({1, 0}, 1)));
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> bad = good;
    bad[rng.below(bad.size())] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(seal.open(bad, drops));
    bad.resize(rng.below(good.size()));
    CHECK_FALSE(seal.open(bad, drops));
  }
  CHECK(drops.garbage + drops.unauthorized + drops.misdirected == 1'000);
  CHECK_FALSE(
      seal.open(seal.seal(kTaker, std::vector<std::byte>(40)), drops));  // sealed, and no message
  CHECK(seal.open(good, drops));
}

TEST_CASE("sentinels hear each other, and learn from the kernel that one is gone") {
  auto first = Mesh::open("127.0.0.1");
  REQUIRE(first);
  first->set_seal(MeshSeal(kKey, "uid", {0, 0}));
  int port = 0;
  {
    auto second = Mesh::open("127.0.0.1");
    REQUIRE(second);
    second->set_seal(MeshSeal(kKey, "uid", {1, 0}));
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

TEST_CASE("who has another key, or is of another job, is named by its address and told so") {
  std::string key = kKey, uid = "uid";
  SUBCASE("another key") { key.assign(64, 'b'); }
  SUBCASE("another job") { uid = "another"; }
  auto member = Mesh::open("127.0.0.1");
  auto joiner = Mesh::open("127.0.0.1");
  REQUIRE((member && joiner));
  member->set_seal(MeshSeal(kKey, "uid", {0, 0}));
  joiner->set_seal(MeshSeal(key, uid, {1, 0}));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    joiner->send({0, 0}, "127.0.0.1", member->port(), beat_of({1, 0}, i));
  }
  const auto got = wait_for(*member);
  CHECK(got.messages.empty());
  CHECK(got.strangers == std::vector<std::string>{"127.0.0.1"});
  const auto answer = wait_for(*joiner);
  CHECK(answer.messages.empty());
  CHECK(answer.strangers.empty());
  CHECK(answer.refused.empty());
  CHECK(answer.unauthorized == std::vector<WorkerId>{{0, 0}});
}

TEST_CASE("only who was sent a datagram can say that its key is another one") {
  auto mesh = Mesh::open("127.0.0.1");
  REQUIRE(mesh);
  mesh->set_seal(MeshSeal(kKey, "uid", {0, 0}));
  const Datagrams other;
  mesh->send({1, 0}, "127.0.0.1", other.port(), beat_of({0, 0}, 1));
  const auto sent = other.hear();
  REQUIRE(sent);
  const Echo echo = echo_of(sent->bytes);
  auto right = make_refusal(echo);
  CHECK(right.size() < sent->bytes.size());
  std::vector<std::vector<std::byte>> wrong;
  wrong.emplace_back();
  wrong.emplace_back(right.begin(), right.end() - 1);
  wrong.emplace_back(right.begin(), right.end()).push_back(std::byte{0});
  for (const std::size_t at : {std::size_t{0}, right.size() - 1}) {
    wrong.emplace_back(right.begin(), right.end())[at] ^= std::byte{1};
  }
  const auto zero = make_refusal({});
  wrong.emplace_back(zero.begin(), zero.end());
  for (const auto& bytes : wrong) {
    other.send(sent->port, bytes);
    CHECK(wait_for(*mesh).unauthorized.empty());
  }
  // Nor does it count where it was not asked.
  other.send(mesh->port(), right);
  CHECK(wait_for(*mesh).unauthorized.empty());
  CHECK(mesh->drops().garbage == 1);
  other.send(sent->port, right);
  CHECK(wait_for(*mesh).unauthorized == std::vector<WorkerId>{{1, 0}});
}

TEST_CASE(
    "garbage is neither answered nor anybody's, and of many strangers few are heard at once") {
  auto mesh = Mesh::open("127.0.0.1");
  REQUIRE(mesh);
  mesh->set_seal(MeshSeal(kKey, "uid", {0, 0}));
  const Datagrams noise;
  const std::vector<std::byte> garbage(100, std::byte{'M'});
  noise.send(mesh->port(), garbage);
  CHECK(wait_for(*mesh).strangers.empty());
  CHECK_FALSE(noise.hear());
  const MeshSeal other(std::string(64, 'b'), "uid", {1, 0});
  std::vector<Datagrams> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.emplace_back(i + 1);
    strangers.back().send(mesh->port(), other.seal({0, 0}, encode(beat_of({1, 0}, 1))));
  }
  CHECK(wait_for(*mesh).strangers.size() == Mesh::kMaxStrangers);
  CHECK(mesh->drops().unauthorized == 20);
  const auto answered = std::count_if(strangers.begin(), strangers.end(),
                                      [](const Datagrams& one) { return one.hear().has_value(); });
  CHECK(answered == Mesh::kMaxStrangers);
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
  first->set_seal(MeshSeal(kKey, "uid", {0, 0}));
  second->set_seal(MeshSeal(kKey, "uid", {1, 1}));
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
  while (heard + second->drops().misdirected < sequence) {
    heard += wait_for(*second).messages.size();
  }
  CHECK(heard == 101);  // those to itself
}

TEST_CASE("an address that is none is refused") { CHECK_FALSE(Mesh::open("somewhere")); }
