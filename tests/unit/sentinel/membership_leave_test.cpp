// Workers that leave on their own wish, as the membership of one of the others sees it.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "tests/unit/sentinel/membership_table.h"

using namespace muster;
using namespace muster::sentinel;
using test::Entering, test::kEpoch, test::kPlain, test::knows_newcomer, test::leaves, test::seat_of,
    test::Table, test::trainers_of, test::unheard, test::view_of;

TEST_CASE("newcomers do not come in the view in which somebody leaves") {
  Table table(0, {0, 1, 2});
  table.pass(milliseconds(900), {{1, kPlain}, {2, leaves}});
  CHECK(table.sent<Prepare>(1).empty());
  // The newcomer is not due for 100 ms yet when the leave is.
  table.pass(milliseconds(150), {{1, knows_newcomer(3)},
                                 {2,
                                  [](Beat& beat) {
                                    leaves(beat);
                                    beat.newcomers = {{3, 0}};
                                  }},
                                 {3, kPlain}});
  table.promise(1);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  const View view = table.sent<Accept>(1)[0].view;
  CHECK(slots_of(view) == std::vector<int>{0, 1});
  CHECK(view.departed == std::vector<Departure>{{{2, 0}, Fate::kLeft}});
  CHECK(view.urgent_epoch < view.epoch);
}

TEST_CASE("who is asked to leave does not wait longer because others join meanwhile") {
  Table table(0, {0, 1, 2});
  table.enter(kEpoch);
  const Table::Tweak leaves_and_knows = [](Beat& beat) {
    leaves(beat);
    beat.newcomers = {{3, 0}};
  };
  table.pass(milliseconds(400), {{1, kPlain}, {2, leaves}});
  table.pass(milliseconds(175), {{1, knows_newcomer(3)}, {2, leaves_and_knows}, {3, kPlain}});
  table.promise(1);
  table.accept(1);
  REQUIRE(slots_of(table.self().view()) == std::vector<int>{0, 1, 2, 3});
  table.epoch = table.self().view().epoch;
  table.outputs.clear();
  const std::map<int, Table::Tweak> all = {{1, kPlain}, {2, leaves}, {3, kPlain}};
  table.pass(milliseconds(400), all);
  CHECK(table.sent<Prepare>(1).empty());
  table.pass(milliseconds(100), all);
  for (const int slot : {1, 3}) table.promise(slot);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  CHECK(slots_of(table.sent<Accept>(1)[0].view) == std::vector<int>{0, 1, 3});
}

