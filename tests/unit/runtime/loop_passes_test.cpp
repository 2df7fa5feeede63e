#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "operator/runtime/loop.h"
#include "tests/unit/runtime/listed.h"

using namespace muster;

namespace {

/// On which every look takes so long: a pass, which looks when it begins and when it ends, takes
/// one tick.
class TickingClock final : public Clock {
 public:
  explicit TickingClock(nanoseconds tick) : tick_(tick) {}
  MonoTime mono_now() const override { return mono_ += tick_; }
  WallTime wall_now() const override { return WallTime(seconds(1'700'000'000)); }
  void move_to(MonoTime time) { mono_ = std::max(mono_, time); }
  void stop_ticking() { tick_ = nanoseconds(0); }
  MonoTime now() const { return mono_; }

 private:
  nanoseconds tick_;
  mutable MonoTime mono_{seconds(1)};
};

class Decisions final : public runtime::Executor {
 public:
  void execute(runtime::Work work) override {
    if (work.plan.pass == core::Pass::kDecision) ++made;
  }
  void stop() override {}
  int made = 0;
};

/// A job that waits for a node with more processors than there are; then there is one.
struct PassFixture {
  TickingClock clock;
  runtime::Mailbox mailbox{100};
  Decisions decisions;
  runtime::OperatorLoop loop;

  explicit PassFixture(nanoseconds tick)
      : clock(tick), loop(test::loop_options(clock, mailbox, decisions)) {
    list_node("2");
    list(api::Kind::kPod, {});
    list(api::Kind::kTrainingJob,
         {R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j",
      "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
      "spec": {"worker": {"count": 1, "command": ["x"],
        "resources": {"cpu": "4", "memory": "1Gi"}}}})"});
    loop.step();
    clock.stop_ticking();
    REQUIRE(decisions.made == 0);
    // That it waits was refused to be written, so it is looked at again.
    runtime::ApplyDone done;
    done.key = {"ns", "j"};
    done.uid = "u";
    REQUIRE(mailbox.post(std::move(done)));
    list_node("8");
  }

  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox.post(test::listed(kind, objects)));
  }

  void list_node(const std::string& cpus) {
    list(api::Kind::kNode,
         {R"({"metadata": {"name": "n", "uid": "u-n"}, "status": {"allocatable": {"cpu": ")" +
          cpus + R"(", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}})"});
  }

  /// How long the loop wants to be left alone, until it has decided.
  nanoseconds pause() {
    nanoseconds paused{0};
    for (int i = 0; i < 100 && decisions.made == 0; ++i) {
      const MonoTime due = loop.step();
      if (decisions.made > 0) break;
      paused += std::max(nanoseconds(0), due - clock.now());
      clock.move_to(due);
    }
    CHECK(decisions.made == 1);
    return paused;
  }
};

}  // namespace

TEST_CASE("after a long pass the next one waits, so that passes are a part of the time") {
  const nanoseconds paused = PassFixture(milliseconds(10)).pause();
  CHECK(paused > milliseconds(50));
  CHECK(paused <= milliseconds(90));
}

TEST_CASE("however long a pass takes, the next one waits a quarter of a second at most") {
  const nanoseconds paused = PassFixture(milliseconds(100)).pause();
  CHECK(paused > milliseconds(0));
  CHECK(paused <= milliseconds(250));
}

TEST_CASE("a pass that takes no time is followed at once") {
  CHECK(PassFixture(nanoseconds(0)).pause() == nanoseconds(0));
}
