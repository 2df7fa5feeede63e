// What becomes of a job one of whose pods may not be deleted.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/runtime/jobs_fixture.h"

using namespace muster;
using test::JobsFixture;
using test::ready_node;

namespace {

/// A pod of job a that runs, as it was made for the first attempt of that slot.
std::string running_pod(int slot) {
  const auto [job, verdict] = api::read_training_job(*parse_json(JobsFixture::job("a", "1", "1")));
  Json pod = api::to_json(api::make_pod(job, {slot, 0, "n", ""}, {}));
  pod["metadata"]["uid"] = "u-pod-" + std::to_string(slot);
  pod["spec"]["nodeName"] = "n";
  pod["status"] = {{"phase", "Running"}};
  return dump_json(pod);
}

/// So many steps, one a second; each plan is carried out, but for its deletions, and seen at once
/// where its job is one of `JobsFixture::job`.
class Policy {
 public:
  explicit Policy(JobsFixture& fixture)
      : fixture_(fixture),
        loop_(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned)) {}

  void go_on(int count, bool is_seen) {
    for (; count > 0; --count, ++second_) {
      loop_.step();
      fixture_.clock.advance(seconds(1));
      for (const runtime::Work& work : std::exchange(fixture_.planned.works, {})) {
        runtime::ApplyDone done = JobsFixture::done_of(work);
        for (const auto& action : work.plan.actions) carry_out(action, done, is_seen);
        REQUIRE(fixture_.mailbox.post(std::move(done)));
      }
    }
  }

  std::vector<int> tries;  ///< of deletions, in which second
  std::vector<api::TrainingJobStatus> written;

 private:
  void carry_out(const core::Action& action, runtime::ApplyDone& done, bool is_seen) {
    if (const auto* deletion = std::get_if<core::DeletePod>(&action)) {
      tries.push_back(second_);
      done.status = Error(ErrorCode::kForbidden, "pods stay for the audit");
      done.only_deletions_refused = true;
      done.deletions_refused[deletion->uid] = done.status.error().message();
    }
    const auto* patch = std::get_if<core::PatchStatus>(&action);
    if (patch == nullptr) return;
    written.push_back(patch->status);
    if (is_seen) fixture_.see_at_once(done, *patch, "1");
  }

  JobsFixture& fixture_;
  runtime::OperatorLoop loop_;
  int second_ = 0;
};

/// Of job a, which has one worker, and a pod of a second one that is to go.
constexpr const char* kRuns = R"({"membershipEpoch": 1, "targetWorkers": 1, "startAttempt": 0,
  "replicas": 1, "placement": [{"slot": 0, "attempt": 0, "node": "n", "member": true}]})";

}  // namespace

TEST_CASE("a job that waits for a pod that may not be deleted says so in the API server's words") {
  JobsFixture fixture;
  Policy policy(fixture);
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {running_pod(0)});
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1})")});
  policy.go_on(60, true);
  CHECK(policy.tries.size() > 2);
  REQUIRE(policy.written.size() == 1);
  CHECK(policy.written[0].condition("Admitted")->message ==
        "waiting for the last attempt's pods to go; a pod that is to go may not be deleted (pods "
        "stay for the audit): let the operator delete it, or delete it yourself");
}

TEST_CASE("nobody hears of a pod that may not be deleted once it is gone, or is to stay") {
  JobsFixture fixture;
  Policy policy(fixture);
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {running_pod(0), running_pod(1)});
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1", kRuns)});
  const auto says = [&] {
    policy.go_on(10, true);
    return policy.written.back().condition("Running")->message;
  };
  CHECK(says().starts_with("1 of 1 worker runs; a pod that is to go may not be deleted"));
  SUBCASE("it is deleted by somebody else") { fixture.list(api::Kind::kPod, {running_pod(0)}); }
  SUBCASE("it is about to be") {
    Json leaving = *parse_json(running_pod(1));
    leaving["metadata"]["deletionTimestamp"] = format_time(fixture.clock.wall_now());
    fixture.list(api::Kind::kPod, {running_pod(0), dump_json(leaving)});
  }
  SUBCASE("it is another's, who may want it") {
    Json other = *parse_json(running_pod(1));
    other["metadata"]["ownerReferences"][0]["uid"] = "u-another";
    fixture.list(api::Kind::kPod, {running_pod(0), dump_json(other)});
  }
  CHECK(says() == "1 of 1 worker runs");
}

TEST_CASE("a pod that may not be deleted holds up nothing else of its job, and is tried rarely") {
  JobsFixture fixture;
  Policy policy(fixture);
  const Json job = test::trained(*parse_json(JobsFixture::job("a", "1", "1", kRuns)));
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {running_pod(0), running_pod(1)});
  fixture.list(api::Kind::kTrainingJob, {dump_json(job)});
  for (int second = 0; second < 300; ++second) {
    REQUIRE(fixture.mailbox.post(test::report_of("a", second, 1'000)));
    policy.go_on(1, false);
  }
  // The store never shows what was written, so each look writes.
  CHECK(policy.written.size() > 140);
  const auto& tries = policy.tries;
  REQUIRE(tries.size() > 5);
  CHECK(tries[1] - tries[0] <= 6);
  CHECK(tries[tries.size() - 1] - tries[tries.size() - 2] >= 60);
  CHECK(tries.back() > 200);
}
