// The rules of agreement, one at a time: one membership, whose peers are played by the test. How
// they hold together under faults is shown by tests/membership.
#include "worker/sentinel/membership.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "tests/unit/sentinel/membership_table.h"

using namespace muster;
using namespace muster::sentinel;
using test::Entering, test::kDigest, test::kEpoch, test::kPlain, test::knows_newcomer,
    test::Newcomer, test::seat_of, test::Table, test::trainers_of, test::unheard, test::view_of;

TEST_CASE("who has promised takes nothing of an older ballot") {
  Table table(2, {0, 1, 2});
  table.say(0, Prepare{{3, 0}});
  REQUIRE(table.sent<Promise>(0).size() == 1);
  table.say(1, Accept{{2, 1}, [] {
                        View view = view_of(kEpoch + 1, {0, 1});
                        view.base = kEpoch;
                        return view;
                      }()});
  CHECK(table.sent<Accepted>(1).empty());
  REQUIRE(table.sent<Nack>(1).size() == 1);
  CHECK(table.sent<Nack>(1)[0].promised == Ballot{3, 0});
  table.say(0, Prepare{{1, 0}});
  CHECK(table.sent<Promise>(0).size() == 1);
  CHECK(table.sent<Nack>(0).size() == 1);
}

TEST_CASE("what somebody may have decided is decided again, not the own wish") {
  Table table(0, {0, 1, 2});
  table.say(1, Prepare{{5, 1}});
  CHECK(table.sent<Promise>(1).empty());  // slot 0 leads, and it is here
  table.refuse(2);
  View before = view_of(kEpoch + 4, {0, 1});
  before.base = kEpoch;
  before.stop = true;
  table.promise(1, {5, 1}, before);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  CHECK(table.sent<Accept>(1)[0].view == before);
  CHECK(table.sent<Accept>(1)[0].ballot > Ballot{5, 1});
}

TEST_CASE("of what several have accepted the newest is decided again") {
  for (const bool is_newest_first : {true, false}) {
    CAPTURE(is_newest_first);
    Table table(0, {0, 1, 2, 3});
    table.refuse(3);
    View older = view_of(kEpoch + 4, {0, 1, 2}), newer = view_of(kEpoch + 5, {0, 1});
    older.base = newer.base = kEpoch;
    table.promise(is_newest_first ? 2 : 1, {5, 1}, older);
    table.promise(is_newest_first ? 1 : 2, {6, 2}, newer);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    CHECK(table.sent<Accept>(1)[0].view == newer);
  }
}

TEST_CASE("a view of many seats goes to them little by little, and is not sent again and again") {
  constexpr int kMany = 300;
  std::vector<int> slots(kMany);
  for (int slot = 0; slot < kMany; ++slot) slots[static_cast<std::size_t>(slot)] = slot;
  Table table(0, slots);
  table.refuse(kMany - 1);
  for (int slot = 1; slot < kMany - 1; ++slot) table.promise(slot);
  const auto count = [&] {
    std::vector<int> of(kMany);
    for (const Output& output : table.outputs) {
      const auto* send = std::get_if<Send>(&output);
      if (send == nullptr || !std::holds_alternative<Accept>(send->message.body)) continue;
      ++of[static_cast<std::size_t>(send->to.slot)];
    }
    return of;
  };
  const auto all = [&] {
    const auto of = count();
    return std::accumulate(of.begin(), of.end(), 0);
  };
  CHECK(all() > 40);
  CHECK(all() < 100);  // 3 MB in 50 ms are half of 1 Gbit/s
  const std::map<int, Table::Tweak> nobody;
  for (int i = 0; i < 4; ++i) {
    const int before = all();
    table.pass(milliseconds(50), nobody);
    CHECK(all() - before < 170);
  }
  const auto of = count();
  for (int slot = 1; slot < kMany; ++slot) {
    CAPTURE(slot);
    CHECK(of[static_cast<std::size_t>(slot)] >= 1);
    CHECK(of[static_cast<std::size_t>(slot)] <= 2);
  }
}

