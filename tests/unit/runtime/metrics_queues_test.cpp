#include "operator/runtime/metrics_queues.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "operator/api/pod.h"
#include "operator/runtime/loop.h"
#include "operator/runtime/queue_book.h"
#include "tests/unit/runtime/listed.h"

using namespace muster;

namespace {

/// The value of a series as text; "absent" when no line has it.
std::string value_in(const std::string& page, const std::string& series) {
  const std::string text = "\n" + page;
  const std::size_t at = text.find("\n" + series + " ");
  if (at == std::string::npos) return "absent";
  const std::size_t from = at + series.size() + 2;
  return text.substr(from, text.find('\n', from) - from);
}

/// Takes what is to be written and writes nothing.
class Nowhere final : public runtime::Executor {
 public:
  void execute(runtime::Work) override {}
  void stop() override {}
};

/// The loop with a node, two queues of a cohort, and three jobs of one CPU and 1 GiB in one of
/// them, whose quota and what it may borrow is enough for two.
struct QueuedFixture {
  ManualClock clock;
  runtime::Mailbox mailbox{100};
  Nowhere nowhere;
  runtime::Metrics metrics{{&clock, "1.2.3"}};
  runtime::OperatorLoop loop;

  explicit QueuedFixture(bool is_leader = true) : loop(options(is_leader)) {
    list(api::Kind::kNode,
         {R"({"metadata": {"name": "n", "uid": "u-n"}, "status": {"allocatable": {"cpu": "8",
      "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}})"});
    list(api::Kind::kPod, {});
    list(api::Kind::kPriorityClass, {});
    list(api::Kind::kTrainingQueue,
         {queue("a", R"("cohort": "lab", "resources": [{"name": "cpu", "nominal": "1500m",
            "borrowingLimit": "500m"}, {"name": "memory", "nominal": "4Gi"}])"),
          queue("b", R"("cohort": "lab", "resources": [{"name": "cpu", "nominal": "1"}],
            "budget": {"currency": "EUR", "amount": "500.5"}}, "status": {"budget":
            {"currency": "EUR", "spent": "12.25", "ratePerHour": "0",
             "since": "2023-11-01T00:00:00Z", "updatedAt": "2023-11-14T00:00:00Z"})")});
    list(api::Kind::kTrainingJob, {job("j0"), job("j1"), job("j2")});
    look();
  }

  runtime::LoopOptions options(bool is_leader) {
    runtime::LoopOptions made = test::loop_options(clock, mailbox, nowhere);
    made.sees_queues = true;
    made.metrics = &metrics;
    made.is_leader = is_leader;
    return made;
  }
  static std::string queue(const std::string& name, const std::string& spec) {
    return R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": ")" +
           name + R"(", "uid": "u-)" + name +
           R"(", "resourceVersion": "1", "generation": 1}, "spec": {)" + spec + "}}";
  }
  static std::string job(const std::string& name, const std::string& queue_name = "a",
                         const std::string& status = "") {
    return R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": ")" +
           name + R"(", "namespace": "ns", "uid": "u-)" + name +
           R"(", "resourceVersion": "1", "generation": 1}, "spec": {"queueName": ")" + queue_name +
           R"(", "worker": {"count": 1, "command": ["x"], "resources": {"cpu": "1",
      "memory": "1Gi"}}})" +
           status + "}";
  }
  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox.post(test::listed(kind, objects)));
  }
  void look() {
    for (int i = 0; i < 5; ++i) {
      loop.step();
      clock.advance(seconds(1));
    }
  }
  std::string value(const std::string& series) const { return value_in(metrics.render(), series); }
};

}  // namespace

