#include "operator/runtime/applier.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "operator/core/words.h"
#include "operator/embedded/api_server.h"
#include "operator/runtime/fair_queue.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct Fixture {
  ManualClock clock;
  embedded::ApiServer server{{&clock}};
  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(server);
  std::atomic<bool> stopping{false};
  api::TrainingJob job = create();

  api::TrainingJob create() const {
    const Json manifest{
        {"apiVersion", "muster.dev/v1alpha1"},
        {"kind", "TrainingJob"},
        {"metadata", {{"name", "j"}, {"namespace", "default"}}},
        {"spec", {{"worker", {{"count", 2}, {"command", Json::array({"train"})}}}}}};
    const auto made = client->create(api::Kind::kTrainingJob, "default", manifest);
    REQUIRE_MESSAGE(made.has_value(), made.error().message());
    return api::read_training_job(*made).first;
  }
  core::CreatePod create_pod(int slot) const {
    return {api::make_pod(job, {slot, 0, "n", ""}, {})};
  }
  ApplyDone run(std::vector<core::Action> actions) {
    core::Plan plan;
    plan.actions = std::move(actions);
    return apply(*client, {job.meta.key(), job.meta.uid, plan, "me"}, stopping);
  }
  bool has_pod(int slot) const {
    return client->get(api::Kind::kPod, {"default", api::pod_name(job, slot, 0)}).has_value();
  }
  core::PatchStatus phase(const std::string& text) const {
    return {
        job.meta.key(),
        Json{{"metadata", {{"uid", job.meta.uid}, {"resourceVersion", job.meta.resource_version}}},
             {"status", {{"phase", text}}}},
        {},
        {}};
  }
};

/// Holds requests that begin so back until it is opened, and notes what is asked for.
class Gate final : public kube::HttpTransport {
 public:
  explicit Gate(kube::HttpTransport& server, std::string held = {})
      : server_(server), held_(std::move(held)) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    std::unique_lock lock(mutex_);
    asked_.push_back(request.method + " " + request.path);
    changed_.notify_all();
    const bool is_held = asked_.back().starts_with(held_);
    if (is_held) changed_.wait_for(lock, kDeadline, [this] { return open_; });
    lock.unlock();
    return server_.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return server_.open_stream(request);
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  /// What was asked for, once that is `count` requests.
  std::vector<std::string> asked(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kDeadline, [&] { return asked_.size() >= count; });
    return asked_;
  }

 private:
  static constexpr seconds kDeadline{20};
  kube::HttpTransport& server_;
  const std::string held_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> asked_;
  bool open_ = false;
};

/// Has one answer to everything.
class Broken final : public kube::HttpTransport {
 public:
  explicit Broken(kube::HttpResponse answer) : answer_(std::move(answer)) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest&) override { return answer_; }
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    return Error(ErrorCode::kUnavailable, "broken");
  }

 private:
  kube::HttpResponse answer_;
};

/// Lets nothing be deleted.
struct DeletionPolicy final : kube::HttpTransport {
  explicit DeletionPolicy(kube::HttpTransport& server) : real(server) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (request.method != "DELETE") return real.send(request);
    return kube::HttpResponse{code, R"({"message": "pods stay for the audit"})", {}};
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real.open_stream(request);
  }
  kube::HttpTransport& real;
  int code = 403;
};

core::EmitEvent event_about(const api::TrainingJob& job) {
  api::Event event;
  event.meta.name = "one";
  event.meta.namespace_name = "default";
  event.regarding = job.meta.key();
  event.regarding_uid = job.meta.uid;
  event.type = "Normal";
  event.reason = "GangScheduled";
  event.action = "Schedule";
  event.note = "note";
  return {event};
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "what users wait to see goes first, news of it last") {
  Gate gate(server);
  const auto gated = kube::make_rest_client(gate);
  Mailbox mailbox(16);
  const auto executor = make_thread_executor(*gated, mailbox, 1);
  const auto give = [&](core::Pass pass, std::vector<core::Action> actions) {
    core::Plan plan;
    plan.pass = pass;
    plan.actions = std::move(actions);
    executor->execute({job.meta.key(), job.meta.uid, plan, "me"});
  };
  give(core::Pass::kNone, {create_pod(0)});
  REQUIRE(gate.asked(1).size() == 1);  // The one thread is busy: what follows waits.
  give(core::Pass::kDecision, {event_about(job), phase("Starting")});
  give(core::Pass::kNone, {core::CreateService{api::make_service(job)}});
  give(core::Pass::kObservation, {create_pod(1)});
  gate.open();
  const auto asked = gate.asked(5);
  executor->stop();
  REQUIRE(asked.size() == 5);
  CHECK(asked[1].ends_with("/pods"));
  CHECK(asked[2].ends_with("/services"));
  CHECK(asked[3].ends_with("/status"));
  CHECK(asked[4].ends_with("/events"));
}

