#include "worker/engine/entry.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::size_t kTrainedHere = 8 * 4096;

/// A member of four, each with a slot of its own, that stands at `step`.
Greeting standing_at(int rank, std::int64_t step) {
  Greeting one;
  one.standing.step = step;
  one.standing.checkpoint_step = step;
  one.has_state = true;
  one.held =
      make_shards({0, 1, 2, 3}, {Ownership(Buckets(kTrainedHere), 4), kTrainedHere}).held(rank);
  one.computed = {{4 * rank, 4 * rank + 4}};
  return one;
}

Greeting logged_at(int rank, std::int64_t step) {
  Greeting one = standing_at(rank, step);
  one.logged = one.standing;
  one.logged->step = step + 1;
  one.logged->loss = 0.5f;
  return one;
}

std::vector<Greeting> at_newest(std::vector<Greeting> greetings) {
  return at_newest_whole_step(kTrainedHere, std::move(greetings));
}

}  // namespace

TEST_CASE("shards: all at one step stay there, with what they have computed") {
  const auto now = at_newest({standing_at(0, 5), standing_at(1, 5), standing_at(2, 5)});
  for (const Greeting& one : now) {
    CHECK(one.has_state);
    CHECK(one.is_whole);
    CHECK(one.standing.step == 5);
    CHECK(one.computed.size() == 1);
  }
}

TEST_CASE("shards: an update that nobody has made is not made, whoever could") {
  for (int logged = 1; logged <= 4; ++logged) {
    std::vector<Greeting> all;
    for (int r = 0; r < 4; ++r) all.push_back(r < logged ? logged_at(r, 5) : standing_at(r, 5));
    for (const Greeting& one : at_newest(all)) {
      CHECK(one.has_state);
      CHECK(one.standing.step == 5);
      CHECK(one.computed.size() == 1);
    }
  }
}

TEST_CASE("shards: an update that somebody has made, the others make") {
  auto ahead = standing_at(1, 6);
  ahead.is_whole = false;
  const auto now = at_newest({logged_at(0, 5), ahead, logged_at(2, 5), logged_at(3, 5)});
  for (const Greeting& one : now) {
    CHECK(one.has_state);
    CHECK_FALSE(one.is_whole);
    CHECK(one.standing.step == 6);
  }
  CHECK(now[0].standing.loss == 0.5f);
  CHECK(now[0].computed.empty());
  CHECK(now[1].computed.size() == 1);
  CHECK(keepers_of(now)[0].held == logged_at(0, 5).held);
  CHECK_FALSE(keepers_of(now)[0].has_parameters);
}

TEST_CASE("shards: who is ahead alone goes back to where all is") {
  const auto now =
      at_newest({standing_at(0, 6), standing_at(1, 5), standing_at(2, 5), standing_at(3, 5)});
  CHECK_FALSE(now[0].has_state);
  CHECK(now[0].held.empty());
  CHECK(now[0].standing.checkpoint_step == -1);  // of a step that is to be made anew
  for (int r = 1; r < 4; ++r) CHECK(now[static_cast<std::size_t>(r)].standing.step == 5);
  CHECK_FALSE(keepers_of(now)[0].has_parameters);
}

TEST_CASE("shards: who is behind and cannot make the update begins anew") {
  const auto now =
      at_newest({standing_at(0, 6), standing_at(1, 6), standing_at(2, 5), standing_at(3, 6)});
  CHECK_FALSE(now[2].has_state);
  CHECK(now[2].computed.empty());
  CHECK(now[0].has_state);
  CHECK(now[0].standing.step == 6);
}

TEST_CASE("shards: without an owner and its buddy nobody has a state") {
  CHECK(has_any_state(at_newest({standing_at(0, 5), standing_at(1, 5), standing_at(2, 5)})));
  CHECK(has_any_state(at_newest({standing_at(0, 5), standing_at(2, 5)})));
  for (const auto& [a, b] : std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {2, 3}, {3, 0}}) {
    CHECK_FALSE(has_any_state(at_newest({standing_at(a, 5), standing_at(b, 5), Greeting()})));
    CHECK_FALSE(has_any_state(at_newest({standing_at(a, 6), logged_at(b, 5)})));
  }
}