TEST_CASE("a queue's series say who waits and what is held, in cores, bytes and the currency") {
  const QueuedFixture world;
  CHECK(world.value(R"(muster_queue_waiting_jobs{training_queue="a"})") == "1");
  CHECK(world.value(R"(muster_queue_admitted_jobs{training_queue="a"})") == "2");
  CHECK(world.value(R"(muster_queue_quota{training_queue="a",resource="cpu"})") == "1.5");
  CHECK(world.value(R"(muster_queue_used{training_queue="a",resource="cpu"})") == "2");
  CHECK(world.value(R"(muster_queue_borrowed{training_queue="a",resource="cpu"})") == "0.5");
  CHECK(world.value(R"(muster_queue_quota{training_queue="a",resource="memory"})") == "4294967296");
  CHECK(world.value(R"(muster_queue_used{training_queue="a",resource="memory"})") == "2147483648");
  CHECK(world.value(R"(muster_queue_borrowed{training_queue="a",resource="memory"})") == "0");
  CHECK(world.value(R"(muster_queue_budget{training_queue="b",currency="EUR"})") == "500.5");
  CHECK(world.value(R"(muster_queue_spent{training_queue="b",currency="EUR"})") == "12.25");
  CHECK(world.value(R"(muster_queue_admitted_jobs{training_queue="b"})") == "0");
  CHECK(world.metrics.render().find(R"(muster_queue_budget{training_queue="a")") ==
        std::string::npos);
}

TEST_CASE("what a deleted job's pods still use is its queue's until they have ended") {
  QueuedFixture world;
  api::TrainingJob j0;
  j0.meta.name = "j0";
  j0.meta.uid = "u-j0";
  const std::string pod = R"({"metadata": {"name": ")" + api::pod_name(j0, 0, 0) +
                          R"(", "namespace": "ns", "uid": "p",
    "ownerReferences": [{"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
      "name": "j0", "uid": "u-j0", "controller": true}]},
    "spec": {"nodeName": "n", "containers": [{"name": "worker", "image": "x",
      "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
    "status": {"phase": "Running"}})";
  const auto used = [&] {
    return world.value(R"(muster_queue_used{training_queue="a",resource="cpu"})");
  };
  world.list(api::Kind::kPod, {pod});
  world.look();
  CHECK(used() == "2");
  world.list(api::Kind::kTrainingJob, {QueuedFixture::job("j1"), QueuedFixture::job("j2")});
  world.look();
  world.look();
  CHECK(used() == "2");
  world.list(api::Kind::kPod, {});
  world.look();
  CHECK(used() == "1");
}

TEST_CASE(
    "what is held stays with the queue that it was started from, whatever the job names since") {
  QueuedFixture fixture;
  const std::string held = R"(, "status": {"membershipEpoch": 1, "targetWorkers": 1, "queue": "a",
    "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})";
  for (const std::string named : {"a", "b", "nosuch"}) {
    fixture.list(api::Kind::kTrainingJob, {QueuedFixture::job("j0", named, held)});
    fixture.look();
    CAPTURE(named);
    CHECK(fixture.value(R"(muster_queue_used{training_queue="a",resource="cpu"})") == "1");
    CHECK(fixture.value(R"(muster_queue_used{training_queue="b",resource="cpu"})") == "0");
  }
}

TEST_CASE("a job that starts anew in another queue is that one's before its status says so") {
  QueuedFixture fixture;
  fixture.list(api::Kind::kTrainingJob,
               {QueuedFixture::job("moved", "b", R"(, "status": {"membershipEpoch": 1,
                  "queue": "a"})")});
  fixture.look();  // its start is decided and never written
  CHECK(fixture.value(R"(muster_queue_used{training_queue="a",resource="cpu"})") == "0");
  CHECK(fixture.value(R"(muster_queue_used{training_queue="b",resource="cpu"})") == "1");
}

TEST_CASE("of several default priority classes the lowest counts, as for pods") {
  runtime::QueueBook book{MonoTime{}};
  for (const Json& event :
       {Json{{"metadata", {{"name", "high"}}}, {"value", 9}, {"globalDefault", true}},
        Json{{"metadata", {{"name", "low"}}}, {"value", -3}, {"globalDefault", true}},
        Json{{"metadata", {{"name", "mid"}}}, {"value", 2}, {"globalDefault", true}}}) {
    book.take({kube::WatchEvent::Type::kApply, event}, api::Kind::kPriorityClass);
  }
  CHECK(book.turn_of(api::TrainingJob(), false).priority == -3);
}

TEST_CASE("a job waits for its turn in a queue that is there, and else for room") {
  QueuedFixture world;
  const std::string waits = R"(, "status": {"phase": "Waiting", "conditions": [{"type": "Admitted",
    "status": "False", "reason": "GangWaiting", "message": "", "observedGeneration": 1,
    "lastTransitionTime": "2023-11-14T00:00:00Z"}]})";
  world.list(api::Kind::kTrainingJob, {QueuedFixture::job("queued", "a", waits),
                                       QueuedFixture::job("astray", "none", waits)});
  world.look();
  const std::string page = world.metrics.render();
  const std::string pending = R"(muster_job_pending_seconds{namespace="ns",training_job=")";
  CHECK(value_in(page, pending + R"(queued",awaits="Turn"})") != "absent");
  CHECK(value_in(page, pending + R"(astray",awaits="Room"})") != "absent");
}