namespace {

/// Of three that train the last leaves, with the view after kEpoch.
struct Leaving {
  Leaving() : table(0, {0, 1, 2}) {
    table.enter(kEpoch);
    table.pass(milliseconds(1'100), {{1, kPlain}, {2, leaves}});
    table.promise(1);
    table.accept(1);
    REQUIRE(slots_of(table.self().view()) == std::vector<int>{0, 1});
    REQUIRE(table.self().view().urgent_epoch < kEpoch + 1);
    table.epoch = table.self().view().epoch;
    table.pass(milliseconds(500), {{1, kPlain}, {2, leaves}});
    table.outputs.clear();
  }
  Table table;
};

}  // namespace

TEST_CASE("one who leaves falls silent before the step is done: the others leave that step") {
  Leaving world;
  Table& table = world.table;
  table.pass(milliseconds(200), {{1, kPlain}, {2, leaves}});
  CHECK(table.sent<Prepare>(1).empty());
  SUBCASE("as two see") { table.pass(milliseconds(400), {{1, unheard({2})}}); }
  SUBCASE("as the leader alone sees, for longer") {
    table.pass(milliseconds(800), {{1, kPlain}});
    CHECK(table.sent<Prepare>(1).empty());
    table.pass(milliseconds(300), {{1, kPlain}});
  }
  CHECK(table.sent<Beat>(1).back().unheard == std::vector<int>{2});
  table.promise(1);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  const View view = table.sent<Accept>(1)[0].view;
  CHECK(slots_of(view) == std::vector<int>{0, 1});
  CHECK(view.urgent_epoch == view.epoch);
  CHECK(view.departed.empty());
  table.accept(1);
  // Once is enough.
  table.epoch = view.epoch;
  table.outputs.clear();
  table.pass(milliseconds(400), {{1, unheard({2})}});
  CHECK(table.sent<Prepare>(1).empty());
  CHECK(table.sent<Beat>(1).back().unheard.empty());
}

TEST_CASE("nobody waits for one who has left and whose step is done, or that is dead") {
  Leaving world;
  Table& table = world.table;
  SUBCASE("done") { table.enter(table.epoch); }
  SUBCASE("dead") { table.refuse(2); }
  table.pass(milliseconds(600), {{1, unheard({2})}});
  CHECK(table.sent<Prepare>(1).empty());
}

TEST_CASE("who has left hears of later views as long as its trainers train, and tells nobody") {
  Table table(2, {0, 1, 2});
  table.leave();
  View left = view_of(kEpoch + 1, {0, 1});
  left.base = kEpoch;
  left.previous = {{0, 0}, {1, 0}, {2, 0}};
  left.departed = {{{2, 0}, Fate::kLeft}};
  table.say(0, Commit{left}, left.epoch);
  View later = view_of(kEpoch + 2, {0, 1, 9});
  later.base = left.epoch;
  later.previous = {{0, 0}, {1, 0}};
  View newest = later;
  newest.epoch = kEpoch + 4;
  newest.base = later.epoch;
  newest.stop = true;
  for (const View& view : {later, later, left, newest, later}) {
    table.say(1, Commit{view}, view.epoch);
  }
  const auto told = table.told<Decided>();
  REQUIRE(told.size() == 3);
  CHECK(told[0].view == left);
  CHECK(told[1].view == later);
  CHECK(told[2].view == newest);
  CHECK(table.told<Fenced>().empty());
  // It counts in none of them: whoever has another word for what came after has the right one.
  table.outputs.clear();
  table.pass(milliseconds(1'000), {{1, kPlain}, {9, kPlain}});
  for (const int slot : {1, 9}) {
    CAPTURE(slot);
    REQUIRE_FALSE(table.sent<Commit>(slot).empty());
    for (const Commit& commit : table.sent<Commit>(slot)) CHECK(commit.view == left);
  }
  table.say(1, Prepare{{1, 1}}, newest.epoch);
  CHECK(table.sent<Promise>(1).empty());
}

TEST_CASE("who hears of its leave only with a view after it has left all the same") {
  Table table(2, {0, 1, 2});
  View later = view_of(kEpoch + 2, {0, 1, 9});
  later.base = kEpoch + 1;
  later.previous = {{0, 0}, {1, 0}};
  SUBCASE("as it wished") {
    table.leave();
    table.say(0, Commit{later}, later.epoch);
    REQUIRE(table.told<Decided>().size() == 1);
    CHECK(table.told<Decided>()[0].view == later);
    CHECK(table.told<Fenced>().empty());
    // It was none of those who decided that, and cannot know that all of them know it.
    table.outputs.clear();
    table.pass(milliseconds(1'500), {{9, kPlain}});
    CHECK(table.sent<Commit>(9).empty());
  }
  SUBCASE("and has not asked for it") {
    table.say(0, Commit{later}, later.epoch);
    CHECK(table.told<Decided>().empty());
    CHECK(table.told<Fenced>().size() == 1);
  }
  SUBCASE("and it skipped none, and was not heard") {
    table.leave();
    View next = view_of(kEpoch + 1, {0, 1});
    next.base = kEpoch;
    next.departed = {{{2, 0}, Fate::kSilent}};
    table.say(0, Commit{next}, next.epoch);
    CHECK(table.told<Decided>().empty());
    CHECK(table.told<Fenced>().size() == 1);
  }
}

TEST_CASE("who has the files stays for a while, in which others may be asked to stop, too") {
  for (const bool are_all_asked : {false, true}) {
    CAPTURE(are_all_asked);
    Table table(0, {0, 1, 2});
    table.leave();
    table.pass(milliseconds(2'800), {{1, kPlain}, {2, kPlain}});
    CHECK(table.sent<Prepare>(1).empty());
    const Table::Tweak tweak = are_all_asked ? leaves : kPlain;
    table.pass(milliseconds(300), {{1, tweak}, {2, tweak}});
    table.promise(1);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    const View view = table.sent<Accept>(1)[0].view;
    CHECK(view.stop == are_all_asked);
    CHECK(slots_of(view) == (are_all_asked ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 2}));
  }
}

namespace {

/// What is decided next with the word of these.
View decide_with(Table& table, const std::vector<int>& slots) {
  for (const int slot : slots) table.promise(slot);
  REQUIRE_FALSE(table.sent<Accept>(slots[0]).empty());
  for (const int slot : slots) table.accept(slot);
  table.epoch = table.self().view().epoch;
  table.outputs.clear();
  return table.self().view();
}

enum class Loss { kTrainer, kTrainerLater, kWorker, kConnections };

/// Of three the first, which leads and has the files, is asked to leave: that is due after 3 s.
struct LeavingAtLoss {
  explicit LeavingAtLoss(Loss loss) : table(0, {0, 1, 2}) {
    table.enter(kEpoch);
    table.leave();
    const milliseconds before(loss == Loss::kTrainer ? 2'500 : 2'950);
    table.pass(before, others);
    if (loss == Loss::kConnections) {
      table.break_communicator();
      table.pass(milliseconds(75), others);
      CHECK(table.sent<Prepare>(1).empty());  // it is not known yet why
      table.pass(milliseconds(50), others);
      return;
    }
    table.pass(milliseconds(25), others);
    if (loss == Loss::kWorker) {
      table.refuse(2);
      others.erase(2);
    } else {
      others[2] = [](Beat& beat) { beat.self.trainers.clear(); };
    }
    table.pass(milliseconds(25), others);
  }
  Table table;
  std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}};
};

}  // namespace

TEST_CASE("who is asked to leave in the step that a loss ends leaves at the end of another one") {
  for (const Loss loss : {Loss::kTrainer, Loss::kTrainerLater, Loss::kWorker, Loss::kConnections}) {
    for (const bool enters : {true, false}) {
      CAPTURE(static_cast<int>(loss));
      CAPTURE(enters);
      LeavingAtLoss world(loss);
      Table& table = world.table;
      const View without = decide_with(table, {1});
      CHECK(slots_of(without) ==
            (loss == Loss::kWorker ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2}));
      CHECK(without.urgent_epoch == without.epoch);
      table.pass(milliseconds(1'500), world.others);
      CHECK(table.sent<Prepare>(1).empty());
      if (enters) {
        table.enter(table.epoch);
        table.pass(milliseconds(50), world.others);
      } else {
        table.pass(milliseconds(8'000), world.others);
        CHECK(table.sent<Prepare>(1).empty());
        table.pass(milliseconds(1'000), world.others);
      }
      const View left = decide_with(table, {1});
      CHECK(slots_of(left) ==
            (loss == Loss::kWorker ? std::vector<int>{1} : std::vector<int>{1, 2}));
      CHECK(left.departed == std::vector<Departure>{{{0, 0}, Fate::kLeft}});
    }
  }
}

TEST_CASE("who was asked to leave long before a loss waits for the end of another step as well") {
  for (const bool are_dead : {false, true}) {
    CAPTURE(are_dead);
    Table table(0, {0, 1, 2, 3});
    table.enter(kEpoch);
    table.leave();
    table.pass(milliseconds(1'000), {{1, kPlain}, {2, kPlain}, {3, kPlain}});
    // Half of them are not heard any more, and the witness takes its time.
    const std::map<int, Table::Tweak> rest = {{1, unheard({2, 3})}};
    table.pass(milliseconds(500), rest);
    table.promise(1);
    table.pass(milliseconds(30'000), rest);
    if (are_dead) {
      for (const int slot : {2, 3}) table.refuse(slot);
    }
    const auto asked = table.told<AskWitness>();
    REQUIRE_FALSE(asked.empty());
    table.answer({true, asked.back().next_epoch, {0, 1}});
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    table.accept(1);
    const View without = table.self().view();
    CHECK(slots_of(without) == std::vector<int>{0, 1});
    CHECK(without.urgent_epoch == without.epoch);
    table.epoch = without.epoch;
    table.outputs.clear();
    table.pass(milliseconds(9'500), {{1, kPlain}});
    CHECK(table.sent<Prepare>(1).empty());
    table.enter(table.epoch);
    table.pass(milliseconds(50), {{1, kPlain}});
    CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{1});
  }
}

TEST_CASE("slot 0 leaves once the view with a joiner is entered, or in a while if it never is") {
  for (const int leaver : {0, 2}) {
    for (const bool enters : {true, false}) {
      CAPTURE(leaver);
      CAPTURE(enters);
      Entering world(0);
      Table& table = world.table;
      std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}, {9, kPlain}};
      if (leaver == 0) table.leave();
      if (leaver == 2) others[2] = leaves;
      table.pass(milliseconds(leaver == 0 ? 3'500 : 1'100), others);
      // Who has no files has nothing to save.
      CHECK(table.sent<Prepare>(1).empty() == (leaver == 0));
      if (leaver == 0 && enters) {
        table.enter(table.epoch);
        table.pass(milliseconds(50), others);
      } else if (leaver == 0) {
        table.pass(milliseconds(9'000), others);
        CHECK(table.sent<Prepare>(1).empty());
        table.pass(milliseconds(1'000), others);
      }
      const View view = decide_with(table, {1, 9});
      CHECK(slots_of(view) ==
            (leaver == 0 ? std::vector<int>{1, 2, 9} : std::vector<int>{0, 1, 9}));
      CHECK(view.departed == std::vector<Departure>{{{leaver, 0}, Fate::kLeft}});
    }
  }
}

TEST_CASE("who keeps a part of the state leaves once others have copies of it, or in a while") {
  MembershipOptions options;
  options.is_sharded = true;
  Table table(0, {0, 1, 2, 3}, options);
  table.enter(kEpoch);
  const std::map<int, Table::Tweak> others = {{1, leaves}, {2, leaves}, {3, kPlain}};
  table.pass(milliseconds(1'500), others);
  CHECK(table.sent<Prepare>(3).empty());
  table.spare(kEpoch, {2});
  table.pass(milliseconds(500), others);
  CHECK(table.sent<Prepare>(3).empty());
  SUBCASE("as they are told") { table.spare(kEpoch, {2, 1}); }
  SUBCASE("in a while") {
    table.pass(milliseconds(3'800), others);
    CHECK(table.sent<Prepare>(3).empty());
    table.pass(milliseconds(300), others);
  }
  const View view = decide_with(table, {1, 3});
  CHECK(slots_of(view) == std::vector<int>{0, 3});
  CHECK(view.urgent_epoch < view.epoch);
}

TEST_CASE("who has the files leaves once all agree on what it can save, or in a while") {
  MembershipOptions options;
  options.compares_files = true;
  Table table(0, {0, 1, 2}, options);
  table.enter(kEpoch);
  table.leave();
  const std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}};
  table.pass(milliseconds(3'500), others);
  CHECK(table.sent<Prepare>(1).empty());
  SUBCASE("as they are told") { table.spare(kEpoch, {0}); }
  SUBCASE("in a while") {
    table.pass(milliseconds(4'300), others);
    CHECK(table.sent<Prepare>(1).empty());
    table.pass(milliseconds(300), others);
  }
  CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{1, 2});
}

TEST_CASE("who has no files has nothing to save that all would have to agree on") {
  MembershipOptions options;
  options.compares_files = true;
  Table table(0, {0, 1, 2}, options);
  table.enter(kEpoch);
  table.pass(milliseconds(1'100), {{1, kPlain}, {2, leaves}});
  CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{0, 1});
}

TEST_CASE("copies count in the membership in which they were made, and of those who keep any") {
  MembershipOptions options;
  options.is_sharded = true;
  Table table(0, {0, 1, 2, 3}, options);
  SUBCASE("in another one they may not be all") {
    table.enter(kEpoch);
    table.spare(kEpoch, {2});
    table.refuse(3);
    table.pass(milliseconds(50), {{1, kPlain}, {2, leaves}});
    decide_with(table, {1, 2});
    table.enter(table.epoch);
    table.pass(milliseconds(1'500), {{1, kPlain}, {2, leaves}});
    CHECK(table.sent<Prepare>(1).empty());
    table.spare(kEpoch, {2});  // what has been on its way
    CHECK(table.sent<Prepare>(1).empty());
    table.spare(table.epoch, {2});
    CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{0, 1});
  }
  SUBCASE("who has not trained yet keeps nothing, nor does a leader know of others then") {
    table.pass(milliseconds(1'100), {{1, kPlain}, {2, leaves}, {3, kPlain}});
    CHECK(slots_of(decide_with(table, {1, 3})) == std::vector<int>{0, 1, 3});
  }
  SUBCASE("a stop does not wait for them") {
    table.enter(kEpoch);
    table.leave();
    table.pass(milliseconds(50), {{1, leaves}, {2, leaves}, {3, leaves}});
    CHECK(decide_with(table, {1, 3}).stop);
  }
}

TEST_CASE("after each loss who leaves has the time for another step") {
  Table table(0, {0, 1, 2, 3});
  table.enter(kEpoch);
  table.leave();
  std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}, {3, kPlain}};
  table.pass(milliseconds(2'950), others);
  for (const int lost : {3, 2}) {
    CAPTURE(lost);
    table.refuse(lost);
    others.erase(lost);
    table.pass(milliseconds(25), others);
    const std::vector<int> voters = lost == 3 ? std::vector<int>{1, 2} : std::vector<int>{1};
    CHECK(slots_of(decide_with(table, voters)).back() == lost - 1);
    table.pass(milliseconds(8'000), others);
    CHECK(table.sent<Prepare>(1).empty());
  }
  table.pass(milliseconds(2'100), others);
  CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{1});
}

TEST_CASE("who leads and has not trained yet does not have those who leave wait for its entry") {
  Table table(0, {0, 1, 2});
  table.enter(kEpoch);
  const std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}};
  const std::vector<TrainerPlace> ready = table.restart_trainer();
  for (const milliseconds time : {milliseconds(50), milliseconds(200)}) {
    table.pass(time, others);
    decide_with(table, {1});
  }
  REQUIRE(trainers_of(table.self().view(), 0) == ready);
  table.pass(milliseconds(1'050), {{1, kPlain}, {2, leaves}});
  CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{0, 1});
}

namespace {

/// 1 is asked to leave; the trainer of 0 is another process since, and has come with a view that it
/// has not entered yet, or is still being started.
struct LastHolder {
  explicit LastHolder(bool is_back = true) : table(0, {0, 1}) {
    table.enter(kEpoch);
    if (is_back) {
      ready = table.restart_trainer();
    } else {
      table.lose_trainer();
    }
    CHECK(decide(milliseconds(100)).seats[0].trainers.empty());
    if (is_back) come();
    table.outputs.clear();
  }
  void come() {
    const View with = decide(milliseconds(200));
    CHECK_FALSE(with.stop);
    CHECK(slots_of(with) == std::vector<int>{0, 1});
    CHECK(with.seats[0].trainers == ready);
    table.outputs.clear();
  }
  /// What is decided next.
  View decide(milliseconds time) {
    table.outputs.clear();
    table.pass(time, {{1, leaves}});
    table.promise(1);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    const View view = table.sent<Accept>(1)[0].view;
    table.accept(1);
    table.epoch = view.epoch;
    return view;
  }
  Table table;
  std::vector<TrainerPlace> ready;
};

}  // namespace

TEST_CASE("who alone holds the state leaves when another has entered with it, and not before") {
  LastHolder world;
  Table& table = world.table;
  table.pass(milliseconds(1'500), {{1, leaves}});
  CHECK(table.sent<Prepare>(1).empty());
  table.enter(table.epoch);
  CHECK(slots_of(world.decide(milliseconds(100))) == std::vector<int>{0});
}

TEST_CASE("if nobody else comes to hold the state all stop before it is lost") {
  LastHolder world;
  world.table.pass(milliseconds(9'500), {{1, leaves}});
  CHECK(world.table.sent<Prepare>(1).empty());
  const View view = world.decide(milliseconds(1'000));
  CHECK(view.stop);
  CHECK(slots_of(view) == std::vector<int>{0, 1});
}

TEST_CASE("who alone holds the state waits longer for slot 0, without which a stop saves nothing") {
  LastHolder world(false);
  Table& table = world.table;
  table.pass(milliseconds(15'000), {{1, leaves}});
  CHECK(table.sent<Prepare>(1).empty());
  world.ready = table.restart_trainer();
  world.come();  // it is given the time to enter that it would have had before
  table.pass(milliseconds(1'500), {{1, leaves}});
  CHECK(table.sent<Prepare>(1).empty());
  table.enter(table.epoch);
  CHECK(slots_of(world.decide(milliseconds(100))) == std::vector<int>{0});
}

TEST_CASE("a stop waits for nobody who has not entered yet, and lets nobody in") {
  Entering world(0);
  world.table.leave();
  const std::map<int, Table::Tweak> all = {{1, leaves}, {2, leaves}, {9, leaves}};
  const View view = world.decide(all);
  CHECK(view.stop);
  CHECK(slots_of(view) == std::vector<int>{0, 1, 2, 9});
  for (const int slot : {0, 1, 2}) CHECK(trainers_of(view, slot) == seat_of(slot).trainers);
  CHECK(trainers_of(view, 9).empty());
  CHECK(view.urgent_epoch < view.epoch);  // the step under way is done
  // Its trainer has not ended yet.
  world.table.outputs.clear();
  world.table.pass(milliseconds(500), all);
  CHECK(world.table.sent<Prepare>(1).empty());
}

TEST_CASE(
    "a stop waits for slot 0 if none of its trainers has entered, as nothing is saved without") {
  LastHolder world;
  world.table.leave();
  const View view = world.decide(milliseconds(50));
  CHECK(view.stop);
  CHECK(trainers_of(view, 0) == world.ready);
  CHECK(trainers_of(view, 1) == seat_of(1).trainers);
}

TEST_CASE(
    "a stop gives slot 0, without which nothing is saved, a while to start its trainer again") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    Table table(0, {0, 1, 2});
    table.enter(kEpoch);
    table.lose_trainer();
    table.pass(milliseconds(50), {{1, kPlain}, {2, kPlain}});
    table.promise(1);
    table.accept(1);
    table.epoch = table.self().view().epoch;
    REQUIRE(table.epoch > kEpoch);
    REQUIRE(trainers_of(table.self().view(), 0).empty());
    table.outputs.clear();
    table.leave();
    const std::map<int, Table::Tweak> all = {{1, leaves}, {2, leaves}};
    table.pass(milliseconds(2'900), all);
    CHECK(table.sent<Prepare>(1).empty());
    std::vector<TrainerPlace> expected;
    if (comes) expected = table.restart_trainer();
    table.pass(milliseconds(comes ? 50 : 200), all);
    table.promise(1);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    const View view = table.sent<Accept>(1)[0].view;
    CHECK(view.stop);
    CHECK(trainers_of(view, 0) == expected);
    CHECK(trainers_of(view, 1) == seat_of(1).trainers);
  }
}

TEST_CASE("a stop waits for each trainer of slot 0, as one may have a part of the model alone") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    Table table(0, {0, 1, 2});
    View split = view_of(kEpoch + 1, {0, 1, 2});
    split.base = kEpoch;
    split.previous = {{0, 0}, {1, 0}, {2, 0}};
    split.seats[0].processes = 2;
    split.seats[0].trainers.push_back({1, 1, 2'100});
    table.say(1, Commit{split}, split.epoch);
    table.epoch = split.epoch;
    table.enter(split.epoch);
    // The second one has died.
    table.pass(milliseconds(50), {{1, kPlain}, {2, kPlain}});
    table.promise(1);
    table.accept(1);
    table.epoch = table.self().view().epoch;
    REQUIRE(table.epoch > split.epoch);
    std::vector<TrainerPlace> expected = seat_of(0).trainers;
    REQUIRE(trainers_of(table.self().view(), 0) == expected);
    table.enter(table.epoch);
    table.outputs.clear();
    table.leave();
    const std::map<int, Table::Tweak> all = {{1, leaves}, {2, leaves}};
    table.pass(milliseconds(2'900), all);
    CHECK(table.sent<Prepare>(1).empty());
    if (comes) {
      expected.push_back({1, 2, 2'101});
      table.have_trainers(expected);
    }
    table.pass(milliseconds(comes ? 50 : 200), all);
    table.promise(1);
    REQUIRE_FALSE(table.sent<Accept>(1).empty());
    const View view = table.sent<Accept>(1)[0].view;
    CHECK(view.stop);
    CHECK(trainers_of(view, 0) == expected);
    CHECK(trainers_of(view, 1) == seat_of(1).trainers);
  }
}

namespace {

/// Two and two have a copy of the model together.
struct Pairs {
  static MembershipOptions options() {
    MembershipOptions options;
    options.copy_processes = 2;
    return options;
  }
  Pairs() : table(0, {0, 1, 2, 3}, options()) { table.enter(kEpoch); }
  /// The trainer of that one dies, and the others go on.
  void lose_trainer_of(int slot) {
    others[slot] = [](Beat& beat) { beat.self.trainers.clear(); };
    table.pass(milliseconds(50), others);
    CHECK(trainers_of(decide(), slot).empty());
    table.enter(table.epoch);
  }
  View decide() { return decide_with(table, {1, 2}); }
  Table table;
  std::map<int, Table::Tweak> others = {{1, kPlain}, {2, kPlain}, {3, kPlain}};
};

std::vector<TrainerPlace> next_trainers(int slot) {
  std::vector<TrainerPlace> trainers = seat_of(slot).trainers;
  ++trainers[0].incarnation;
  return trainers;
}

}  // namespace

TEST_CASE("of a split model a stop waits for whoever has its copy with the files") {
  for (const bool comes : {false, true}) {
    CAPTURE(comes);
    Pairs world;
    Table& table = world.table;
    world.lose_trainer_of(1);
    table.leave();
    const Table::Tweak loads = [](Beat& beat) {
      leaves(beat);
      beat.self.trainers.clear();
    };
    const Table::Tweak is_back = [](Beat& beat) {
      leaves(beat);
      beat.self.trainers = next_trainers(1);
    };
    world.others = {{1, loads}, {2, leaves}, {3, leaves}};
    table.pass(milliseconds(2'900), world.others);
    CHECK(table.sent<Prepare>(1).empty());
    if (comes) world.others[1] = is_back;
    table.pass(milliseconds(comes ? 50 : 200), world.others);
    const View view = world.decide();
    CHECK(view.stop);
    CHECK(trainers_of(view, 1) == (comes ? next_trainers(1) : std::vector<TrainerPlace>()));
    for (const int slot : {0, 2, 3}) CHECK(trainers_of(view, slot) == seat_of(slot).trainers);
  }
}

TEST_CASE("of a split model whoever has its copy with the files stays for a while as well") {
  for (const int slot : {1, 2}) {
    CAPTURE(slot);
    Pairs world;
    world.others[slot] = leaves;
    world.table.pass(milliseconds(1'300), world.others);
    CHECK(world.table.sent<Prepare>(1).empty() == (slot == 1));
    world.table.pass(milliseconds(1'800), world.others);
    CHECK_FALSE(world.table.sent<Prepare>(1).empty());
  }
}

TEST_CASE("the only whole copy of a split model is not let go for the parts of another") {
  for (const int lost : {1, 3}) {
    CAPTURE(lost);
    Pairs world;
    Table& table = world.table;
    world.lose_trainer_of(lost);
    // Of the copy with the files when the other one is not whole, and the other way round.
    const int leaver = lost == 3 ? 1 : 2;
    world.others[leaver] = leaves;
    table.pass(milliseconds(lost == 3 ? 9'500 : 15'000), world.others);
    CHECK(table.sent<Prepare>(1).empty());
    world.others[lost] = [lost](Beat& beat) { beat.self.trainers = next_trainers(lost); };
    table.pass(milliseconds(200), world.others);
    const View with = world.decide();
    CHECK_FALSE(with.stop);
    CHECK(trainers_of(with, lost) == next_trainers(lost));
    table.pass(milliseconds(1'500), world.others);
    CHECK(table.sent<Prepare>(1).empty());
    table.enter(table.epoch);
    table.pass(milliseconds(50), world.others);
    const View without = world.decide();
    CHECK_FALSE(without.stop);
    CHECK(slots_of(without) == (lost == 3 ? std::vector<int>{0, 2, 3} : std::vector<int>{0, 1, 3}));
  }
}

TEST_CASE("the only whole copy of a split model is saved and let go where no other can come") {
  const MembershipOptions options = Pairs::options();
  SUBCASE("as there is none") {
    Table table(0, {0, 1}, options);
    table.enter(kEpoch);
    table.pass(milliseconds(3'050), {{1, leaves}});
    CHECK(slots_of(decide_with(table, {1})) == std::vector<int>{0});
  }
  SUBCASE("but not if it has no files: those may come") {
    Table table(2, {2, 3}, options);
    table.enter(kEpoch);
    table.pass(milliseconds(15'000), {{3, leaves}});
    CHECK(table.sent<Prepare>(3).empty());
  }
}

TEST_CASE("parts of a split model, of which no copy is whole, hold nobody up who leaves") {
  Pairs world;
  for (const int slot : {1, 3}) world.lose_trainer_of(slot);
  world.others[2] = leaves;
  world.table.pass(milliseconds(1'100), world.others);
  CHECK(slots_of(world.decide()) == std::vector<int>{0, 1, 3});
}

TEST_CASE("a stop at a start, which nobody has entered, is of all") {
  Table table(0, {0, 1});
  table.leave();
  table.pass(milliseconds(50), {{1, leaves}});
  table.promise(1);
  REQUIRE_FALSE(table.sent<Accept>(1).empty());
  const View view = table.sent<Accept>(1)[0].view;
  CHECK(view.stop);
  for (const int slot : {0, 1}) CHECK(trainers_of(view, slot) == seat_of(slot).trainers);
}
