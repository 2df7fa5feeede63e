// What workers tell of their membership, on its way to events: each change once, no flood of them,
// and none that is not counted.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/contract.h"
#include "operator/runtime/loop.h"
#include "tests/unit/runtime/listed.h"

using namespace muster;

namespace {

/// The operator's loop over one job whose status is never stored, and the events that come of it.
class ChangesWorld final : public runtime::Executor {
 public:
  ChangesWorld() {
    clock_.advance(seconds(1'000));
    list(api::Kind::kPod, {});
    list(api::Kind::kTrainingJob,
         {R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {
        "name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
      "spec": {"worker": {"count": 2, "command": ["x"]}}})"});
    events();
  }

  void execute(runtime::Work work) override {
    for (const auto& action : work.plan.actions) {
      const auto* emit = std::get_if<core::EmitEvent>(&action);
      if (emit != nullptr) notes_.push_back(emit->event.note);
    }
    runtime::ApplyDone done;
    done.key = {"ns", "j"};
    done.uid = "u";
    if (fails) done.status = Error(ErrorCode::kUnavailable, "the API server is away");
    REQUIRE(mailbox_.post(std::move(done)));
  }
  void stop() override {}
  bool fails = false;  ///< every plan

  /// Workers tell of so many joins in memberships that nobody has told of.
  void tell(int changes) {
    ProgressReport report;
    report.job = "ns/j";
    for (int i = 0; i < changes; ++i) {
      report.changes.push_back({++epoch_, 7, std::string(contract::change::kJoined), 1, "", 0});
    }
    last_ = report;
    REQUIRE(mailbox_.post(std::move(report)));
  }
  void tell_strangers(const std::vector<std::string>& reasons) {
    ProgressReport report;
    report.job = "ns/j";
    for (const std::string& reason : reasons) {
      report.changes.push_back({3, 0, std::string(contract::change::kStranger), 0, reason, 0});
    }
    REQUIRE(mailbox_.post(std::move(report)));
  }
  /// What was said of strangers since it was asked last.
  std::vector<std::string> strangers() {
    for (int i = 0; i < 3; ++i) loop_.step();
    std::vector<std::string> found = std::exchange(notes_, {});
    std::erase_if(found, [](const std::string& note) { return !note.starts_with("refused "); });
    return found;
  }
  void repeat() { REQUIRE(mailbox_.post(ProgressReport(last_))); }
  void pass(seconds time) { clock_.advance(time); }

  /// About changes, since it was asked last: how many were told by themselves, and what was said of
  /// all others.
  std::pair<int, std::vector<std::string>> events() {
    // What was carried out is heard in the next step.
    for (int i = 0; i < 3; ++i) loop_.step();
    std::pair<int, std::vector<std::string>> found;
    for (const std::string& note : std::exchange(notes_, {})) {
      if (note.find(" joined at step 7") != std::string::npos) ++found.first;
      if (note.find(" more change") != std::string::npos) found.second.push_back(note);
    }
    return found;
  }

 private:
  runtime::LoopOptions options() {
    runtime::LoopOptions made = test::loop_options(clock_, mailbox_, *this);
    made.sees_nodes = false;
    return made;
  }
  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox_.post(test::listed(kind, objects)));
  }

  ManualClock clock_;
  runtime::Mailbox mailbox_{100};
  std::int64_t epoch_ = 0;
  ProgressReport last_;
  std::vector<std::string> notes_;
  runtime::OperatorLoop loop_{options()};
};

using Told = std::pair<int, std::vector<std::string>>;

}  // namespace

TEST_CASE("of more than sixty changes in a minute the rest is one event when the minute is over") {
  ChangesWorld world;
  for (int i = 0; i < 7; ++i) world.tell(10);
  CHECK(world.events() == Told{8, {"52 more changes of the workers' membership"}});
  world.pass(seconds(59));
  world.tell(5);
  CHECK(world.events() == Told{});
  world.pass(seconds(1));
  CHECK(world.events() == Told{0, {"15 more changes of the workers' membership"}});
  world.pass(seconds(300));
  CHECK(world.events() == Told{});
  world.tell(2);
  CHECK(world.events() == Told{2, {}});
}

TEST_CASE("changes that a plan was to tell are told by the next one when it fails") {
  ChangesWorld world;
  world.fails = true;
  for (int i = 0; i < 7; ++i) world.tell(10);
  world.events();
  world.fails = false;
  world.pass(seconds(120));
  CHECK(world.events() == Told{8, {"62 more changes of the workers' membership"}});
  world.repeat();
  CHECK(world.events() == Told{});
}

TEST_CASE("of one membership each stranger is told of, once") {
  ChangesWorld world;
  const std::vector<std::string> both = {"10.0.0.7: it has another key",
                                         "10.0.0.8: it has another key"};
  world.tell_strangers(both);
  CHECK(world.strangers() ==
        std::vector<std::string>{"refused 10.0.0.7: it has another key; membership epoch 3",
                                 "refused 10.0.0.8: it has another key; membership epoch 3"});
  world.tell_strangers(both);
  CHECK(world.strangers().empty());
}

TEST_CASE("what several workers tell of one change, or one of them twice, is told once") {
  ChangesWorld world;
  world.tell(3);
  world.repeat();
  CHECK(world.events() == Told{3, {}});
  world.repeat();
  CHECK(world.events() == Told{});
}