TEST_CASE("the series of a queue go with it, those of the last one, too") {
  QueuedFixture world;
  const std::string quota = R"(muster_queue_quota{training_queue="b",resource="cpu"})";
  REQUIRE(world.value(quota) == "1");
  world.list(api::Kind::kTrainingQueue,
             {QueuedFixture::queue("b", R"("resources": [{"name": "cpu", "nominal": "3"}])")});
  world.look();
  CHECK(world.metrics.render().find(R"(training_queue="a")") == std::string::npos);
  CHECK(world.value(quota) == "3");
  world.list(api::Kind::kTrainingQueue, {});
  world.look();
  CHECK(world.metrics.render().find("muster_queue_") == std::string::npos);
}

TEST_CASE("an operator that does not lead has no series of queues") {
  QueuedFixture world(false);
  CHECK(world.metrics.render().find("muster_queue_") == std::string::npos);
  REQUIRE(world.mailbox.post(runtime::Lead{}));
  world.look();
  CHECK(world.value(R"(muster_queue_waiting_jobs{training_queue="a"})") == "1");
}

TEST_CASE("a queue whose spec is refused still says who waits, and has neither quota nor budget") {
  QueuedFixture world;
  world.list(
      api::Kind::kTrainingQueue,
      {QueuedFixture::queue("a", R"("budget": {"currency": "EUR", "amount": "1"}, "weight": 0)")});
  world.look();
  CHECK(world.value(R"(muster_queue_admitted_jobs{training_queue="a"})") == "2");
  const std::string page = world.metrics.render();
  CHECK(page.find("muster_queue_quota") == std::string::npos);
  CHECK(page.find("muster_queue_budget") == std::string::npos);
}

TEST_CASE("a queue is gone once all are known, and there as soon as it is seen") {
  runtime::QueueBook book{MonoTime{}};
  api::TrainingJob job;
  job.spec.queue_name = job.status.queue = "a";
  const auto take = [&](api::Kind kind, const std::vector<std::string>& texts) {
    for (const auto& event : test::listed(kind, texts).events) book.take(event, kind);
  };
  CHECK(book.gone_queue_of(job) == std::nullopt);
  take(api::Kind::kTrainingQueue, {});
  CHECK(book.gone_queue_of(job) == std::nullopt);
  take(api::Kind::kPriorityClass, {});
  CHECK(book.gone_queue_of(job) == "a");
  CHECK(book.gone_queue_of({}) == "");
  take(api::Kind::kTrainingQueue,
       {QueuedFixture::queue("a", R"("resources": [{"name": "cpu", "nominal": "1"}])")});
  CHECK(book.gone_queue_of(job) == "");
}

TEST_CASE("no name of a queue or a resource breaks the page") {
  api::TrainingQueue queue;
  queue.meta.name = "a\"} 1\nmuster_jobs{phase=\"\\";
  queue.spec.resources = {{"x\"\n", 7, {}, {}}};
  api::TrainingQueueStatus status;
  status.resources = {{"x\"\n", "much", "-"}, {"other", "1", "1"}};
  const std::string page = runtime::render({runtime::queue_figures(queue, status)});
  // Two families without a label more, three by resource: head and series of each.
  CHECK(std::count(page.begin(), page.end(), '\n') == 5 * 3);
  CHECK(value_in(page, R"(muster_queue_quota{training_queue="a\"} 1\nmuster_jobs{phase=\"\\",)"
                       R"(resource="x\"\n"})") == "7");
  CHECK(page.find("much") == std::string::npos);
  CHECK(page.find("other") == std::string::npos);
}