TEST_CASE("shards: what was read from a checkpoint counts, what is left of later steps does not") {
  Greeting reader = standing_at(0, 3);
  reader.held = {{0, kTrainedHere}};
  const auto now = at_newest({reader, standing_at(1, 9), standing_at(2, 9)});
  CHECK(now[0].has_state);
  for (const std::size_t r : {1, 2}) {
    CHECK_FALSE(now[r].has_state);
    CHECK(now[r].standing.checkpoint_step == -1);
  }
  CHECK(plan_entry(16, now, 1)->standing.step == 3);
  CHECK(plan_entry(16, now, 1)->standing.checkpoint_step == 3);
}

namespace {

/// A process of three copies of a model in two parts, the second of half the size.
constexpr std::array<std::size_t, 2> kTrainedParts = {kTrainedHere, kTrainedHere / 2};

Greeting part_at(int copy, int place, std::int64_t step) {
  Greeting one = standing_at(copy, step);
  const std::size_t trained = kTrainedParts[static_cast<std::size_t>(place)];
  one.held = make_shards({0, 1, 2}, {Ownership(Buckets(trained), 3), trained}).held(copy);
  return one;
}

Greeting logged_part(int copy, int place, std::int64_t step) {
  Greeting one = part_at(copy, place, step);
  one.logged = one.standing;
  one.logged->step = step + 1;
  return one;
}

std::vector<Greeting> groups_at_newest(int place, const std::vector<Greeting>& greetings) {
  return greetings_of_sharded_groups({kTrainedParts.begin(), kTrainedParts.end()}, place,
                                     greetings);
}

}  // namespace

TEST_CASE("shards of a split model: a copy has what its processes hold, of each place's own part") {
  std::vector<Greeting> all;
  for (int copy = 0; copy < 3; ++copy) {
    for (int place = 0; place < 2; ++place) all.push_back(part_at(copy, place, 5));
  }
  all[3].computed.clear();
  all[3].is_leaving = true;
  for (int place = 0; place < 2; ++place) {
    const auto groups = groups_at_newest(place, all);
    REQUIRE(groups.size() == 3);
    for (int copy = 0; copy < 3; ++copy) {
      const Greeting& one = groups[static_cast<std::size_t>(copy)];
      CHECK(one.has_state);
      CHECK(one.is_whole);
      CHECK(one.standing.step == 5);
      CHECK(one.held == part_at(copy, place, 5).held);
      CHECK(one.computed.size() == (copy == 1 ? 0 : 1));
      CHECK(one.is_leaving == (copy == 1));
    }
  }
}

TEST_CASE("shards of a split model: a copy that lacks a process is lost with all its parts") {
  std::vector<Greeting> all{Greeting(),       part_at(0, 1, 5), part_at(1, 0, 5),
                            part_at(1, 1, 5), part_at(2, 0, 5), part_at(2, 1, 5)};
  for (int place = 0; place < 2; ++place) {
    auto groups = groups_at_newest(place, all);
    CHECK_FALSE(groups[0].has_state);
    CHECK(groups[0].held.empty());
    CHECK(groups[1].has_state);
    CHECK(groups[2].has_state);
  }
  // One more, and of some blocks of one part, owner and buddy are gone.
  all[3] = Greeting();
  for (int place = 0; place < 2; ++place) CHECK_FALSE(has_any_state(groups_at_newest(place, all)));
  // Who has read a checkpoint has everything, and what others know of later steps does not count.
  for (const std::size_t place : {0, 1}) {
    all[2 + place] = part_at(1, static_cast<int>(place), 3);
    all[2 + place].held = {{0, kTrainedParts[place]}};
  }
  for (int place = 0; place < 2; ++place) {
    const auto groups = groups_at_newest(place, all);
    CHECK_FALSE(groups[2].has_state);
    CHECK(groups[1].has_state);
    CHECK(plan_entry(16, groups, 0)->standing.step == 3);
    CHECK(plan_entry(16, groups, 0)->standing.checkpoint_step == 3);
  }
}

