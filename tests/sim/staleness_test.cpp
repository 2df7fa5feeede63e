// What the operator does while it does not see its own writes yet.
#include <doctest/doctest.h>

#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

/// Everything the watches have is delivered; no plan is carried out.
void see(World& world) {
  bool busy = true;
  while (busy) {
    busy = false;
    for (auto& pump : world.op->pumps) {
      while (pump->step(milliseconds(0)) == runtime::WatchPump::Did::kWork) busy = true;
    }
  }
  world.op->next = world.op->loop->step();
}

}  // namespace

TEST_CASE("until an own status write is seen, nothing else is decided about that job") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("j", 2);
  see(world);
  REQUIRE(world.op->executor.work());  // the placement is stored, and not seen
  world.op->loop->step();
  ProgressReport report;
  report.job = "default/j";
  REQUIRE(world.op->mailbox.try_post(report));
  world.op->loop->step();
  CHECK_FALSE(world.op->executor.work());
  world.settle();
  CHECK(world.pods().size() == 2);
}

TEST_CASE("a write that is never seen holds its job up for a while only") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("j", 2);
  see(world);
  REQUIRE(world.op->executor.work());
  world.op->loop->step();
  CHECK(world.op->loop->step() <= world.clock.mono_now() + seconds(30));
  world.clock.advance(seconds(30));
  world.op->loop->step();
  // It tries again with what it knows; the version that it knows is refused, and nothing is broken.
  CHECK(world.op->executor.work());
  world.pass(seconds(5));
  CHECK(world.job("j").status.membership_epoch == 1);
  CHECK(world.pods().size() == 2);
}

TEST_CASE("capacity promised by a decision on its way is not promised again") {
  World world(test::seed());
  world.add_node("local", 3);
  world.create_job("second", 2);
  see(world);  // decided, not carried out
  // As old as the other and before it by name: waiting in line would not protect the promise.
  world.create_job("first", 2);
  see(world);
  world.settle();
  CHECK(world.pods().size() == 2);
  CHECK(world.job("second").status.placement.size() == 2);
  CHECK(world.job("first").status.placement.empty());
}
