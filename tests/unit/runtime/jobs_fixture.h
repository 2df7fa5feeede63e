// One job or a few before a loop whose plans are carried out by the test.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "operator/core/plan.h"
#include "operator/runtime/loop.h"
#include "tests/unit/runtime/listed.h"

namespace muster::test {

/// What worker 0 reports of a job that trains alone: "a" of namespace ns, say.
inline ProgressReport report_of(const std::string& job, std::int64_t step,
                                std::int64_t total_steps) {
  ProgressReport report;
  report.job = "ns/" + job;
  report.step = step;
  report.total_steps = total_steps;
  report.membership_epoch = 1;
  report.members = {0};
  return report;
}

/// `job`, but trained by the engine instead of a program of its own.
inline Json trained(Json job) {
  job["spec"]["worker"].erase("command");
  job["spec"]["training"] = *parse_json(R"({"steps": 5, "model": {"mlp": {"hidden": [3]}},
    "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
    "optimizer": {"sgd": {"learningRate": "1"}}})");
  return job;
}

/// Remembers the plans it was given.
class Planned final : public runtime::Executor {
 public:
  void execute(runtime::Work work) override { works.push_back(std::move(work)); }
  void stop() override {}

  /// What plans do to the job, of one kind of action.
  template <typename Action>
  std::vector<const Action*> actions_on(const std::string& job) const {
    std::vector<const Action*> actions;
    for (const auto& work : works) {
      for (const auto& action : work.plan.actions) {
        const auto* one = std::get_if<Action>(&action);
        if (one != nullptr && work.key.name == job) actions.push_back(one);
      }
    }
    return actions;
  }

  /// The nodes that the job was given, by each plan.
  std::vector<std::string> places_of(const std::string& job) const {
    std::vector<std::string> nodes;
    for (const auto* patch : actions_on<core::PatchStatus>(job)) {
      std::string all;
      for (const auto& slot : patch->status.placement) all += slot.node;
      nodes.push_back(all);
    }
    return nodes;
  }

  /// The CAs that the job's pods were given.
  std::vector<std::string> trusted_by(const std::string& job) const {
    std::vector<std::string> trusted;
    for (const auto* made : actions_on<core::CreatePod>(job)) {
      for (const Json& variable : made->pod.spec["containers"][0]["env"]) {
        if (variable["name"] == contract::kEnvCaCert) trusted.push_back(variable["value"]);
      }
    }
    return trusted;
  }

  std::vector<runtime::Work> works;
};

struct JobsFixture {
  ManualClock clock;  ///< a pass takes no time, so none is waited for
  runtime::Mailbox mailbox{100};
  Planned planned;

  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox.post(test::listed(kind, objects)));
  }

  void list_node() {
    list(api::Kind::kNode, {R"({"metadata": {"name": "n", "uid": "u-n"}, "status": {
      "allocatable": {"cpu": "12", "memory": "8Gi"},
      "conditions": [{"type": "Ready", "status": "True"}]}})"});
    list(api::Kind::kPod, {});
  }

  static std::string job(const std::string& name, const std::string& version,
                         const std::string& cpus, const std::string& status = "{}") {
    return R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": ")" +
           name + R"(", "namespace": "ns", "uid": "u-)" + name + R"(", "resourceVersion": ")" +
           version + R"(", "generation": 1}, "spec": {"worker": {"count": 1, "command": ["x"],
           "resources": {"cpu": ")" +
           cpus + R"(", "memory": "1Gi"}}}, "status": )" + status + "}";
  }
  /// Carried out, with nothing written yet.
  static runtime::ApplyDone done_of(const runtime::Work& work) {
    runtime::ApplyDone done;
    done.key = work.key;
    done.uid = work.uid;
    done.pass = work.plan.pass;
    return done;
  }
  /// All that is planned, likewise.
  void carry_out() {
    for (const runtime::Work& work : std::exchange(planned.works, {})) {
      REQUIRE(mailbox.post(done_of(work)));
    }
  }
  /// Of job a, which wants so many processors: the API server tells of what was written.
  void see_at_once(runtime::ApplyDone& done, const core::PatchStatus& patch, const char* cpus) {
    done.version_before = std::to_string(version);
    done.version_after = std::to_string(++version);
    list(api::Kind::kTrainingJob,
         {job("a", done.version_after, cpus, dump_json(api::status_to_json(patch.status)))});
  }

  int version = 1;  ///< of job a
};

/// The pod of a job's only worker, as it was made for attempt 0 on node n.
inline std::string only_pod(const std::string& job, const Json& meta, const Json& status) {
  const auto [read, verdict] = api::read_training_job(*parse_json(JobsFixture::job(job, "1", "1")));
  Json pod = api::to_json(api::make_pod(read, {0, 0, "n", ""}, {}));
  pod["metadata"]["uid"] = "u-pod";
  pod["metadata"].update(meta);
  pod["spec"]["nodeName"] = "n";
  pod["status"] = status;
  return dump_json(pod);
}

inline std::string ready_node(const std::string& name, const std::string& spec) {
  return R"({"metadata": {"name": ")" + name + R"(", "uid": "u-)" + name + R"("}, "spec": )" +
         spec + R"(, "status": {"allocatable": {"cpu": "12", "memory": "8Gi"},
      "conditions": [{"type": "Ready", "status": "True"}]}})";
}

inline constexpr std::size_t kTrain = 45;

/// Jobs "j0", "j1", ... of one worker each that train, of which all is done and said but for what
/// their workers tell.
inline void let_train(JobsFixture& fixture, runtime::OperatorLoop& loop, const Json& worker) {
  std::vector<std::string> jobs, pods;
  for (std::size_t i = 0; i < kTrain; ++i) {
    const std::string name = "j" + std::to_string(i);
    Json job = *parse_json(JobsFixture::job(name, "1", "100m", R"({"membershipEpoch": 1,
      "targetWorkers": 1, "startAttempt": 0, "replicas": 1, "workers": "1/1", "phase": "Running",
      "observedGeneration": 1, "conditions": [{"type": "Running", "status": "True",
        "reason": "GangRunning", "message": "1 of 1 worker runs", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
      "placement": [{"slot": 0, "attempt": 0, "node": "n", "member": true}]})"));
    job["spec"]["worker"].update(worker);
    jobs.push_back(dump_json(trained(std::move(job))));
    pods.push_back(only_pod(name, {{"uid", "u-pod-" + name}}, {{"phase", "Running"}}));
  }
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, pods);
  fixture.list(api::Kind::kTrainingJob, jobs);
  loop.step();
  while (!fixture.planned.works.empty()) {
    fixture.carry_out();
    loop.step();
  }
}

/// Of job "j<number>".
inline ProgressReport first_step(std::size_t number) {
  return report_of("j" + std::to_string(number), 1, 100);
}

}  // namespace muster::test