TEST_CASE("of those who do not hear each other the fewest go, whoever complains of whom") {
  struct Case {
    std::map<int, std::vector<int>> unheard;  ///< by who says so
    std::vector<int> stay;
  };
  const std::vector<Case> cases{
      {{{1, {4}}, {2, {4}}, {3, {4}}}, {0, 1, 2, 3, 5}},
      {{{4, {1, 2, 3}}}, {0, 1, 2, 3, 5}},
      {{{1, {2}}, {3, {2}}, {4, {5}}}, {0, 1, 3, 4}},
      {{{1, {2}}, {2, {3}}, {3, {1}}}, {0, 1, 4, 5}},
  };
  for (const Case& one : cases) {
    Table table(0, {0, 1, 2, 3, 4, 5});
    std::map<int, Table::Tweak> heard;
    for (int slot = 1; slot < 6; ++slot) heard[slot] = kPlain;
    for (const auto& [slot, of] : one.unheard) heard[slot] = unheard(of);
    table.pass(milliseconds(1'050), heard);
    for (int slot = 1; slot < 6; ++slot) table.promise(slot);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    CHECK(slots_of(table.sent<Accept>(1).back().view) == one.stay);
  }
}

TEST_CASE("half of the workers need the witness, and what it grants needs all of them") {
  Table table(0, {0, 1, 2, 3});
  table.pass(milliseconds(500), {{1, unheard({2, 3})}});
  table.promise(1);
  table.pass(milliseconds(100), {{1, unheard({2, 3})}});
  CHECK(table.sent<Accept>(1).empty());
  CHECK_FALSE(table.self().waiting().empty());
  const auto asked = table.told<AskWitness>();
  REQUIRE_FALSE(asked.empty());
  CHECK(asked[0].epoch == kEpoch);
  CHECK(asked[0].members == std::vector<int>{0, 1});
  CHECK(asked[0].from_members == std::vector<int>{0, 1, 2, 3});

  table.answer({true, asked[0].next_epoch, {0, 1, 2}});
  CHECK(table.sent<Accept>(1).empty());  // granted to others
  table.answer({true, asked[0].next_epoch, {0, 1}});
  CHECK_FALSE(table.sent<Accept>(1).empty());
  CHECK(table.told<Decided>().empty());
  table.accept(1);
  REQUIRE(table.told<Decided>().size() == 1);
  CHECK(slots_of(table.told<Decided>()[0].view) == std::vector<int>{0, 1});
  CHECK(table.told<Decided>()[0].view.epoch == asked[0].next_epoch);
}

TEST_CASE("who was heard until it died is certainly dead: the survivor decides alone, at once") {
  Table table(0, {0, 1});
  table.refuse(1);
  REQUIRE(table.told<Decided>().size() == 1);
  const View view = table.told<Decided>()[0].view;
  CHECK(slots_of(view) == std::vector<int>{0});
  CHECK(view.urgent_epoch == view.epoch);
  CHECK(view.departed == std::vector<Departure>{{{1, 0}, Fate::kDied}});
  CHECK(table.told<AskWitness>().empty());
}

TEST_CASE("who was silent before it died may have decided with others: the witness is asked") {
  Table table(0, {0, 1});
  table.pass(milliseconds(1'000), {});
  table.refuse(1);
  table.pass(milliseconds(1'000), {});
  CHECK(table.told<Decided>().empty());
  CHECK_FALSE(table.told<AskWitness>().empty());
}

TEST_CASE("what was received in an own sleep does not tell that its sender lived until it died") {
  Table table(0, {0, 1});
  table.sleep(milliseconds(1'000));
  for (int i = 0; i < 3; ++i) table.beat(1);  // they had waited
  table.refuse(1);
  table.pass(milliseconds(1'000), {});
  CHECK(table.told<Decided>().empty());
  CHECK_FALSE(table.told<AskWitness>().empty());
}

TEST_CASE("who is heard again after an own sleep, and dies, is certainly dead") {
  Table table(0, {0, 1});
  table.sleep(milliseconds(1'000));
  table.beat(1);
  table.pass(milliseconds(50), {{1, kPlain}});
  table.refuse(1);
  CHECK(table.told<Decided>().size() == 1);
}

TEST_CASE("what had waited because there was too much of it is as old as after a sleep") {
  Table table(0, {0, 1});
  for (int i = 0; i < 4; ++i) {
    table.note_backlog();
    table.pass(milliseconds(25), {});
    table.pass(milliseconds(25), {});
    table.pass(milliseconds(25), {});
    table.note_backlog();
    table.beat(1);
  }
  table.pass(milliseconds(25), {});
  table.refuse(1);
  CHECK(table.told<Decided>().empty());
}

TEST_CASE("who heard nothing of us before it died may have decided with others") {
  Table table(0, {0, 1});
  table.beat(1, unheard({0}));
  table.refuse(1);
  table.pass(milliseconds(1'000), {});
  CHECK(table.told<Decided>().empty());
  CHECK_FALSE(table.told<AskWitness>().empty());
}

TEST_CASE("most of the living are not enough where the dead are not excused") {
  Table table(0, {0, 1, 2, 3, 4});
  table.pass(milliseconds(500), {{1, unheard({2, 3, 4})}});
  table.refuse(3);
  table.refuse(4);
  table.pass(milliseconds(100), {{1, unheard({2})}});
  table.promise(1);
  table.pass(milliseconds(200), {{1, unheard({2})}});
  CHECK(table.sent<Accept>(1).empty());
}

TEST_CASE(
    "whoever may be dead is asked often once the communicator breaks, until that is explained") {
  Table table(0, {0, 1, 2});
  table.outputs.clear();
  table.break_communicator();
  CHECK(table.sent<Beat>(2).size() == 1);
  for (int i = 0; i < 4; ++i) table.sleep(milliseconds(10));
  CHECK(table.sent<Beat>(2).size() == 5);
  table.refuse(2);
  table.promise(1);
  table.accept(1);
  CHECK(table.told<Decided>().size() == 1);
  table.outputs.clear();
  for (int i = 0; i < 4; ++i) table.sleep(milliseconds(10));
  CHECK(table.sent<Beat>(1).size() <= 1);
}

TEST_CASE("a seat that is dead stays dead, whatever arrives late") {
  Table table(0, {0, 1, 2});
  table.refuse(2);
  table.beat(2);
  table.outputs.clear();
  table.pass(milliseconds(100), {{1, kPlain}});
  const auto beats = table.sent<Beat>(1);
  REQUIRE_FALSE(beats.empty());
  CHECK(beats.back().dead == std::vector<WorkerId>{{2, 0}});
}

TEST_CASE("whoever is left out is fenced; a view never goes back") {
  Table table(2, {0, 1, 2});
  View next = view_of(kEpoch + 3, {0, 1});
  next.departed = {{{2, 0}, Fate::kSilent}};
  table.say(0, Commit{next}, next.epoch);
  CHECK(table.told<Fenced>().size() == 1);
  CHECK_FALSE(table.self().is_member());
  table.say(1, Commit{view_of(kEpoch + 1, {0, 1, 2})}, kEpoch + 1);
  CHECK(table.self().view().epoch == kEpoch + 3);
  CHECK(table.told<Decided>().empty());
}

TEST_CASE("however many were replaced in silence, there is room for the next newcomer") {
  MembershipOptions options;
  options.lost = milliseconds(50);
  Table table(0, {0, 1}, options);
  constexpr int kReplaced = 9'000;  // more than are kept
  for (int attempt = 1; attempt <= kReplaced; ++attempt) {
    View next = view_of(kEpoch + attempt, {0, 1});
    next.departed = {{next.seats[1].id, Fate::kSilent}};
    next.departed[0].id.attempt = attempt - 1;
    next.seats[1].id.attempt = attempt;
    table.say_as({1, attempt}, Commit{next}, next.epoch);
    table.pass(milliseconds(75), {});
  }
  table.outputs.clear();
  Beat newcomer;
  newcomer.self = seat_of(2);
  table.say_as({2, 0}, newcomer, kEpoch + kReplaced);
  table.pass(milliseconds(100), {});
  const auto beats = table.sent<Beat>(1);
  REQUIRE_FALSE(beats.empty());
  CHECK(beats.back().newcomers == std::vector<WorkerId>{{2, 0}});
}

TEST_CASE("a newcomer hears that it counts when all who counted before know it") {
  Table table(0, {0, 1});
  table.beat(2);
  table.pass(milliseconds(200), {{1, knows_newcomer(2)}, {2, kPlain}});
  table.promise(1);
  table.accept(1);
  REQUIRE(table.told<Decided>().size() == 1);
  const std::int64_t epoch = table.self().view().epoch;
  CHECK(slots_of(table.self().view()) == std::vector<int>{0, 1, 2});
  CHECK(table.self().view().urgent_epoch < epoch);
  table.outputs.clear();
  table.pass(milliseconds(100), {{1, kPlain}, {2, kPlain}});
  CHECK(table.sent<Commit>(2).empty());
  CHECK_FALSE(table.sent<Commit>(1).empty());
  table.beat(1, nullptr, epoch);
  table.beat(2);
  CHECK(table.sent<Commit>(2).size() == 1);
}

TEST_CASE("a newcomer with another spec or other data is refused with the reason") {
  Table table(0, {0, 1});
  const Table::Tweak other = [](Beat& beat) { beat.digest = 2 * kDigest; };
  table.beat(2, other);
  table.pass(milliseconds(300), {{1, knows_newcomer(2)}, {2, other}});
  CHECK(table.sent<Prepare>(1).empty());
  REQUIRE(table.told<RefusedNewcomer>().size() == 1);
  CHECK(table.told<RefusedNewcomer>()[0].id == WorkerId{2, 0});
  REQUIRE_FALSE(table.sent<Refusal>(2).empty());
  CHECK(table.sent<Refusal>(2)[0].reason.find("spec or data") != std::string::npos);
}

TEST_CASE(
    "a newcomer with other pictures is refused with the reason, and not one that knows none yet") {
  for (const bool knows : {false, true}) {
    CAPTURE(knows);
    Table table(0, {0, 1});
    const Table::Tweak other = [&](Beat& beat) {
      beat.digest = knows ? kDigest + 1 : outline_of(kDigest);
    };
    table.beat(2, other);
    table.pass(milliseconds(300), {{1, knows_newcomer(2)}, {2, other}});
    CHECK(table.sent<Prepare>(1).empty() == knows);
    CHECK(table.told<RefusedNewcomer>().size() == (knows ? 1 : 0));
    if (!knows) continue;
    REQUIRE_FALSE(table.sent<Refusal>(2).empty());
    CHECK(table.sent<Refusal>(2)[0].reason == kOtherPictures);
  }
}

TEST_CASE("a newcomer that hears for long only that its key is another one gives up") {
  Newcomer joiner({0, 1});
  const auto is_refused = [&] { joiner.self.unauthorized(joiner.now, {0, 0}); };
  SUBCASE("by one of those who train, while the other is silent") {
    joiner.pass(milliseconds(4'900), is_refused);
    CHECK(joiner.told<OtherKey>() == 0);
    joiner.pass(milliseconds(10'000), is_refused);
    CHECK(joiner.told<OtherKey>() == 1);
    CHECK(joiner.told<PeersLost>() == 0);
  }
  SUBCASE("another newcomer speaks for nobody") {
    joiner.hear({7, 0}, 0);
    joiner.pass(milliseconds(5'100), is_refused);
    CHECK(joiner.told<OtherKey>() == 1);
  }
  SUBCASE("whoever trains and was heard shows that the key is right") {
    joiner.hear({1, 0}, kEpoch);
    joiner.pass(milliseconds(20'000), is_refused);
    CHECK(joiner.told<OtherKey>() == 0);
  }
  SUBCASE("now and then is no proof") {
    for (int i = 0; i < 20; ++i) {
      is_refused();
      joiner.pass(milliseconds(1'100), [] {});
    }
    CHECK(joiner.told<OtherKey>() == 0);
  }
  SUBCASE("of one that nobody knows it is none") {
    joiner.pass(milliseconds(10'000), [&] { joiner.self.unauthorized(joiner.now, {9, 9}); });
    CHECK(joiner.told<OtherKey>() == 0);
  }
}

TEST_CASE("a newcomer that hears nobody gives up after a minute and says what may be the matter") {
  Newcomer joiner({0, 1});
  joiner.pass(milliseconds(59'900), [] {});
  CHECK(joiner.told<PeersLost>() == 0);
  joiner.pass(milliseconds(1'000), [] {});
  REQUIRE(joiner.told<PeersLost>() == 1);
  for (const Output& output : joiner.outputs) {
    const auto* lost = std::get_if<PeersLost>(&output);
    if (lost != nullptr) CHECK(lost->reason.find("have another key") != std::string::npos);
  }
}

TEST_CASE(
    "who was let in and has not begun goes when all others are done, unless it has the files") {
  struct Case {
    int slot;
    bool has_entered;
    int told;
  };
  for (const Case& one : {Case{9, false, 1}, Case{9, true, 0}, Case{0, false, 0}}) {
    CAPTURE(one.slot);
    CAPTURE(one.has_entered);
    Newcomer newcomer({1, 2}, one.slot);
    for (const int slot : {1, 2}) newcomer.hear({slot, 0}, kEpoch);
    std::vector<int> slots{1, 2, one.slot};
    std::sort(slots.begin(), slots.end());
    View view = view_of(kEpoch + 1, slots);
    view.base = kEpoch;
    view.previous = {{1, 0}, {2, 0}};
    newcomer.self.receive(newcomer.now, Message{{1, 0}, 2, view.epoch, Commit{view}});
    REQUIRE(newcomer.self.is_member());
    if (one.has_entered) newcomer.self.entered(view.epoch);
    for (const int slot : {1, 2}) {
      Beat beat;
      beat.self = seat_of(slot);
      beat.is_done = true;
      newcomer.self.receive(newcomer.now, Message{{slot, 0}, 3, view.epoch, beat});
      newcomer.pass(milliseconds(50), [] {});
      CHECK(newcomer.told<LeftBehind>() == (slot == 2 ? one.told : 0));
    }
  }
}

TEST_CASE("whoever is a member does not care who cannot open what it says") {
  Table table(0, {0, 1});
  for (int i = 0; i < 200; ++i) {
    table.deny(1);
    table.pass(milliseconds(100), {{1, kPlain}});
  }
  CHECK(table.self().is_member());
  CHECK(table.told<OtherKey>().empty());
}

TEST_CASE("one dies while another enters: the rest go on without that one, which enters later") {
  Entering world(0);
  world.table.refuse(2);
  const View without = world.decide({{1, kPlain}, {9, kPlain}});
  CHECK(slots_of(without) == std::vector<int>{0, 1, 9});  // its sentinel counts as before
  CHECK(without.urgent_epoch == without.epoch);
  CHECK(trainers_of(without, 1) == seat_of(1).trainers);
  CHECK(trainers_of(without, 9).empty());
  const View with = world.decide({{1, kPlain}, {9, kPlain}});
  CHECK(trainers_of(with, 9) == seat_of(9).trainers);
  CHECK(with.urgent_epoch == without.epoch);  // nobody leaves a step for it
}

TEST_CASE("one breaks while it enters, and nobody has died: the others go on without it") {
  Entering world(0);
  world.table.break_communicator();
  const View without = world.decide({{1, kPlain}, {2, kPlain}, {9, kPlain}});
  CHECK(slots_of(without) == std::vector<int>{0, 1, 2, 9});
  CHECK(without.urgent_epoch == without.epoch);
  CHECK(trainers_of(without, 2) == seat_of(2).trainers);
  CHECK(trainers_of(without, 9).empty());
}

TEST_CASE("who has entered may hold what nobody else does, and is not put off") {
  Entering world(0);
  world.table.enter(kEpoch + 1);
  world.table.refuse(2);
  const View view = world.decide({{1, kPlain}, {9, kPlain}});
  CHECK(slots_of(view) == std::vector<int>{0, 1, 9});
  CHECK(trainers_of(view, 9) == seat_of(9).trainers);
}

TEST_CASE("whose own trainer is in no view does not know who has entered, and puts nobody off") {
  Table table(0, {0, 1, 2});
  table.enter(kEpoch);
  // Its trainer has died, and the others have let somebody in meanwhile.
  View next = view_of(kEpoch + 1, {0, 1, 2, 9});
  next.base = kEpoch;
  next.previous = {{0, 0}, {1, 0}, {2, 0}};
  next.seats[0].trainers.clear();
  table.say(1, Commit{next}, next.epoch);
  table.epoch = next.epoch;
  for (const int slot : {1, 2, 9}) table.beat(slot);
  table.outputs.clear();
  table.refuse(2);
  table.pass(milliseconds(300), {{1, kPlain}, {9, kPlain}});
  table.promise(1);
  table.promise(9);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  const View view = table.sent<Accept>(1)[0].view;
  CHECK(trainers_of(view, 9) == seat_of(9).trainers);
}

TEST_CASE("nobody new comes in the view in which somebody is lost") {
  Table table(0, {0, 1, 2});
  table.enter(kEpoch);
  table.pass(milliseconds(75), {{1, knows_newcomer(3)}, {2, knows_newcomer(3)}, {3, kPlain}});
  table.outputs.clear();
  table.refuse(2);
  table.pass(milliseconds(200), {{1, knows_newcomer(3)}, {3, kPlain}});
  table.promise(1);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  CHECK(slots_of(table.sent<Accept>(1)[0].view) == std::vector<int>{0, 1});
}

TEST_CASE("a newcomer tells its domain where the others do, for older builds could not read it") {
  Seat self = seat_of(2);
  self.domain = domain_of("node-b");
  MonoTime now = MonoTime{} + seconds(100);
  Membership newcomer({}, self, {{{0, 0}, "127.0.0.1", 1'000}}, kEpoch, now);
  const auto told = [&] {
    now += seconds(1);
    newcomer.tick(now);
    Domain domain = 1;
    for (const Output& output : newcomer.take_outputs()) {
      const auto* send = std::get_if<Send>(&output);
      const auto* beat = send != nullptr ? std::get_if<Beat>(&send->message.body) : nullptr;
      if (beat != nullptr) domain = beat->self.domain;
    }
    return domain;
  };
  newcomer.receive(now, Message{{0, 0}, 1, kEpoch, Commit{view_of(kEpoch, {0, 1})}});
  CHECK(told() == kUnknownDomain);
  View with_domains = view_of(kEpoch + 1, {0, 1});
  for (Seat& seat : with_domains.seats) seat.domain = domain_of("node-a");
  newcomer.receive(now, Message{{0, 0}, 2, kEpoch + 1, Commit{with_domains}});
  CHECK(told() == domain_of("node-b"));
}

TEST_CASE("a member that was left out tells its domain when it asks to be let in again") {
  View first = view_of(1, {0, 1, 2});
  first.seats[2].domain = domain_of("node-b");
  const MonoTime now = MonoTime{} + seconds(100);
  Membership member({}, first.seats[2], first, now);
  for (const std::int64_t epoch : {kEpoch, kEpoch + 1}) {
    View without = view_of(epoch, {0, 1});
    without.seats[0].domain = domain_of("node-a");
    member.receive(now, Message{{0, 0}, 1, epoch, Commit{without}});
    REQUIRE_FALSE(member.is_member());
  }
  (void)member.take_outputs();
  member.tick(now + seconds(1));
  bool is_told = false;
  for (const Output& output : member.take_outputs()) {
    const auto* send = std::get_if<Send>(&output);
    const auto* beat = send != nullptr ? std::get_if<Beat>(&send->message.body) : nullptr;
    is_told = is_told || (beat != nullptr && beat->self.domain == domain_of("node-b"));
  }
  CHECK(is_told);
}

TEST_CASE("the domain that a newcomer tells stands in the view that it comes in with") {
  Table table(0, {0, 1});
  const Table::Tweak with_domain = [](Beat& beat) { beat.self.domain = domain_of("node-b"); };
  table.pass(milliseconds(200), {{1, knows_newcomer(2)}, {2, with_domain}});
  table.promise(1);
  table.accept(1);
  REQUIRE(find_slot(table.self().view(), 2) != nullptr);
  CHECK(find_slot(table.self().view(), 2)->domain == domain_of("node-b"));
}

TEST_CASE("domains of one name are equal, of others not, and of none unknown") {
  CHECK(domain_of("node-a") == domain_of("node-a"));
  CHECK(domain_of("node-a") != domain_of("node-b"));
  CHECK(domain_of("") == kUnknownDomain);
  // Of SHA-256, most significant byte first: the same on every machine and in every build.
  CHECK(domain_of("abc") == 0xba7816bfba7816bfull);
  const auto upper = [](Domain domain) { return domain >> 32; };
  CHECK(upper(domain_of("abc", "rack")) == upper(domain_of("another", "rack")));
  CHECK(domain_of("abc", "rack") != domain_of("another", "rack"));
  CHECK(upper(domain_of("abc", "rack")) != upper(domain_of("abc", "other")));
  CHECK(domain_of("", "rack") == kUnknownDomain);
}

TEST_CASE("of two who do not hear each other one goes, after a while") {
  Table table(0, {0, 1, 2});
  const std::map<int, Table::Tweak> apart = {{1, unheard({2})}, {2, unheard({1})}};
  table.pass(milliseconds(900), apart);
  CHECK(table.sent<Prepare>(1).empty());
  table.pass(milliseconds(200), apart);
  table.promise(1);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  CHECK(slots_of(table.sent<Accept>(1)[0].view) == std::vector<int>{0, 1});
}

TEST_CASE("who last spoke of others' silence is not taken for the silent one when they are back") {
  Table table(0, {0, 1, 2, 3, 4});
  // Three are back; the word of 1 that they are silent is still the newest that was heard of it.
  table.pass(milliseconds(75), {{1, unheard({2, 3, 4})}, {2, kPlain}, {3, kPlain}, {4, kPlain}});
  CHECK(table.sent<Prepare>(2).empty());
  // Where it stays so, it is cut off all the same.
  table.pass(seconds(3), {{1, unheard({2, 3, 4})}, {2, kPlain}, {3, kPlain}, {4, kPlain}});
  CHECK_FALSE(table.sent<Prepare>(2).empty());
}

TEST_CASE("who was heard late is given longer, and not for ever") {
  Table table(0, {0, 1, 2});
  const auto is_gone_after = [&](milliseconds silence) {
    table.pass(silence, {{1, unheard({2})}});
    return !table.sent<Prepare>(1).empty();
  };
  const auto all_are_heard = [&](milliseconds time) {
    table.pass(time, {{1, kPlain}, {2, kPlain}});
    table.outputs.clear();
  };
  // Late by a little less than what is silence: thrice that would be nearly all that there is.
  REQUIRE_FALSE(is_gone_after(milliseconds(225)));
  all_are_heard(milliseconds(100));
  CHECK_FALSE(is_gone_after(milliseconds(675)));
  all_are_heard(milliseconds(100));
  // Later still, and no longer than can be waited for.
  CHECK_FALSE(is_gone_after(milliseconds(875)));
  CHECK(is_gone_after(milliseconds(75)));
  // Only who is heard late is given longer, and only for so long after.
  table.outputs.clear();
  all_are_heard(milliseconds(2 * Lateness::kKept.count()));
  CHECK(is_gone_after(milliseconds(325)));
}

TEST_CASE(
    "whose trainers take part in steps is not silent before its sentinel was long not heard") {
  Table table(0, {0, 1, 2});
  const auto pass = [&](milliseconds time, std::int64_t epoch) {
    for (milliseconds gone{0}; gone < time; gone += milliseconds(25)) {
      table.step(epoch);
      table.pass(milliseconds(25), {{1, unheard({2})}});
    }
    return !table.sent<Prepare>(1).empty();
  };
  SUBCASE("as long as steps are made") {
    REQUIRE_FALSE(pass(milliseconds(500), kEpoch));
    table.pass(milliseconds(275), {{1, unheard({2})}});
    CHECK(table.sent<Prepare>(1).empty());
    table.pass(milliseconds(75), {{1, unheard({2})}});
    CHECK_FALSE(table.sent<Prepare>(1).empty());
  }
  SUBCASE("and no longer than can be waited for") {
    REQUIRE_FALSE(pass(milliseconds(875), kEpoch));
    CHECK(pass(milliseconds(75), kEpoch));
  }
  SUBCASE("what was made in another view tells nothing of it") {
    CHECK(pass(milliseconds(350), kEpoch - 1));
  }
}

TEST_CASE("who was away for longer than a silence is given no longer the next time") {
  Table table(0, {0, 1, 2});
  table.pass(milliseconds(400), {{1, unheard({2})}});
  REQUIRE_FALSE(table.sent<Prepare>(1).empty());
  table.pass(milliseconds(500), {{1, kPlain}, {2, kPlain}});
  table.outputs.clear();
  table.pass(milliseconds(325), {{1, unheard({2})}});
  CHECK_FALSE(table.sent<Prepare>(1).empty());
}

namespace {

/// 0 leads, 1 follows, 2 comes and goes.
class Probation {
 public:
  explicit Probation(const MembershipOptions& options) : table_(0, {0, 1, 2}, options) {}

  void cut_off() { change({{1, unheard({2})}}, milliseconds(500)); }
  /// Whether 2 is let in after it was heard by all for `time`.
  bool is_let_in_after(milliseconds time) {
    pass(time, {{1, knows_newcomer(2)}, {2, kPlain}});
    return !table_.sent<Prepare>(1).empty();
  }
  void let_in() { change({{1, knows_newcomer(2)}, {2, kPlain}}, milliseconds(500)); }
  void stay_in(milliseconds time) { pass(time, {{1, kPlain}, {2, kPlain}}); }

 private:
  void pass(milliseconds time, const std::map<int, Table::Tweak>& heard) {
    table_.outputs.clear();
    table_.pass(time, heard);
  }
  void change(const std::map<int, Table::Tweak>& heard, milliseconds time) {
    pass(time, heard);
    table_.promise(1);
    table_.accept(1);
    table_.epoch = table_.self().view().epoch;
    pass(milliseconds(100), {{1, kPlain}});
  }

  Table table_;
};

}  // namespace

TEST_CASE("who was cut off often waits longer each time, and begins anew after a good while in") {
  MembershipOptions options;
  options.probation = milliseconds(1'000);
  options.forgiveness = milliseconds(30'000);
  Probation world(options);
  for (const milliseconds wait : {milliseconds(1'000), milliseconds(2'000), milliseconds(4'000)}) {
    world.cut_off();
    CHECK_FALSE(world.is_let_in_after(wait - milliseconds(300)));
    world.let_in();
    world.stay_in(milliseconds(25'000));
  }
  world.stay_in(milliseconds(6'000));
  world.cut_off();
  CHECK_FALSE(world.is_let_in_after(milliseconds(700)));
  world.let_in();
}

TEST_CASE("whoever slept itself does not take it for the others' silence") {
  Table table(0, {0, 1, 2});
  table.outputs.clear();
  table.sleep(seconds(10));
  CHECK(table.sent<Prepare>(1).empty());
  REQUIRE_FALSE(table.sent<Beat>(1).empty());
  CHECK(table.sent<Beat>(1)[0].unheard.empty());
  table.pass(milliseconds(400), {{1, unheard({2})}});
  CHECK_FALSE(table.sent<Prepare>(1).empty());
}