TEST_CASE("shards of a split model: an update that some copy has made, all others make") {
  const std::vector<Greeting> all{logged_part(0, 0, 5), logged_part(0, 1, 5), part_at(1, 0, 6),
                                  logged_part(1, 1, 5), logged_part(2, 0, 5), Greeting()};
  for (int place = 0; place < 2; ++place) {
    const auto groups = groups_at_newest(place, all);
    CHECK(groups[0].has_state);
    CHECK(groups[1].has_state);
    CHECK_FALSE(groups[2].has_state);
    for (const std::size_t copy : {0, 1}) {
      CHECK(groups[copy].standing.step == 6);
      CHECK(groups[copy].computed.empty());
      CHECK(groups[copy].is_whole == (copy == 1 && place == 0));
    }
  }
  // What nobody has made is not made, whoever could.
  std::vector<Greeting> ready = all;
  ready[2] = logged_part(1, 0, 5);
  ready[5] = part_at(2, 1, 5);
  for (const Greeting& one : groups_at_newest(0, ready)) CHECK(one.standing.step == 5);
  // Nor what only a copy has made that is of no use.
  std::vector<Greeting> useless = ready;
  useless[2] = part_at(1, 0, 6);
  useless[3] = Greeting();
  useless[5] = logged_part(2, 1, 5);
  const auto groups = groups_at_newest(0, useless);
  CHECK(groups[0].standing.step == 5);
  CHECK(groups[2].standing.step == 5);
  CHECK_FALSE(groups[1].has_state);
}

TEST_CASE("a state that some have found wrong is nobody's any more, whoever has not heard of it") {
  std::vector<Greeting> all{standing_at(0, 5), logged_at(1, 5), standing_at(2, 5)};
  all[0].has_state = false;
  all[0].standing = Standing();
  all[0].standing.lineage = 2;
  all[1].standing.lineage = 1;
  all[1].record_bytes = 9;
  all[1].spec = sha256(std::string_view("spec"));
  all[1].is_leaving = true;
  all[2].standing.lineage = 2;
  CHECK(keep_newest_lineage(all) == 2);
  CHECK_FALSE(all[1].has_state);
  CHECK_FALSE(all[1].logged);
  CHECK(all[1].held.empty());
  CHECK(all[1].computed.empty());
  CHECK(all[1].record_bytes == 0);
  CHECK(all[1].standing.checkpoint_step == -1);
  CHECK(all[1].spec == sha256(std::string_view("spec")));
  CHECK(all[1].is_leaving);
  CHECK(all[2].has_state);  // it has gone back and come to this step again
  CHECK(all[2].standing.step == 5);
}

TEST_CASE("who has no state yet is told of the lineage, and a state keeps the one it has") {
  std::vector<Greeting> all{standing_at(0, 5), Greeting()};
  all[0].standing.lineage = 3;
  CHECK(keep_newest_lineage(all) == 3);
  CHECK(all[0].has_state);
  const auto plan = plan_entry(16, all, 1);
  REQUIRE(plan.has_value());
  CHECK(plan->standing.lineage == 3);
}

namespace {

Greeting joiner() { return {}; }

/// One that has made `step` steps and computed nothing of the next.
Greeting idle_at(int rank, std::int64_t step) {
  Greeting one = standing_at(rank, step);
  one.computed.clear();
  return one;
}

}  // namespace

TEST_CASE("who joins is given the state by one of its own host, where one has it") {
  const std::vector<Greeting> all{idle_at(0, 5), joiner(), idle_at(2, 5),
                                  joiner(),      joiner(), joiner()};
  CHECK(plan_entry(16, all, 1)->source == std::vector<int>{0, 0, 2, 2, 0, 2});
  // Those on the third host are given it by each in turn.
  const Hosts hosts({4, 9, 9, 4, 6, 6});
  CHECK(plan_entry(16, all, 1, hosts)->source == std::vector<int>{0, 2, 2, 0, 0, 2});
  // Who stands behind has no state to give.
  std::vector<Greeting> behind = all;
  behind[2] = idle_at(2, 4);
  CHECK(plan_entry(16, behind, 1, hosts)->source == std::vector<int>(6, 0));
}

TEST_CASE("who joins those who train learns in the next step, which the others make") {
  const std::vector<Greeting> all{joiner(), idle_at(1, 5), joiner(), idle_at(3, 5), joiner()};
  EntryPlan plan = *plan_entry(16, all, 1);
  CHECK(plan.source == std::vector<int>{1, 1, 3, 3, 1});
  REQUIRE(may_learn(plan, all));
  let_learn(plan, 16, all);
  CHECK(plan.learns == std::vector<std::uint8_t>{1, 0, 1, 0, 1});
  using Nodes = std::vector<RankRange>;
  CHECK(plan.assignment.nodes == std::vector<Nodes>{{}, Nodes{{0, 8}}, {}, Nodes{{8, 16}}, {}});
  CHECK(plan.assignment.logical_ranks == 16);
}

