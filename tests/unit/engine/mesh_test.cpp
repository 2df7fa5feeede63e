#include "worker/engine/mesh.h"

#include <doctest/doctest.h>

#include "worker/engine/entry.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// A view of these processes by their numbers, `each` of them in a worker.
View processes(std::vector<int> numbers, int each, int rank = 0) {
  View view;
  view.rank = rank;
  for (const int number : numbers) view.slots.push_back(number / each);
  view.numbers = std::move(numbers);
  return view;
}

using Groups = std::vector<std::vector<int>>;

Greeting process_at(std::int64_t step) {
  Greeting one;
  one.has_state = true;
  one.standing.step = one.standing.settled_step = step;
  one.standing.loss = static_cast<float>(step);
  one.computed = {{0, 4}, {4, 8}};
  return one;
}

/// It has the gradients of the next step, and does not know that the others have.
Greeting process_logged_at(std::int64_t step) {
  Greeting one = process_at(step);
  one.logged = one.standing;
  ++one.logged->step;
  one.logged->loss = -1;
  return one;
}

}  // namespace

TEST_CASE("one process has the whole model: each is its own group, whatever its number") {
  const Mesh mesh = mesh_of(processes({4, 4, 9}, 1, 2), 1);
  CHECK(mesh.groups == Groups{{0}, {1}, {2}});
  CHECK(mesh.group == 2);
  CHECK(mesh.owner == -1);
}

TEST_CASE("a group is processes whose numbers follow each other, within a worker or across") {
  for (const int each : {1, 2, 4}) {
    const Mesh mesh = mesh_of(processes({0, 1, 2, 3, 6, 7}, each, 4), 2);
    CHECK(mesh.groups == Groups{{0, 1}, {2, 3}, {4, 5}});
    CHECK(mesh.group == 2);
    CHECK(mesh.owner == 0);
    CHECK(mesh.members() == std::vector<int>{0, 1, 2, 3, 4, 5});
    CHECK(mesh.copies_of(1) == std::vector<int>{1, 3, 5});
  }
}

TEST_CASE("who is left of a group waits, with the files, too") {
  for (const int rank : {0, 1, 2}) {
    const Mesh mesh = mesh_of(processes({1, 2, 3}, 1, rank), 2);
    CHECK(mesh.groups == Groups{{1, 2}});
    CHECK(mesh.group == (rank == 0 ? -1 : 0));
    CHECK(mesh.owner == -1);
  }
  CHECK(mesh_of(processes({0, 3}, 1), 2).copies() == 0);
}

TEST_CASE("of a worker with several groups the first there is has the files") {
  // The first process of worker 0 is away.
  const Mesh mesh = mesh_of(processes({1, 2, 3, 4, 5}, 4), 2);
  CHECK(mesh.groups == Groups{{1, 2}, {3, 4}});
  CHECK(mesh.owner == 0);
}

TEST_CASE("groups: a copy is at a step where all its processes are, or can come to it") {
  const auto groups = greetings_of_groups(
      {process_at(6), process_logged_at(5),         // can come to 6
       process_logged_at(5), process_logged_at(5),  // that 6 is made, others tell
       process_at(5), process_logged_at(5),         // stay at 5
       process_at(6), process_at(5)},               // of two steps
      2);
  REQUIRE(groups.size() == 4);
  CHECK(groups[0].has_state);
  CHECK(groups[0].standing.step == 6);
  CHECK(groups[0].standing.loss == 6);
  CHECK(groups[0].standing.settled_step == 5);
  CHECK(groups[0].computed.empty());
  CHECK(groups[1].has_state);
  CHECK(groups[1].standing.step == 6);
  CHECK(groups[2].standing.step == 5);
  CHECK(groups[2].computed.size() == 2);
  CHECK_FALSE(groups[3].has_state);
  const auto plan = plan_entry(8, groups, 1);
  REQUIRE(plan.has_value());
  CHECK(plan->standing.step == 6);
  CHECK(plan->standing.loss == 6);  // of who knows it
  CHECK(plan->source[1] == 1);
  CHECK(plan->source[2] != 2);
}

TEST_CASE("groups: an update that nobody has made is not made, whoever could") {
  const auto groups = greetings_of_groups({process_logged_at(5), process_logged_at(5)}, 2);
  CHECK(groups[0].has_state);
  CHECK(groups[0].standing.step == 5);
  CHECK(groups[0].computed.size() == 2);
}

TEST_CASE("groups: only what all processes have computed of a step need not be computed again") {
  std::vector<Greeting> greetings{process_at(5), process_at(5)};
  greetings[1].computed = {{4, 8}, {8, 12}};
  CHECK(greetings_of_groups(greetings, 2)[0].computed == std::vector<RankRange>{{4, 8}});
}

TEST_CASE("groups: one that lacks a process' state has none, and nobody's is used") {
  const auto groups = greetings_of_groups({process_at(5), Greeting()}, 2);
  CHECK_FALSE(groups[0].has_state);
  CHECK(groups[0].computed.empty());
  CHECK_FALSE(has_any_state(groups));
}

TEST_CASE("groups: processes of one copy that are about different data say so") {
  std::vector<Greeting> greetings{process_at(5), process_at(5), process_at(5), process_at(5)};
  greetings[3].data[0] = 1;
  CHECK(check_group(greetings, 2, 0).has_value());
  const Status differs = check_group(greetings, 2, 1);
  REQUIRE(!differs.has_value());
  CHECK(differs.error().message().find("different data") != std::string::npos);
}
