#include "cli/job_state.h"

#include <doctest/doctest.h>

#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

api::TrainingJob job_with(const char* type, const char* status, const std::string& reason) {
  api::TrainingJob job;
  job.spec.training.emplace();
  job.status.conditions.push_back({type, status, reason, "the message", 1, {}});
  return job;
}

TEST_CASE("a job that runs, starts or restarts is not over") {
  CHECK_FALSE(ending_of(api::TrainingJob{}));
  CHECK_FALSE(ending_of(job_with("Admitted", "True", "GangScheduled")));
  CHECK_FALSE(ending_of(job_with("Running", "True", "GangRunning")));
  CHECK_FALSE(ending_of(job_with("Restarting", "True", "Restarting")));
  CHECK_FALSE(ending_of(job_with("Admitted", "False", "Suspending")));
  CHECK_FALSE(ending_of(job_with("Complete", "False", "X")));
}

TEST_CASE("only a complete job ends with 0") {
  const auto ending = ending_of(job_with("Complete", "True", "Completed"));
  REQUIRE(ending);
  CHECK(ending->outcome == "Complete");
  CHECK(ending->exit_code == codes::kComplete);
}

TEST_CASE("a failed job ends with the failing worker's typed code") {
  struct Row {
    const char* reason;
    int worker_code;  ///< 0 = none is known
    bool is_training;
    int exit_code;
  };
  const Row rows[] = {
      {"WorkerFailed", codes::kData, true, codes::kData},
      {"RestartLimitReached", codes::kPeerLost, true, codes::kPeerLost},
      {"RestartLimitReached", codes::kInternal, true, codes::kInternal},
      {"RestartLimitReached", 128 + 9, true, codes::kFailedJob},
      {"RestartLimitReached", codes::kInterrupted, true, codes::kFailedJob},
      {"RestartLimitReached", 0, true, codes::kFailedJob},
      {"WorkerFailed", codes::kData, false, codes::kFailedJob},
      {"DeadlineExceeded", codes::kPlannedLeave, true, codes::kDeadline},
      {"DeadlineExceeded", 0, false, codes::kDeadline},
      {"InvalidSpec", 0, true, codes::kInvalidSpec},
  };
  for (const Row& row : rows) {
    CAPTURE(row.reason);
    CAPTURE(row.worker_code);
    api::TrainingJob job = job_with("Failed", "True", row.reason);
    if (!row.is_training) job.spec.training.reset();
    if (row.worker_code != 0) job.status.failure = api::FailureStatus{0, row.worker_code, "", ""};
    const auto ending = ending_of(job);
    REQUIRE(ending);
    CHECK(ending->outcome == "Failed");
    CHECK(ending->message == "the message");
    CHECK(ending->exit_code == row.exit_code);
  }
}

TEST_CASE("a suspended job was interrupted, a waiting one can never start here") {
  const auto suspended = ending_of(job_with("Suspended", "True", "Suspended"));
  REQUIRE(suspended);
  CHECK(suspended->exit_code == codes::kInterrupted);
  const auto waiting = ending_of(job_with("Admitted", "False", "GangWaiting"));
  REQUIRE(waiting);
  CHECK(waiting->exit_code == codes::kFailedJob);
  CHECK(waiting->message == "the job cannot start on this machine: the message");
}

TEST_CASE("what became true, or says something else, is told once") {
  api::TrainingJobStatus before, now;
  now.conditions = {{"Admitted", "True", "GangScheduled", "2 workers on local (2)", 1, {}},
                    {"Running", "False", "X", "not yet", 1, {}}};
  CHECK(changes(before, now) == std::vector<std::string>{"Admitted: 2 workers on local (2)"});
  before = now;
  CHECK(changes(before, now).empty());
  now.conditions.push_back({"Restarting", "True", "Restarting", "worker 1 was lost", 1, {}});
  CHECK(changes(before, now) == std::vector<std::string>{"Restarting: worker 1 was lost"});
  before = now;
  now.conditions.back().message = "worker 0 was lost";
  CHECK(changes(before, now) == std::vector<std::string>{"Restarting: worker 0 was lost"});
}

}  // namespace
}  // namespace muster::cli