TEST_CASE("what a dead one had of a step is computed by those who have the state") {
  const std::vector<Greeting> all{standing_at(0, 5), joiner(), standing_at(3, 5)};
  EntryPlan plan = *plan_entry(16, all, 1);
  REQUIRE(may_learn(plan, all));
  let_learn(plan, 16, all);
  CHECK(plan.learns == std::vector<std::uint8_t>{0, 1, 0});
  CHECK(plan.assignment.nodes[1].empty());
  CHECK(count_ranks(plan.assignment.nodes[0]) == 8);
  CHECK(count_ranks(plan.assignment.nodes[2]) == 8);
  held_nodes(plan.assignment);  // every logical rank once
}

TEST_CASE("nobody learns at a start, or where a survivor is behind, or where all have the state") {
  const auto may = [](const std::vector<Greeting>& all) {
    return may_learn(*plan_entry(16, all, 0), all);
  };
  CHECK_FALSE(may({idle_at(0, 0), joiner()}));
  auto restored = idle_at(0, 7);
  restored.standing.restored_step = 7;
  CHECK_FALSE(may({restored, joiner()}));
  restored.standing.restored_step = 6;
  CHECK(may({restored, joiner()}));
  CHECK_FALSE(may({idle_at(0, 7), idle_at(1, 6), joiner()}));
  CHECK(may({idle_at(0, 7), idle_at(1, 7)}));  // and nobody is behind
}

TEST_CASE("who comes back to the files is told by no more than have all lines together") {
  const auto told = [](const std::vector<LineNumbers>& lines, std::vector<int> source, int owner) {
    std::vector<Greeting> all(lines.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      all[rank].has_state = lines[rank].last > 0;
      all[rank].record_bytes = lines[rank].last > 0 ? 9 : 0;
      all[rank].record_lines = lines[rank];
    }
    EntryPlan plan;
    plan.source = std::move(source);
    std::vector<std::pair<int, int>> pairs;
    for (const Telling& one : plan_telling(plan, all, owner)) pairs.emplace_back(one.from, one.to);
    return pairs;
  };
  using Pairs = std::vector<std::pair<int, int>>;
  const std::vector<int> to_first{1, 1, 2, 3, 4, 5};
  const LineNumbers same{8, 20};
  CHECK(told({{}, same, same, same, same, same}, to_first, 0) == Pairs{{1, 0}});
  CHECK(told({{}, same, same, {6, 20}, same, {6, 20}}, to_first, 0) == Pairs{{3, 0}});
  CHECK(told({{}, same, same, {6, 20}, {9, 21}, {7, 21}}, to_first, 0) == Pairs{{3, 0}, {4, 0}});
  CHECK(told({{}, same, {8, 21}, {8, 21}, same, {6, 21}}, to_first, 0) == Pairs{{5, 0}});
  // Who is given a newer state may have older lines, and has none that the others lack.
  CHECK(told({{}, {4, 19}, {6, 20}, same, same, same}, {2, 2, 2, 3, 4, 5}, 0) == Pairs{{2, 0}});
  // An owner whose disk gives no answer has lines, too, and tells who joins.
  CHECK(told({same, {8, 21}, {}}, {0, 1, 0}, 0) == Pairs{{1, 0}, {0, 2}});
  CHECK(told({{}, {}, {}}, {1, 1, 2}, 0).empty());
  // While it is away, each is told by who gives it the state.
  CHECK(told({{}, same, same, {}}, {1, 1, 2, 2}, -1) == Pairs{{1, 0}, {2, 3}});
}

TEST_CASE("who knows its pictures tells who does not: those who train, in turn") {
  const auto told = [](std::vector<Greeting> all, const std::vector<std::size_t>& unchecked) {
    for (const std::size_t rank : unchecked) all[rank].is_checked = false;
    std::vector<std::pair<int, int>> pairs;
    for (const Telling& one : plan_checks(all)) pairs.emplace_back(one.from, one.to);
    return pairs;
  };
  using Pairs = std::vector<std::pair<int, int>>;
  std::vector<Greeting> all{{}, standing_at(1, 5), standing_at(2, 5), {}, {}, {}};
  CHECK(told(all, {}).empty());
  CHECK(told(all, {3, 4, 5}) == Pairs{{1, 3}, {2, 4}, {1, 5}});
  CHECK(told(all, {0, 2, 5}) == Pairs{{1, 0}, {1, 2}, {1, 5}});
  // Nobody trains yet.
  CHECK(told({{}, {}, {}}, {1}) == Pairs{{0, 1}});
}

