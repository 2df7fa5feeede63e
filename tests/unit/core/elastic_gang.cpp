#include "tests/unit/core/elastic_gang.h"

#include <doctest/doctest.h>

#include <utility>

namespace muster::test {

ProgressReport member_report(int slot, int attempt, std::int64_t epoch, std::vector<int> members) {
  ProgressReport report;
  report.job = "default/j";
  report.slot = slot;
  report.attempt = attempt;
  report.step = 100;
  report.membership_epoch = epoch;
  report.members = std::move(members);
  return report;
}

SnapshotBuilder training(int count) {
  SnapshotBuilder job("j");
  job.engine().workers(count).all_running();
  auto& spec = job.edit().job.spec;
  spec.worker.min = 1;
  spec.worker.max = 8;
  spec.restart.backoff_seconds = 10;
  auto& status = job.edit().job.status;
  status.start_attempt = 0;
  job.edit().budget = 1;
  std::vector<int> members;
  for (int slot = 0; slot < count; ++slot) members.push_back(slot);
  for (int slot = 0; slot < count; ++slot) {
    job.report(member_report(slot, 0, 1, members));
    status.placement[static_cast<std::size_t>(slot)].member = true;
  }
  // What is seen is stored already.
  for (int i = 0; i < 3; ++i) apply(job.edit(), job.plan());
  REQUIRE(job.plan().empty());
  return job;
}

std::string running_message(const api::TrainingJobStatus& status) {
  return status.condition("Running")->message;
}

}  // namespace muster::test