TEST_CASE("a namespace that wants much waits for itself; another's work is next but one") {
  FairQueue<std::string> queue;
  for (int i = 0; i < 10'000; ++i) queue.push("flood", "flood " + std::to_string(i));
  CHECK(queue.pop() == "flood 0");
  queue.push("a", "a 0");
  queue.push("a", "a 1");
  queue.push("b", "b 0");
  std::vector<std::string> order;
  for (int i = 0; i < 6; ++i) order.push_back(queue.pop());
  CHECK(order == std::vector<std::string>{"flood 1", "a 0", "b 0", "flood 2", "a 1", "flood 3"});
  CHECK(queue.size() == 9'996);
  // Who comes back later has no claim to the turns that it did not use.
  queue.push("a", "a 2");
  queue.push("a", "a 3");
  CHECK(queue.pop() == "flood 4");
  CHECK(queue.pop() == "a 2");
  CHECK(queue.pop() == "flood 5");
  queue.clear();
  CHECK(queue.empty());
  queue.push("a", "a 4");
  CHECK(queue.pop() == "a 4");
  CHECK(queue.empty());
}

namespace {

/// Sixteen threads, as an operator has, that carry out plans in virtual time: each write takes 10
/// ms.
class VirtualThreads {
 public:
  /// After how many ms a job of namespace "other" has its decision and its pods that comes at
  /// `arrives`, where `flood` jobs of another namespace came at 0.
  int wait_for_pods(int flood, int arrives) {
    for (int i = 0; i < flood; ++i) turns_.push(work("flood", i, kDecide));
    at(arrives, [this] { turns_.push(work("other", 0, kDecide)); });
    while (!pods_made_) {
      while (threads_ > 0) {
        auto turn = turns_.pop();
        if (!turn) break;
        --threads_;
        const int writes = static_cast<int>(turn->work.plan.actions.size());
        at(now_ + kWriteMs * writes, [this, ended = *turn] { end(ended); });
      }
      REQUIRE_FALSE(later_.empty());
      now_ = later_.begin()->first;
      while (!later_.empty() && later_.begin()->first == now_) {
        const auto happens = std::move(later_.begin()->second);
        later_.erase(later_.begin());
        happens();
      }
    }
    return *pods_made_ - arrives;
  }

 private:
  enum Step { kDecide, kMakePods, kObserve };
  static constexpr int kWriteMs = 10;
  static constexpr int kPodRunsAfterMs = 1'000;

  /// What a job of two workers needs at each step. The uid says which one it is.
  static Work work(const std::string& namespace_name, int number, Step step) {
    const core::Action write = core::DeletePod{};  // as good as any other
    Work made{{namespace_name, "j" + std::to_string(number)}, std::to_string(step), {}, "me"};
    made.plan.pass = step == kDecide     ? core::Pass::kDecision
                     : step == kMakePods ? core::Pass::kNone
                                         : core::Pass::kObservation;
    made.plan.actions = {write};
    if (step == kMakePods) made.plan.actions = {write, core::CreatePod{}, core::CreatePod{}};
    return made;
  }

  void at(int time, std::function<void()> happens) { later_.emplace(time, std::move(happens)); }

  void end(const WorkTurns::Turn& turn) {
    ++threads_;
    if (turn.makes_pods) turns_.let_another_make_pods();
    if (turn.is_news) return;
    const std::string& namespace_name = turn.work.key.namespace_name;
    const int number = std::stoi(turn.work.key.name.substr(1));
    (void)turns_.push_news(work(namespace_name, number, kObserve));
    const auto give = [=, this](Step step) { turns_.push(work(namespace_name, number, step)); };
    if (turn.work.uid == std::to_string(kDecide)) give(kMakePods);
    if (turn.work.uid != std::to_string(kMakePods)) return;
    at(now_ + kPodRunsAfterMs, [give] { give(kObserve); });
    if (namespace_name == "other") pods_made_ = now_;
  }

  WorkTurns turns_{16};
  std::multimap<int, std::function<void()>> later_;
  int threads_ = 16, now_ = 0;
  std::optional<int> pods_made_;
};

}  // namespace

TEST_CASE("of a burst no more gangs are begun than get pods soon, and other decisions go on") {
  WorkTurns turns(4);
  enum Kind { kBegins, kMakesPods, kSuspends };
  const auto give = [&](const std::string& namespace_name, Kind kind) {
    Work work{{namespace_name, "j"}, "uid", {}, "me"};
    work.plan.pass = kind == kMakesPods ? core::Pass::kNone : core::Pass::kDecision;
    core::PatchStatus patch;
    if (kind == kBegins) patch.patch["status"]["startAttempt"] = 0;
    work.plan.actions = {core::Action(patch)};
    if (kind == kMakesPods) work.plan.actions = {core::CreatePod{}};
    turns.push(std::move(work));
  };
  // Whoever makes pods waits for a webhook that does not answer.
  for (int i = 0; i < 3; ++i) give("burst", kMakesPods);
  for (int i = 0; i < 3; ++i) CHECK(turns.pop().value().makes_pods);
  for (int i = 0; i < 500; ++i) give("burst", kBegins);
  std::size_t begun = 0;
  while (const auto turn = turns.pop()) {
    CHECK_FALSE(turn->makes_pods);
    give("burst", kMakesPods);
    ++begun;
  }
  CHECK(begun == WorkTurns::kPodPlansMost);
  give("burst", kSuspends);
  CHECK(turns.pop().has_value());
  give("other", kBegins);
  CHECK(turns.pop().value().work.key.namespace_name == "other");
  CHECK_FALSE(turns.pop().has_value());
  // One of those who wait goes on, and so does the next gang.
  turns.let_another_make_pods();
  CHECK(turns.pop().value().makes_pods);
  CHECK_FALSE(turns.pop().value().makes_pods);
}

TEST_CASE("beside 10,000 jobs of another namespace a job has its pods after twice its own time") {
  const int alone = VirtualThreads().wait_for_pods(0, 0);
  CHECK(alone == 40);
  std::vector<int> arrivals{3'001};  // pods of the flood run by then, which is news of its own
  for (int arrives = 0; arrives < 210; arrives += 7) arrivals.push_back(arrives);
  for (const int arrives : arrivals) {
    CAPTURE(arrives);
    CHECK(VirtualThreads().wait_for_pods(10'000, arrives) <= 2 * alone);
  }
}

TEST_CASE_FIXTURE(Fixture, "one tenant's flood of jobs does not hold up another tenant's") {
  Gate gate(server);
  const auto gated = kube::make_rest_client(gate);
  Mailbox mailbox(1000);
  const auto executor = make_thread_executor(*gated, mailbox, 1);
  const auto give = [&](const std::string& namespace_name, const std::string& name) {
    core::Plan plan;
    core::CreatePod create = create_pod(0);
    create.pod.meta.namespace_name = namespace_name;
    create.pod.meta.name = name;
    plan.actions = {create};
    executor->execute({{namespace_name, name}, "u", plan, "me"});
  };
  for (int i = 0; i < 100; ++i) give("flood", "j" + std::to_string(i));
  REQUIRE(gate.asked(1).size() == 1);  // The one thread is busy with the first.
  give("other", "only");
  gate.open();
  const auto asked = gate.asked(4);
  executor->stop();
  REQUIRE(asked.size() >= 4);
  const auto others = std::count_if(asked.begin(), asked.begin() + 4, [](const std::string& one) {
    return one.find("/namespaces/other/pods") != std::string::npos;
  });
  CHECK(others == 1);
}

TEST_CASE_FIXTURE(Fixture, "pods that are long in coming hold up no decision") {
  Gate gate(server, "POST /api/v1/namespaces/default/pods");
  const auto gated = kube::make_rest_client(gate);
  Mailbox mailbox(100);
  const auto executor = make_thread_executor(*gated, mailbox, 16);
  const auto give = [&](const std::string& name, core::Pass pass, core::Action action) {
    core::Plan plan;
    plan.pass = pass;
    plan.actions = {std::move(action)};
    executor->execute({{"default", name}, job.meta.uid, plan, "me"});
  };
  for (int slot = 0; slot < 40; ++slot) {
    const core::Pass pass = slot % 2 == 0 ? core::Pass::kNone : core::Pass::kObservation;
    give("j" + std::to_string(slot), pass, create_pod(slot));
  }
  REQUIRE(gate.asked(12).size() == 12);
  give("decided", core::Pass::kDecision, phase("Starting"));
  mailbox.wait(seconds(10));
  const auto done = mailbox.drain();
  const auto asked = gate.asked(13);
  gate.open();
  CHECK(gate.asked(41).size() == 41);
  executor->stop();
  REQUIRE(done.size() == 1);
  CHECK(std::get<ApplyDone>(done[0]).key.name == "decided");
  CHECK(asked.size() == 13);
}

TEST_CASE_FIXTURE(Fixture, "who makes pods and who does not take turns") {
  Gate gate(server);
  const auto gated = kube::make_rest_client(gate);
  Mailbox mailbox(16);
  const auto executor = make_thread_executor(*gated, mailbox, 1);
  const auto give = [&](core::Action action) {
    core::Plan plan;
    plan.actions = {std::move(action)};
    executor->execute({job.meta.key(), job.meta.uid, plan, "me"});
  };
  give(create_pod(0));
  REQUIRE(gate.asked(1).size() == 1);  // The one thread is busy: what follows waits.
  give(create_pod(1));
  give(create_pod(2));
  for (const char* name : {"a", "b", "c"}) give(core::DeletePod{{"default", name}, "u"});
  gate.open();
  std::string methods;
  for (const auto& one : gate.asked(6)) methods += one.front();
  executor->stop();
  CHECK(methods == "PDPDPD");
}

TEST_CASE_FIXTURE(Fixture, "actions are done in order up to the first that fails") {
  core::PatchStatus stale = phase("Running");
  stale.patch["metadata"]["resourceVersion"] = "999999";
  const auto done = run({create_pod(0), stale, create_pod(1)});
  REQUIRE_FALSE(done.status.has_value());
  CHECK(done.status.error().code() == ErrorCode::kConflict);
  CHECK(has_pod(0));
  CHECK_FALSE(has_pod(1));
  CHECK(done.created == std::vector<std::string>{api::pod_name(job, 0, 0)});
}

TEST_CASE_FIXTURE(Fixture, "a pod of ours that is there already counts as created") {
  CHECK(run({create_pod(0)}).status.has_value());
  CHECK(run({create_pod(0)}).status.has_value());
}

TEST_CASE_FIXTURE(Fixture, "a stranger's pod of our name is a conflict that names it") {
  const auto conflict = [&](int slot, const Json& owners) {
    Json stranger = api::to_json(create_pod(slot).pod);
    stranger["metadata"]["ownerReferences"] = owners;
    REQUIRE(client->create(api::Kind::kPod, "default", stranger).has_value());
    const auto done = run({create_pod(slot)});
    REQUIRE_FALSE(done.status.has_value());
    REQUIRE(done.create_failure.has_value());
    CHECK(done.create_failure->reason == "NameConflict");
    CHECK(done.create_failure->message.find(api::pod_name(job, slot, 0)) != std::string::npos);
  };
  conflict(0, Json::array());
  Json owner = api::to_json(create_pod(1).pod)["metadata"]["ownerReferences"][0];
  owner["apiVersion"] = "v1";
  owner["kind"] = "ConfigMap";
  conflict(1, Json::array({owner}));
}

TEST_CASE_FIXTURE(Fixture, "a pod that a webhook holds up is told with the API server's words") {
  Broken broken({500, R"({"message": "failed calling webhook \"sidecar\""})", {}});
  const auto held_up = kube::make_rest_client(broken);
  core::Plan plan;
  plan.actions = {create_pod(0)};
  const auto done = apply(*held_up, {job.meta.key(), job.meta.uid, plan, "me"}, stopping);
  REQUIRE_FALSE(done.status.has_value());
  CHECK_FALSE(done.create_failure.has_value());
  REQUIRE(done.create_delay.has_value());
  CHECK(done.create_delay->reason == "CreateFailed");
  CHECK(done.create_delay->message.find("failed calling webhook") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "of a pod that nobody answers for a webhook may be the cause") {
  Broken broken({504, R"({"message": "not completed within the allotted timeout"})", {}});
  const auto late = kube::make_rest_client(broken);
  core::Plan plan;
  plan.actions = {create_pod(0)};
  const auto done = apply(*late, {job.meta.key(), job.meta.uid, plan, "me"}, stopping);
  REQUIRE(done.create_delay.has_value());
  CHECK(done.create_delay->reason == "CreateFailed");
  CHECK(done.create_delay->message.find(
            "within the allotted timeout; an admission webhook may be the cause") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a group of a version that is not served any more is told with a help") {
  Broken broken({404, R"({"message": "the server could not find the requested resource"})", {}});
  const auto upgraded = kube::make_rest_client(broken);
  api::PodGroup group;
  group.meta = api::make_service(job).meta;
  group.kind = api::Kind::kPodGroupV1Alpha2;
  group.min_count = 2;
  const auto message_of = [&](core::Action action) {
    core::Plan plan;
    plan.actions = {std::move(action)};
    const auto done = apply(*upgraded, {job.meta.key(), job.meta.uid, plan, "me"}, stopping);
    REQUIRE(done.create_delay.has_value());
    CHECK(done.create_delay->reason == "CreateFailed");
    return done.create_delay->message;
  };
  CHECK(message_of(core::CreatePodGroup{group})
            .find("find the requested resource; if the cluster no longer serves this version of "
                  "scheduling.k8s.io, helm upgrade chooses another") != std::string::npos);
  CHECK(message_of(create_pod(0)).find("helm upgrade") == std::string::npos);
}

TEST_CASE_FIXTURE(Fixture,
                  "a pod that is not restricted is not asked for, whoever has planned it") {
  core::CreatePod open = create_pod(0);
  open.pod.spec["hostNetwork"] = true;
  const auto done = run({open, create_pod(1)});
  REQUIRE_FALSE(done.status.has_value());
  REQUIRE(done.create_failure.has_value());
  CHECK(done.create_failure->reason == "Refused");
  CHECK(done.create_failure->message.find("hostNetwork") != std::string::npos);
  CHECK_FALSE(has_pod(0));
  CHECK_FALSE(has_pod(1));
}

TEST_CASE_FIXTURE(Fixture, "a pod in its node's network is asked for where its namespace may") {
  job.spec.worker.host_network = true;
  core::Plan plan;
  plan.actions = {create_pod(0)};
  const auto asked = [&](std::vector<std::string> namespaces) {
    return apply(*client, {job.meta.key(), job.meta.uid, plan, "me", std::move(namespaces)},
                 stopping);
  };
  const auto refused = asked({"other"});
  REQUIRE(refused.create_failure.has_value());
  CHECK(refused.create_failure->reason == "Refused");
  CHECK_FALSE(has_pod(0));
  CHECK(asked({"other", "default"}).status.has_value());
  CHECK(has_pod(0));
}

TEST_CASE_FIXTURE(Fixture, "a pod is deleted only under its uid, whatever its version is by now") {
  REQUIRE(run({create_pod(0)}).status.has_value());
  const api::ObjectKey key{"default", api::pod_name(job, 0, 0)};
  CHECK(run({core::DeletePod{key, "another"}}).status.has_value());
  CHECK(has_pod(0));
  const auto uid = (*client->get(api::Kind::kPod, key))["metadata"]["uid"].get<std::string>();
  // Somebody writes it between the decision and the request.
  const Json label{{"metadata", {{"labels", {{"example.com/seen", "yes"}}}}}};
  REQUIRE(client->merge_patch(api::Kind::kPod, key, "", label).has_value());
  CHECK(run({core::DeletePod{key, uid}}).status.has_value());
  CHECK_FALSE(has_pod(0));
  CHECK(run({core::DeletePod{key, uid}}).status.has_value());
}

TEST_CASE_FIXTURE(Fixture, "a job is deleted only as it was read") {
  const auto is_there = [&] {
    return client->get(api::Kind::kTrainingJob, job.meta.key()).has_value();
  };
  const core::DeleteJob read{job.meta.key(), job.meta.uid, job.meta.resource_version};
  const auto changed = client->merge_patch(api::Kind::kTrainingJob, job.meta.key(), "",
                                           Json{{"spec", {{"ttlSecondsAfterFinished", 3600}}}});
  REQUIRE_MESSAGE(changed.has_value(), changed.error().message());
  const auto refused = run({read});
  REQUIRE_FALSE(refused.status.has_value());
  CHECK(refused.status.error().code() == ErrorCode::kConflict);
  CHECK(is_there());
  const std::string newest = (*changed)["metadata"]["resourceVersion"];
  CHECK_FALSE(run({core::DeleteJob{read.key, "another", newest}}).status.has_value());
  CHECK(is_there());
  CHECK(run({core::DeleteJob{read.key, read.uid, newest}}).status.has_value());
  CHECK_FALSE(is_there());
}

TEST_CASE_FIXTURE(Fixture,
                  "a decision that rests on a pod's absence is not made when it is there") {
  core::PatchStatus patch = phase("Restarting");
  patch.confirm_absent = {{"default", api::pod_name(job, 0, 0)}};
  REQUIRE(run({create_pod(0)}).status.has_value());
  const auto refused = run({patch});
  REQUIRE_FALSE(refused.status.has_value());
  CHECK(refused.status.error().code() == ErrorCode::kConflict);
  patch.confirm_absent = {{"default", api::pod_name(job, 1, 0)}};
  const auto done = run({patch});
  CHECK(done.status.has_value());
  CHECK(done.version_before == job.meta.resource_version);
  CHECK(done.version_after != done.version_before);
}

TEST_CASE_FIXTURE(Fixture, "a decision that rests on a pod's absence waits until it can be read") {
  struct Blind final : kube::HttpTransport {
    explicit Blind(kube::HttpTransport& server) : real(server) {}
    Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
      if (request.method == "GET") return kube::HttpResponse{503, "", std::nullopt};
      return real.send(request);
    }
    Result<Stream> open_stream(const kube::HttpRequest& request) override {
      return real.open_stream(request);
    }
    kube::HttpTransport& real;
  };
  Blind blind(server);
  const auto through = kube::make_rest_client(blind);
  core::PatchStatus patch = phase("Restarting");
  patch.confirm_absent = {{"default", api::pod_name(job, 0, 0)}};
  core::Plan plan;
  plan.actions = {patch};
  CHECK_FALSE(apply(*through, {job.meta.key(), job.meta.uid, plan, "me"}, stopping).status);
  const auto now = client->get(api::Kind::kTrainingJob, job.meta.key());
  REQUIRE(now.has_value());
  CHECK((*now)["metadata"]["resourceVersion"] == job.meta.resource_version);
}

TEST_CASE_FIXTURE(Fixture, "a deletion that is refused holds up nothing but itself") {
  REQUIRE(run({create_pod(0)}).status.has_value());
  const api::ObjectKey key{"default", api::pod_name(job, 0, 0)};
  const auto pod = client->get(api::Kind::kPod, key);
  REQUIRE(pod.has_value());
  const core::DeletePod deletion{key, (*pod)["metadata"]["uid"].get<std::string>()};
  DeletionPolicy policy(server);
  const auto through = kube::make_rest_client(policy);
  const auto carried_out = [&](std::vector<core::Action> actions) {
    core::Plan plan;
    plan.actions = std::move(actions);
    return apply(*through, {job.meta.key(), job.meta.uid, plan, "me"}, stopping);
  };

  const auto done = carried_out({deletion, create_pod(1), phase("Running")});
  CHECK(has_pod(1));
  CHECK(done.version_after != done.version_before);
  REQUIRE_FALSE(done.status.has_value());
  CHECK(done.status.error().code() == ErrorCode::kForbidden);
  CHECK(done.only_deletions_refused);
  REQUIRE(done.deletions_refused.contains(deletion.uid));
  CHECK(done.deletions_refused.at(deletion.uid).find("pods stay for the audit") !=
        std::string::npos);
  CHECK(done.deleted.empty());
  // What fails behind it stops the plan as ever: the status is another one by now.
  const auto failed = carried_out({deletion, phase("Waiting"), create_pod(2)});
  REQUIRE_FALSE(failed.status.has_value());
  CHECK(failed.status.error().code() == ErrorCode::kConflict);
  CHECK_FALSE(failed.only_deletions_refused);
  CHECK_FALSE(has_pod(2));
  // An API server that is in trouble is left alone.
  policy.code = 503;
  const auto trouble = carried_out({deletion, create_pod(2)});
  REQUIRE_FALSE(trouble.status.has_value());
  CHECK(trouble.deletions_refused.empty());
  CHECK_FALSE(has_pod(2));
}

TEST_CASE_FIXTURE(Fixture, "news goes out though a deletion is refused") {
  DeletionPolicy policy(server);
  Gate gate(policy);
  gate.open();
  const auto gated = kube::make_rest_client(gate);
  Mailbox mailbox(16);
  const auto executor = make_thread_executor(*gated, mailbox, 1);
  core::Plan plan;
  plan.actions = {core::DeletePod{{"default", "p"}, "u"}, phase("Running"), event_about(job)};
  executor->execute({job.meta.key(), job.meta.uid, plan, "me"});
  const auto asked = gate.asked(3);
  executor->stop();
  REQUIRE(asked.size() == 3);
  CHECK(asked[2].ends_with("/events"));
}

TEST_CASE_FIXTURE(Fixture, "nothing is begun once the operator stops") {
  stopping = true;
  CHECK_FALSE(run({create_pod(0)}).status.has_value());
  CHECK_FALSE(has_pod(0));
}

TEST_CASE_FIXTURE(Fixture, "an event says who wrote it") {
  api::Event event;
  event.meta.name = "j.1";
  event.meta.namespace_name = "default";
  event.regarding = job.meta.key();
  event.type = "Normal";
  event.reason = "Completed";
  event.action = "Reconcile";
  CHECK(run({core::EmitEvent{event}}).status.has_value());
  const auto made = client->get(api::Kind::kEvent, {"default", "j.1"});
  REQUIRE_MESSAGE(made.has_value(), made.error().message());
  CHECK((*made)["reportingInstance"] == "me");
}

TEST_CASE_FIXTURE(Fixture, "news that comes again is counted on the event that told of it") {
  const api::ObjectKey key{"default", "one"};
  core::EmitEvent news = event_about(job);
  news.event.event_time = *parse_time("2026-01-01T00:00:00Z");
  REQUIRE(run({news}).status);
  const Json first = *client->get(api::Kind::kEvent, key);
  CHECK_FALSE(first.contains("series"));
  CHECK(first["count"] == 1);
  CHECK(first["lastTimestamp"] == "2026-01-01T00:00:00Z");
  news.event.event_time += seconds(10);
  REQUIRE(run({news}).status);
  news.event.event_time += seconds(10);
  REQUIRE(run({news}).status);
  const auto events = client->list(api::Kind::kEvent, {"default", "", 0, ""});
  REQUIRE(events->items.size() == 1);
  const Json& event = events->items[0];
  CHECK(event["eventTime"] == "2026-01-01T00:00:00.000000Z");
  CHECK(event["series"] == Json{{"count", 3}, {"lastObservedTime", "2026-01-01T00:00:20.000000Z"}});
  CHECK(event["count"] == 3);
  CHECK(event["firstTimestamp"] == "2026-01-01T00:00:00Z");
  CHECK(event["lastTimestamp"] == "2026-01-01T00:00:20Z");
  CHECK(event["reportingInstance"] == "me");

  SUBCASE("also that of an operator that wrote through events.k8s.io") {
    // As the core API shows it.
    const Json old{{"firstTimestamp", nullptr},
                   {"lastTimestamp", nullptr},
                   {"count", nullptr},
                   {"source", nullptr}};
    REQUIRE(client->merge_patch(api::Kind::kEvent, key, "", old));
    REQUIRE(run({news}).status);
    const Json counted = *client->get(api::Kind::kEvent, key);
    CHECK(counted["series"]["count"] == 4);
    CHECK(counted["count"] == 4);
    CHECK(counted["lastTimestamp"] == "2026-01-01T00:00:20Z");
    CHECK(counted["eventTime"] == "2026-01-01T00:00:00.000000Z");
  }
  SUBCASE("whatever somebody has made of the count") {
    const auto retold = [&](const Json& series) {
      REQUIRE(client->merge_patch(api::Kind::kEvent, key, "", Json{{"series", series}}));
      REQUIRE(run({news}).status);
      return (*client->get(api::Kind::kEvent, key))["series"]["count"];
    };
    CHECK(retold({{"count", "many"}}) == 2);
    CHECK(retold({{"count", -7}}) == 2);
    CHECK(retold({{"count", 9e18}}) == 2);
    CHECK(retold("none") == 2);
    CHECK(retold({{"count", std::int64_t{1} << 40}}) == 1'000'001);
  }
  SUBCASE("and told anew once the API server has forgotten it") {
    REQUIRE(client->remove(api::Kind::kEvent, key, {"", -1}));
    REQUIRE(run({news}).status);
    CHECK_FALSE(client->get(api::Kind::kEvent, key)->contains("series"));
  }
}

TEST_CASE_FIXTURE(Fixture, "a gang's Service is made where it is gone, and else only asked for") {
  const core::KeepService keep{api::make_service(job)};
  const api::ObjectKey key = keep.service.meta.key();
  const auto made = [this] { return server.request_counts()["create services"]; };
  CHECK(run({keep}).status.has_value());
  const auto first = client->get(api::Kind::kService, key);
  REQUIRE(first.has_value());
  CHECK(run({keep}).status.has_value());
  CHECK(made() == 1);
  REQUIRE(client->remove(api::Kind::kService, key, {}).has_value());
  CHECK(run({keep}).status.has_value());
  CHECK(made() == 2);
  // Whoever cannot be asked may have it.
  Broken broken({503, "", {}});
  core::Plan plan;
  plan.actions = {keep};
  CHECK_FALSE(
      apply(*kube::make_rest_client(broken), {job.meta.key(), job.meta.uid, plan, "me"}, stopping)
          .status.has_value());
}

TEST_CASE_FIXTURE(Fixture, "an event that cannot be written stops nothing") {
  api::Event event;
  event.meta.name = "Not A Name";
  event.meta.namespace_name = "default";
  CHECK(run({core::EmitEvent{event}, create_pod(0)}).status.has_value());
  CHECK(has_pod(0));
}

TEST_CASE_FIXTURE(Fixture, "a budget that may have been written is known no more") {
  api::DisruptionBudget budget = api::make_disruption_budget(job);
  budget.min_available = 2;
  const std::vector<core::Action> actions{core::SetDisruptionBudget{budget},
                                          core::RemoveDisruptionBudget{budget.meta.key()}};
  const auto run_with = [&](const core::Action& action, int answer) {
    Broken broken({answer, "", {}});
    core::Plan plan;
    plan.actions = {action};
    return apply(*kube::make_rest_client(broken), {job.meta.key(), job.meta.uid, plan, "me"},
                 stopping);
  };
  for (const auto& action : actions) {
    // Soon tried again.
    const ApplyDone busy = run_with(action, 503);
    CHECK_FALSE(busy.status.has_value());
    CHECK(busy.budget == core::kBudgetUnsure);
    CHECK_FALSE(busy.budget_failed);
    // Who may not do it has done nothing, and may not a moment later.
    const ApplyDone refused = run_with(action, 403);
    CHECK_FALSE(refused.status.has_value());
    CHECK_FALSE(refused.budget.has_value());
    CHECK(refused.budget_failed);
  }
  CHECK(run({actions[0]}).budget == 2);
  CHECK(run({actions[1]}).budget == 0);
}
