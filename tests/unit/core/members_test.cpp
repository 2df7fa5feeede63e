// Who counts as one of those who train, by whose word.
#include "operator/core/members.h"

#include <doctest/doctest.h>

#include "tests/unit/core/builders.h"

using namespace muster;
using test::SnapshotBuilder;

namespace {

/// What the first attempt in `slot` says of the membership `epoch`.
ProgressReport told_by(int slot, std::int64_t epoch, std::vector<int> members) {
  ProgressReport report;
  report.job = "default/j";
  report.slot = slot;
  report.step = 1;
  report.membership_epoch = epoch;
  report.members = std::move(members);
  return report;
}

}  // namespace

TEST_CASE("a gang that begins is whole from its first report on") {
  SnapshotBuilder job("j");
  job.engine().workers(2).all_running();
  const auto seen = [&] {
    for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
    return job.snapshot().job.status;
  };
  CHECK(seen().condition("Running")->message == "2 of 2 workers run");
  SUBCASE("they are told of by the one that reports first") {
    job.report(told_by(0, 1, {0, 1}));
    CHECK(seen().condition("Running")->message == "2 of 2 workers run");
    CHECK(seen().workers == "2/2");
    CHECK(seen().placement[0].member);
    CHECK_FALSE(seen().placement[1].member);  // it has to say so itself
  }
  SUBCASE("also who has told before that it reads its data") {
    ProgressReport reading = told_by(1, 0, {});
    reading.busy_seconds = 10;
    reading.busy_path = "/data/train";
    job.report(reading);
    CHECK(
        seen().condition("Running")->message ==
        "2 of 2 workers run; worker 1 has been busy with files in /data/train for more than 10 s");
    job.report(told_by(0, 1, {0, 1}));
    CHECK(seen().workers == "2/2");
  }
  SUBCASE(
      "who is stored as a member counts once, though an operator that is new was told by others") {
    job.report(told_by(0, 1, {0, 1}));
    job.edit().job.status.placement[1].member = true;
    CHECK(seen().workers == "2/2");
  }
  SUBCASE("who is in no membership is not counted") {
    job.report(told_by(0, 1, {0}));
    CHECK(seen().workers == "1/2");
  }
  SUBCASE("nor is who took the place of another, of which the others may be speaking") {
    job.report(told_by(0, 1, {0, 1}));
    job.edit().job.status.placement[1].replacements = 1;
    CHECK(seen().workers == "1/2");
  }
  SUBCASE("nor is who was in an older membership") {
    job.report(told_by(0, 1, {0, 1}));
    job.edit().job.status.membership_epoch = 2;
    CHECK(seen().workers == "1/2");
  }
}

TEST_CASE("whose disk does not answer is named in status, and whether training stands for it") {
  SnapshotBuilder job("j");
  job.engine().workers(3).all_running();
  for (const int slot : {0, 1, 2}) job.report(told_by(slot, 1, {0, 1, 2}));
  for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
  ProgressReport report = told_by(2, 1, {0, 1, 2});
  report.busy_seconds = 40;
  report.busy_path = "/data/part-1.bin\nevil";
  job.report(report);
  report = told_by(0, 1, {0, 1, 2});
  report.busy_seconds = 60;
  report.busy_checkpoint = true;
  report.busy_path = "/checkpoints";
  job.report(report);
  report = told_by(1, 0, {});
  report.busy_seconds = 10;
  report.busy_path = "/data/train";
  job.report(report);
  job.edit().job.status.progress->updated_at = test::kNow - seconds(20);
  CHECK(test::status_of(job.plan()).condition("Running")->message ==
        "3 of 3 workers run; worker 0 has been busy with a checkpoint or the record in "
        "/checkpoints for more than 60 s; worker 1 has been busy with files in /data/train for "
        "more than 10 s; training "
        "stands: worker 2 has been busy with files in /data/part-1.bin for "
        "more than 40 s");
  // One that has left, and saves what it has left with.
  job.report(told_by(1, 2, {1, 2}));
  job.report(told_by(2, 2, {1, 2}));
  report = told_by(0, 2, {1, 2});
  report.busy_seconds = 20;
  report.busy_path = "/checkpoints";
  job.report(report);
  const std::string message = test::status_of(job.plan()).condition("Running")->message;
  CHECK_MESSAGE(message.find("; worker 0 has been busy with files in /checkpoints for more than "
                             "20 s") != std::string::npos,
                message);
  CHECK(message.find("stands") == std::string::npos);
}