namespace {

/// Three who greet each other: two come from membership 7, the third is new. What they would block
/// for must be there, so that one thread can be all of them.
struct Meeting {
  SystemClock clock;
  std::vector<std::unique_ptr<comm::Communicator>> ends = comm::make_local_communicators(3, clock);
  std::vector<Greeting> says{survivor(), survivor(), joiner()};

  static Greeting survivor() {
    Greeting one;
    one.has_state = true;
    one.standing.step = 5;
    one.trained_epoch = 7;
    one.foresees = true;
    return one;
  }
  MonoTime soon() const { return clock.mono_now() + milliseconds(20); }
  Greetings begin(std::size_t rank) { return *Greetings::begin(*ends[rank], says[rank], {16, 0}); }
  static Status status_of(const Result<std::vector<Greeting>>& greetings) {
    return greetings ? Status() : Status(greetings.error());
  }
};

const std::vector<int> kThird{2};

bool is_of_another_step(const Status& status) {
  return !status && status.error().code() == ErrorCode::kAborted;
}

}  // namespace

TEST_CASE("who goes over with all others waits for the newcomers' greetings alone") {
  Meeting meeting;
  meeting.says[1].standing.checkpoint_step = 4;  // it has the files
  Greetings first = meeting.begin(0), third = meeting.begin(2);
  const auto foreseen = first.foresee(kThird, meeting.soon());
  REQUIRE(foreseen);
  REQUIRE(*foreseen);
  CHECK((**foreseen)[1].has_state);
  CHECK((**foreseen)[1].standing.step == 5);
  CHECK_FALSE((**foreseen)[2].has_state);
  Greetings second = meeting.begin(1);
  REQUIRE(second.foresee(kThird, meeting.soon()));
  for (Greetings* one : {&first, &second}) {
    const auto newest = one->confirm(meeting.soon());
    REQUIRE(newest);
    CHECK(*newest == 4);
  }
  CHECK(third.finish(meeting.soon()));
}

TEST_CASE("who comes from the same membership without its last step ends the meeting for all") {
  Meeting meeting;
  meeting.says[1].standing.step = 4;
  meeting.says[1].foresees = false;
  meeting.says[1].computed = {{0, 8}};
  Greetings first = meeting.begin(0), second = meeting.begin(1), third = meeting.begin(2);
  const auto foreseen = first.foresee(kThird, meeting.soon());
  REQUIRE(foreseen);
  REQUIRE(*foreseen);
  // Nobody has begun anything by then that the others would take for something else.
  CHECK(is_of_another_step(Meeting::status_of(second.finish(meeting.soon()))));
  CHECK(is_of_another_step(Meeting::status_of(third.finish(meeting.soon()))));
  const auto confirmed = first.confirm(meeting.soon());
  REQUIRE_FALSE(confirmed);
  CHECK(confirmed.error().code() == ErrorCode::kAborted);
}

TEST_CASE("a spare, which is not asked, says the same as those who go over") {
  Meeting meeting;
  meeting.says[1].foresees = false;
  Greetings first = meeting.begin(0), second = meeting.begin(1), third = meeting.begin(2);
  REQUIRE(*first.foresee(kThird, meeting.soon()));
  CHECK(first.confirm(meeting.soon()));
  CHECK(second.finish(meeting.soon()));
  CHECK(third.finish(meeting.soon()));
}

TEST_CASE("a newcomer that brings something is looked at by all before they go on") {
  const auto meets = [](const Greeting& newcomer) {
    Meeting meeting;
    meeting.says[2] = newcomer;
    Greetings first = meeting.begin(0), third = meeting.begin(2);
    const auto foreseen = first.foresee(kThird, meeting.soon());
    REQUIRE(foreseen);
    CHECK_FALSE(*foreseen);
    Greetings second = meeting.begin(1);
    for (Greetings* one : {&first, &second, &third}) CHECK(one->finish(meeting.soon()));
  };
  Greeting behind = idle_at(0, 3);  // it was cut off, and has trained before
  behind.trained_epoch = 6;
  behind.held.clear();
  meets(behind);
  Greeting unchecked = joiner();
  unchecked.is_checked = false;
  meets(unchecked);
  Greeting with_lines = joiner();
  with_lines.record_bytes = 9;
  meets(with_lines);
  Greeting of_newer_lineage = joiner();
  of_newer_lineage.standing.lineage = 1;
  meets(of_newer_lineage);
}
