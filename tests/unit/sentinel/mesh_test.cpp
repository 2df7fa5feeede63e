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

/// `message` of any bytes as the one datagram that carries it.
std::vector<std::byte> sealed(const MeshSeal& seal, WorkerId to,
                              const std::vector<std::byte>& message) {
  auto datagrams = seal.seal(to, 1, message);
  REQUIRE(datagrams.size() == 1);
  return datagrams[0];
}

/// The view of a gang that is too large for one datagram.
Message commit_of(WorkerId from, std::uint64_t sequence, int seats = 60) {
  Commit commit;
  commit.view.epoch = 6;
  for (int slot = 0; slot < seats; ++slot) {
    commit.view.seats.push_back({{slot, 0}, "10.0.0.7", 7000, 1, {{0, slot, 7100}}});
  }
  return {from, sequence, 5, commit};
}

std::vector<std::vector<std::byte>> pieces_of(const MeshSeal& seal, const Message& message) {
  auto pieces = seal.seal(kTaker, message.sequence, encode(message));
  REQUIRE(pieces.size() > 2);
  return pieces;
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
    return sealed(seal, kTaker, encode(beat_of({1, 0}, sequence)));
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
  const auto heard = sealed(seal, kTaker, encode(beat_of({1, 0}, 1)));
  for (const WorkerId other : {WorkerId{7, 4}, WorkerId{6, 3}}) {
    MeshSeal taker(kKey, "uid", other);
    CHECK_FALSE(taker.open(heard, drops));
    // Nor with another name on it: who receives it is under the key, too.
    auto renamed = heard;
    const auto to_other = sealed(seal, other, {});
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
  late.send(mesh->port(), sealed(other, {0, 0}, encode(beat_of({1, 0}, 1))));
  CHECK(wait_for(*mesh).strangers.empty());
  CHECK_FALSE(late.hear());
  CHECK(mesh->drops().misdirected == 1);
}

TEST_CASE(
    "workers are replaced for ever: the newest are heard, and of the forgotten nothing is taken") {
  MeshSeal seal(kKey, "uid", {1, 0}), taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto take = [&](WorkerId from, std::uint64_t sequence) {
    return taker.open(sealed(seal, kTaker, encode(beat_of(from, sequence))), drops).has_value();
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
  const std::vector<std::byte> good = sealed(seal, kTaker, encode(beat_of({1, 0}, 1)));
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> bad = good;
    bad[rng.below(bad.size())] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(seal.open(bad, drops));
    bad.resize(rng.below(good.size()));
    CHECK_FALSE(seal.open(bad, drops));
  }
  CHECK(drops.garbage + drops.unauthorized + drops.misdirected == 1'000);
  // Sealed, and no message.
  CHECK_FALSE(seal.open(sealed(seal, kTaker, std::vector<std::byte>(40)), drops));
  CHECK(seal.open(good, drops));
}

TEST_CASE("however long a message, no datagram of it has to be cut on its way, and it is whole") {
  auto mesh = Mesh::open("127.0.0.1");
  REQUIRE(mesh);
  mesh->set_seal(MeshSeal(kKey, "uid", {1, 0}));
  MeshSeal taker(kKey, "uid", kTaker);
  MeshDrops drops;
  std::uint64_t sequence = kTakesPieces;
  for (const int seats : {1, 60, 500}) {
    CAPTURE(seats);
    const Datagrams other;
    const Message sent = commit_of({1, 0}, ++sequence, seats);
    mesh->send(kTaker, "127.0.0.1", other.port(), sent);
    std::size_t bytes = 0;
    std::optional<Message> whole;
    for (auto heard = other.hear(); heard; heard = other.hear()) {
      CHECK(heard->bytes.size() <= 1'232);
      CHECK_FALSE(whole);
      bytes += heard->bytes.size();
      whole = taker.open(heard->bytes, drops);
    }
    CHECK(bytes > encode(sent).size());
    REQUIRE(whole);
    CHECK(encode(*whole) == encode(sent));
  }
  CHECK(drops.garbage + drops.unauthorized + drops.misdirected + drops.repeated == 0);
}

TEST_CASE("a message whose pieces come in any order, some of them twice, is taken once") {
  const MeshSeal seal(kKey, "uid", {1, 0});
  MeshSeal taker(kKey, "uid", kTaker);
  Rng rng(test::seed());
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const Message sent = commit_of({1, 0}, kTakesPieces + i, 50 + static_cast<int>(rng.below(50)));
    auto pieces = pieces_of(seal, sent);
    const std::size_t twice = rng.below(pieces.size() + 1);
    for (std::size_t k = 0; k < twice; ++k) pieces.push_back(pieces[rng.below(pieces.size())]);
    for (std::size_t k = pieces.size(); k > 1; --k) std::swap(pieces[k - 1], pieces[rng.below(k)]);
    MeshDrops drops;
    std::vector<Message> taken;
    for (const auto& piece : pieces) {
      if (auto message = taker.open(piece, drops)) taken.push_back(std::move(*message));
    }
    REQUIRE(taken.size() == 1);
    CHECK(encode(taken[0]) == encode(sent));
    CHECK(drops.repeated == twice);
    CHECK(drops.garbage + drops.unauthorized + drops.misdirected == 0);
  }
}

TEST_CASE("of two messages whose pieces mix the newer is taken, and who sends disturbs no other") {
  const MeshSeal seal(kKey, "uid", {1, 0}), other(kKey, "uid", {2, 0});
  MeshSeal taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto older = pieces_of(seal, commit_of({1, 0}, kTakesPieces + 1, 60));
  const auto newer = pieces_of(seal, commit_of({1, 0}, kTakesPieces + 2, 61));
  const auto others = pieces_of(other, commit_of({2, 0}, kTakesPieces + 1, 62));
  REQUIRE(older.size() == newer.size());
  REQUIRE(others.size() == newer.size());
  std::vector<std::pair<int, std::uint64_t>> taken;
  const auto take = [&](const std::vector<std::byte>& piece) {
    const auto message = taker.open(piece, drops);
    if (message) taken.emplace_back(message->from.slot, message->sequence);
  };
  for (std::size_t i = 0; i < newer.size(); ++i) {
    take(older[i]);
    take(newer[i]);
    take(others[i]);
    // Short ones pass in between.
    take(sealed(seal, kTaker, encode(beat_of({1, 0}, kTakesPieces + 10 + i))));
  }
  using Taken = std::vector<std::pair<int, std::uint64_t>>;
  Taken long_ones;
  std::copy_if(taken.begin(), taken.end(), std::back_inserter(long_ones),
               [](const auto& one) { return one.second < kTakesPieces + 10; });
  CHECK(long_ones == Taken{{1, kTakesPieces + 2}, {2, kTakesPieces + 1}});
  CHECK(taken.size() == newer.size() + 2);
  CHECK(drops.repeated == older.size() - 1);
}

TEST_CASE("a message that lacks a piece is none, and what is played again completes nothing") {
  const MeshSeal seal(kKey, "uid", {1, 0});
  MeshSeal taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto first = pieces_of(seal, commit_of({1, 0}, kTakesPieces + 1));
  const auto second = pieces_of(seal, commit_of({1, 0}, kTakesPieces + 2));
  for (std::size_t i = 1; i < first.size(); ++i) CHECK_FALSE(taker.open(first[i], drops));
  for (std::size_t i = 1; i < second.size(); ++i) CHECK_FALSE(taker.open(second[i], drops));
  // Of the one before nothing is kept, and it takes nothing from the one that is waited for.
  for (const auto& piece : first) CHECK_FALSE(taker.open(piece, drops));
  CHECK(drops.repeated == first.size());
  CHECK(taker.open(second[0], drops));
  for (int round = 0; round < 2; ++round) {
    for (const auto& piece : second) CHECK_FALSE(taker.open(piece, drops));
  }
  CHECK(drops.repeated == first.size() + 2 * second.size());
  // To another worker they say nothing.
  MeshSeal another(kKey, "uid", {7, 4});
  for (const auto& piece : second) CHECK_FALSE(another.open(piece, drops));
  CHECK(drops.misdirected == second.size());
}

TEST_CASE("pieces are under a key of their own, and a strange one keeps no whole message away") {
  const MeshSeal seal(kKey, "uid", {1, 0}), stranger(std::string(64, 'b'), "uid", {1, 0});
  MeshSeal taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto right = pieces_of(seal, commit_of({1, 0}, kTakesPieces + 1));
  const auto strange = pieces_of(stranger, commit_of({1, 0}, kTakesPieces + 9));
  const auto beat = sealed(seal, kTaker, encode(beat_of({1, 0}, kTakesPieces + 2)));
  Rng rng(test::seed());
  for (std::size_t i = 0; i + 1 < right.size(); ++i) {
    CHECK_FALSE(taker.open(right[i], drops));
    CHECK_FALSE(taker.open(strange[i], drops));
    auto changed = right[i + 1];
    changed[4 + rng.below(changed.size() - 4)] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(taker.open(changed, drops));
    // Neither is one a message, nor a message one, by another name.
    auto as_message = right[i + 1], as_piece = beat;
    std::copy(beat.begin(), beat.begin() + 4, as_message.begin());
    std::copy(right[0].begin(), right[0].begin() + 4, as_piece.begin());
    CHECK_FALSE(taker.open(as_message, drops));
    CHECK_FALSE(taker.open(as_piece, drops));
  }
  CHECK(drops.unauthorized + drops.misdirected == 4 * (right.size() - 1));
  CHECK(drops.garbage == 0);
  const auto whole = taker.open(right.back(), drops);
  REQUIRE(whole);
  CHECK(whole->sequence == kTakesPieces + 1);
}

TEST_CASE("of however many senders that end before their last piece little is kept") {
  MeshSeal taker(kKey, "uid", kTaker);
  MeshDrops drops;
  const auto begin = [&](WorkerId from) {
    const MeshSeal seal(kKey, "uid", from);
    auto pieces = pieces_of(seal, commit_of(from, kTakesPieces + 1));
    const auto last = pieces.back();
    pieces.pop_back();
    for (const auto& piece : pieces) CHECK_FALSE(taker.open(piece, drops));
    return last;
  };
  const auto early = begin({1, 0});
  for (int attempt = 1; attempt <= 1'100; ++attempt) (void)begin({2, attempt});
  const auto late = begin({3, 0});
  CHECK_FALSE(taker.open(early, drops));
  CHECK(taker.open(late, drops));
}

TEST_CASE("a worker of an older build is told all in one datagram, which it can read") {
  auto mesh = Mesh::open("127.0.0.1");
  REQUIRE(mesh);
  mesh->set_seal(MeshSeal(kKey, "uid", {1, 0}));
  const Datagrams other;
  MeshSeal older(kKey, "uid", kTaker);
  for (const std::uint64_t counts_from : {std::uint64_t{0}, kTakesPieces}) {
    CAPTURE(counts_from);
    const Message beat = beat_of(kTaker, counts_from + 1);
    other.send(mesh->port(), older.seal({1, 0}, beat.sequence, encode(beat))[0]);
    REQUIRE(wait_for(*mesh).messages.size() == 1);
    const Message sent = commit_of({1, 0}, counts_from + 1);
    mesh->send(kTaker, "127.0.0.1", other.port(), sent);
    const auto heard = other.hear();
    REQUIRE(heard);
    MeshDrops drops;
    const auto message = older.open(heard->bytes, drops);
    CHECK(message.has_value() == (counts_from == 0));
    CHECK(other.hear().has_value() == (counts_from > 0));
  }
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
    strangers.back().send(mesh->port(), sealed(other, {0, 0}, encode(beat_of({1, 0}, 1))));
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
