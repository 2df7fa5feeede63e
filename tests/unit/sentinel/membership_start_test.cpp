// With which data a gang starts, and what becomes of those that have others: one membership, whose
// peers are played by the test.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/sentinel/seat_of.h"
#include "worker/sentinel/membership.h"

using namespace muster;
using namespace muster::sentinel;
using muster::test::seat_of;

namespace {

constexpr std::uint64_t kRightDigest = 7, kStaleDigest = 8;
/// With files of the same names and sizes.
constexpr std::uint64_t kOutline = std::uint64_t{9} << 32;
constexpr std::uint64_t kRightPictures = kOutline + 7, kStalePictures = kOutline + 8;

/// A gang of four that starts, as `self` sees it, which is about `digest`; nobody has been ready.
struct Start {
  explicit Start(int self, std::uint64_t own_digest, const MembershipOptions& options = {})
      : membership(options, bare(self), first(), now) {
    membership.set_trainers(now, seat_of(self).trainers, own_digest);
  }
  static Seat bare(int slot) {
    Seat seat = seat_of(slot);
    seat.trainers.clear();
    return seat;
  }
  static View first() {
    View view;
    view.epoch = 1;
    for (int slot = 0; slot < 4; ++slot) view.seats.push_back(bare(slot));
    return view;
  }
  void beat(int slot, std::uint64_t digest) {
    Beat one;
    one.self = seat_of(slot);
    one.digest = digest;
    say(slot, one);
  }
  void say(int slot, MessageBody body) {
    membership.receive(now,
                       Message{{slot, 0}, ++sequence, membership.view().epoch, std::move(body)});
    keep();
  }
  /// All promise what they are asked for. Returns the view that is to be accepted.
  std::optional<View> wish() {
    std::vector<std::pair<int, Prepare>> asked;
    for (const Output& output : outputs) {
      const auto* send = std::get_if<Send>(&output);
      const auto* prepare = send == nullptr ? nullptr : std::get_if<Prepare>(&send->message.body);
      if (prepare != nullptr) asked.emplace_back(send->to.slot, *prepare);
    }
    for (const auto& [slot, prepare] : asked) say(slot, Promise{prepare.ballot, 1, {}, {}});
    for (const Output& output : outputs) {
      const auto* send = std::get_if<Send>(&output);
      const auto* accept = send == nullptr ? nullptr : std::get_if<Accept>(&send->message.body);
      if (accept != nullptr) return accept->view;
    }
    return std::nullopt;
  }
  void pass(milliseconds time) {
    now += time;
    membership.tick(now);
    keep();
  }
  void keep() {
    for (Output& output : membership.take_outputs()) outputs.push_back(std::move(output));
  }
  template <typename Kind>
  std::ptrdiff_t told() const {
    return std::count_if(outputs.begin(), outputs.end(),
                         [](const Output& output) { return std::holds_alternative<Kind>(output); });
  }

  MonoTime now = MonoTime{} + seconds(100);
  std::uint64_t sequence = 0;
  Membership membership;
  std::vector<Output> outputs;
};

std::vector<int> training_slots(const View& view) {
  std::vector<int> slots;
  for (const Seat& seat : view.seats) {
    if (!seat.trainers.empty()) slots.push_back(seat.id.slot);
  }
  return slots;
}

}  // namespace

TEST_CASE("a gang starts with the data of most, at once, and without those that have others") {
  for (const int stale : {0, 3}) {
    CAPTURE(stale);
    Start start(0, stale == 0 ? kStaleDigest : kRightDigest);
    for (const int slot : {1, 2}) start.beat(slot, kRightDigest);
    CHECK_FALSE(start.wish());  // one is not ready
    start.beat(3, stale == 3 ? kStaleDigest : kRightDigest);
    const auto view = start.wish();
    REQUIRE(view);
    CHECK(view->digest == kRightDigest);
    CHECK(training_slots(*view) ==
          (stale == 0 ? std::vector<int>{1, 2, 3} : std::vector<int>{0, 1, 2}));
  }
}

TEST_CASE("of two halves with different data the one with the lowest seat starts") {
  Start start(0, kRightDigest);
  start.beat(1, kStaleDigest);
  start.beat(2, kStaleDigest);
  start.beat(3, kRightDigest);
  const auto view = start.wish();
  REQUIRE(view);
  CHECK(view->digest == kRightDigest);
  CHECK(training_slots(*view) == std::vector<int>{0, 3});
}

TEST_CASE("a gang starts with the pictures of most, though some do not know theirs yet") {
  Start start(0, kOutline);
  start.beat(1, kStalePictures);
  start.beat(2, kRightPictures);
  start.beat(3, kRightPictures);
  const auto view = start.wish();
  REQUIRE(view);
  CHECK(view->digest == kRightPictures);
  CHECK(training_slots(*view) == std::vector<int>{0, 2, 3});
}

TEST_CASE("where nobody knows the pictures, those of who trains count once they are known") {
  Start start(0, kOutline);
  for (const int slot : {1, 2, 3}) start.beat(slot, kOutline);
  const auto first = start.wish();
  REQUIRE(first);
  CHECK(first->digest == kOutline);
  View view = *first;
  for (int slot : {2, 3}) view.seats[static_cast<std::size_t>(slot)].trainers.clear();
  start.say(1, Commit{view});
  start.outputs.clear();
  // Two have come late, with other pictures than the one who trains has found meanwhile.
  start.beat(1, kRightPictures);
  for (const int slot : {2, 3}) start.beat(slot, kStalePictures);
  const auto next = start.wish();
  REQUIRE(next);
  CHECK(next->digest == kRightPictures);
  CHECK(training_slots(*next) == std::vector<int>{0, 1});
}

TEST_CASE("a digest has both halves, and none is 0") {
  CHECK(make_digest(0, {}) == std::uint64_t{1} << 32);
  CHECK(make_digest(0, 0) == (std::uint64_t{1} << 32) + 1);
  // Where nothing is to be decoded both are one number, which older builds tell, too.
  CHECK(make_digest(0x123456789abcdef0, 0x123456789abcdef0) == 0x123456789abcdef0);
  CHECK(is_same_training(kOutline, kRightPictures));
  CHECK(is_same_training(kRightPictures, kRightPictures));
  CHECK_FALSE(is_same_training(kStalePictures, kRightPictures));
  CHECK_FALSE(is_same_training(kOutline + kOutline, kRightPictures));
  CHECK_FALSE(is_same_training(0, kRightPictures));
}

TEST_CASE("who has a seat and other data says so at once, and ends once the others train") {
  Start start(3, kStaleDigest);
  View view = Start::first();
  view.epoch = 2;
  view.digest = kRightDigest;
  for (int slot = 0; slot < 4; ++slot) view.seats[static_cast<std::size_t>(slot)] = seat_of(slot);
  view.seats[3].trainers.clear();
  start.say(0, Commit{view});
  start.pass(milliseconds(50));
  CHECK(start.told<RefusedNewcomer>() == 1);
  CHECK(start.told<Refused>() == 0);
  CHECK(start.membership.waiting().starts_with("not let in by the workers that train"));
  const auto all_beat = [&] {
    for (const int slot : {0, 1, 2}) start.beat(slot, kRightDigest);
  };
  for (int i = 0; i < 299; ++i, all_beat()) start.pass(milliseconds(100));
  CHECK(start.told<Refused>() == 0);
  for (int i = 0; i < 2; ++i, all_beat()) start.pass(milliseconds(100));
  CHECK(start.told<Refused>() == 1);
  CHECK(start.told<RefusedNewcomer>() == 1);
}
