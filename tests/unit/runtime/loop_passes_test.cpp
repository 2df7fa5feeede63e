#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "operator/runtime/loop.h"
#include "operator/runtime/metrics.h"
#include "tests/unit/runtime/jobs_fixture.h"
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

/// A job that waits for a node with more processors than there are, and what says so is being
/// written.
struct PassFixture {
  TickingClock clock;
  runtime::Mailbox mailbox{100};
  Decisions decisions;
  runtime::OperatorLoop loop;

  explicit PassFixture(nanoseconds tick)
      : clock(tick), loop(test::loop_options(clock, mailbox, decisions)) {
    list_node("2");
    list(api::Kind::kPod, {});
    list_job("u", 1, "4");
    loop.step();
    REQUIRE(decisions.made == 0);
  }

  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox.post(test::listed(kind, objects)));
  }

  void list_node(const std::string& cpus) {
    list(api::Kind::kNode,
         {R"({"metadata": {"name": "n", "uid": "u-n"}, "status": {"allocatable": {"cpu": ")" +
          cpus + R"(", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}})"});
  }

  void list_job(const std::string& uid, int generation, const std::string& cpus) {
    const std::string number = std::to_string(generation);
    list(api::Kind::kTrainingJob,
         {R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j",
      "namespace": "ns", "uid": ")" +
          uid + R"(", "resourceVersion": ")" + number + R"(", "generation": )" + number +
          R"(}, "spec": {"worker": {"count": 1, "command": ["x"],
        "resources": {"cpu": ")" +
          cpus + R"(", "memory": "1Gi"}}}})"});
  }

  /// Nothing was written, so the job is looked at again.
  void end_write() {
    runtime::ApplyDone done;
    done.key = {"ns", "j"};
    done.uid = "u";
    REQUIRE(mailbox.post(std::move(done)));
  }

  /// How long the loop wants to be left alone, until it has decided: there is room now.
  nanoseconds pause() {
    clock.stop_ticking();
    end_write();
    list_node("8");
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

TEST_CASE("a place that was found for a job as it was is not given to it as it is") {
  std::string uid = "u";
  int generation = 1;
  std::string cpus = "4";
  SUBCASE("unchanged") {}
  SUBCASE("edited") {
    generation = 2;
    cpus = "16";
  }
  SUBCASE("another of its name") {
    uid = "other";
    cpus = "16";
  }
  PassFixture fixture(milliseconds(10));
  fixture.clock.move_to(fixture.clock.now() + seconds(1));
  // The place is found while what said that there is none is still being written.
  fixture.list_node("8");
  fixture.loop.step();
  REQUIRE(fixture.decisions.made == 0);
  // And used before there may be another pass.
  fixture.clock.stop_ticking();
  fixture.list_job(uid, generation, cpus);
  fixture.end_write();
  const MonoTime due = fixture.loop.step();
  CHECK(fixture.decisions.made == (cpus == "4" ? 1 : 0));
  if (cpus == "4") return;
  CHECK(due > fixture.clock.now());
  fixture.clock.move_to(fixture.clock.now() + seconds(1));
  fixture.loop.step();
  CHECK(fixture.decisions.made == 0);
}

namespace {

/// How often all that is free was added up anew, for whichever reason.
int times_remade(const runtime::Metrics& metrics) {
  const std::string page = metrics.render();
  int times = 0;
  for (const char* reason : {"first", "nodes", "topology", "changes"}) {
    const std::string of = std::string("muster_inventory_remade_total{reason=\"") + reason + "\"} ";
    const auto at = page.find(of);
    REQUIRE(at != std::string::npos);
    times += std::stoi(page.substr(at + of.size()));
  }
  return times;
}

runtime::WatchBatch word_of(const std::string& node) {
  runtime::WatchBatch batch{api::Kind::kNode, {}};
  batch.events.push_back(
      {kube::WatchEvent::Type::kApply, *parse_json(test::ready_node(node, "{}"))});
  return batch;
}

}  // namespace

TEST_CASE("two workers that become one keep the room of two, also before that is in status") {
  const auto free_job = [](const std::string& version, const std::string& status) {
    Json job = *parse_json(test::JobsFixture::job("a", version, "4", status));
    job["spec"]["worker"]["count"] = 2;
    job["spec"]["worker"]["shape"] = "Free";
    return dump_json(job);
  };
  test::JobsFixture fixture;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.checks_inventory = true;
  runtime::OperatorLoop loop(options);
  fixture.list_node();  // of 12 processors
  std::string status = "{}";
  SUBCASE("in status") {
    status = R"({"membershipEpoch": 1, "targetWorkers": 1, "startCount": 1, "workerSize": 2,
                 "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})";
  }
  SUBCASE("on the way there") {}
  fixture.list(api::Kind::kTrainingJob, {free_job("1", status)});
  loop.step();
  if (status == "{}") {
    CHECK(fixture.planned.places_of("a") == std::vector<std::string>{"n"});
  } else {
    const auto made = fixture.planned.actions_on<core::CreatePod>("a");
    REQUIRE(made.size() == 1);
    CHECK(made.front()->pod.requests.cpu_millis == 8000);
  }
  fixture.list(api::Kind::kTrainingJob,
               {free_job("1", status), test::JobsFixture::job("b", "1", "5"),
                test::JobsFixture::job("c", "1", "4")});
  loop.step();
  for (const std::string& nodes : fixture.planned.places_of("b")) CHECK(nodes.empty());
  CHECK(fixture.planned.places_of("c") == std::vector<std::string>{"n"});
}

TEST_CASE("while jobs train and none waits, a node that is still there is no news") {
  test::JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  test::let_train(fixture, loop, Json::object());
  REQUIRE(times_remade(metrics) == 0);
  for (int second = 1; second < 5; ++second) {
    REQUIRE(fixture.mailbox.post(word_of("n")));
    ProgressReport report = test::first_step(0);
    report.step = second;
    REQUIRE(fixture.mailbox.post(std::move(report)));
    loop.step();
    fixture.carry_out();
    CHECK(times_remade(metrics) == 1);
    fixture.clock.advance(seconds(1));
  }
}

TEST_CASE("where nodes stand is asked only for jobs that may write how far they are now") {
  test::JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  test::let_train(fixture, loop, Json::object());
  const auto tell = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) REQUIRE(fixture.mailbox.post(test::first_step(i)));
    loop.step();
  };
  tell(0, 12);
  REQUIRE(fixture.planned.works.size() == 10);
  REQUIRE(times_remade(metrics) == 1);
  // Of a node more nobody hears who has to wait.
  REQUIRE(fixture.mailbox.post(word_of("m")));
  tell(12, test::kTrain);
  CHECK(fixture.planned.works.size() == 10);
  CHECK(times_remade(metrics) == 1);
  fixture.clock.advance(seconds(1));
  loop.step();
  CHECK(fixture.planned.works.size() == 20);
  CHECK(times_remade(metrics) == 2);
}

TEST_CASE("a stranger's pod of the name of a place frees it for nobody") {
  test::JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  const std::string placed = test::JobsFixture::job("a", "1", "8", R"({"membershipEpoch": 1,
      "targetWorkers": 1, "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})");
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {placed});
  loop.step();
  const auto made = fixture.planned.actions_on<core::CreatePod>("a");
  REQUIRE(made.size() == 1);
  Json pod = api::to_json(made.front()->pod);
  pod["metadata"]["uid"] = "u-pod";
  SUBCASE("of nobody") { pod["metadata"].erase("ownerReferences"); }
  SUBCASE("of another job that had its name") {
    pod["metadata"]["ownerReferences"][0]["uid"] = "u-other";
    pod["spec"].erase("affinity");
  }
  fixture.carry_out();
  fixture.list(api::Kind::kPod, {dump_json(pod)});
  fixture.list(api::Kind::kTrainingJob, {placed, test::JobsFixture::job("b", "1", "8")});
  loop.step();
  for (const std::string& nodes : fixture.planned.places_of("b")) CHECK(nodes.empty());
}
