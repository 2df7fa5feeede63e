#include "cli/prove_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cli/manifest.h"
#include "cli/percentile.h"
#include "common/contract.h"

using namespace muster;
using namespace muster::cli;

namespace {

RunRecord record_of(int steps) {
  RunRecord record;
  for (int step = 1; step <= steps; ++step) {
    RecordedStep line;
    line.step = step;
    line.samples = 64;
    line.sha256 = std::string(63, 'a') + static_cast<char>('a' + step % 8);
    record.steps.push_back(line);
  }
  return record;
}

}  // namespace

TEST_CASE("a schedule is a function of its seed, and has the kills that were asked for") {
  const auto plan = plan_disturbances(7, {1, 3, 5}, 12);
  const auto again = plan_disturbances(7, {1, 3, 5}, 12);
  REQUIRE(plan.size() == again.size());
  int kills = 0, silences = 0, cuts = 0;
  std::set<int> sizes;
  double last = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    CHECK(plan[i].share == again[i].share);
    CHECK(plan[i].blow == again[i].blow);
    CHECK(plan[i].choice == again[i].choice);
    CHECK(plan[i].share > last);
    last = plan[i].share;
    kills += is_kill(plan[i]) ? 1 : 0;
    silences += plan[i].blow == Blow::kFreezeWorker ? 1 : 0;
    cuts += plan[i].blow == Blow::kFreezeSentinel ? 1 : 0;
    if (plan[i].blow == Blow::kFreezeWorker || plan[i].blow == Blow::kFreezeSentinel) {
      CHECK(plan[i].lasts >= milliseconds(200));
    }
    if (plan[i].blow == Blow::kResize) sizes.insert(plan[i].size);
  }
  CHECK(last > 0.7);  // most of the steps are disturbed
  CHECK(last < 0.76);
  CHECK(kills == 12);
  CHECK(silences == 3);
  CHECK(cuts == 3);
  CHECK(sizes == std::set<int>{1, 3, 5});
  CHECK(plan_disturbances(8, {1, 3, 5}, 12)[1].choice != plan[1].choice);
  CHECK(plan_disturbances(7, {1, 3, 5}, 0).empty());
}

TEST_CASE("what is done to whom is said in the words of what is done") {
  const auto said = [](Blow blow) {
    Disturbance one;
    one.blow = blow;
    one.size = 3;
    one.lasts = milliseconds(325);
    return describe(one, 2);
  };
  CHECK(said(Blow::kResize) == "resize to 3");
  CHECK(said(Blow::kKillTrainer) == "SIGKILL the trainer of worker 2");
  CHECK(said(Blow::kKillWorker) == "SIGKILL all of worker 2");
  CHECK(said(Blow::kFreezeTrainer) == "SIGSTOP the trainer of worker 2 for 325 ms");
  CHECK(said(Blow::kFreezeWorker) == "SIGSTOP all of worker 2 for 325 ms");
  CHECK(said(Blow::kFreezeSentinel) == "SIGSTOP the sentinel of worker 2 for 325 ms");
  CHECK(said(Blow::kLeave) == "SIGTERM worker 2");
}

TEST_CASE("a job may start again as often as the longest schedule kills whole workers") {
  const auto plan = plan_disturbances(1, {1, 3, 5}, kMaxKills);
  const auto of_workers = std::count_if(plan.begin(), plan.end(), [](const Disturbance& one) {
    return one.blow == Blow::kKillWorker;
  });
  CHECK(of_workers <= kRestartsOfProof);
  CHECK(of_workers > kRestartsOfProof / 2);  // the bound is not too low either
  const auto job = load_job("examples/digits.yaml",
                            {"spec.restart.maxRestarts=" + std::to_string(kRestartsOfProof)});
  CHECK_MESSAGE(job, job.error().message());  // as many as the API takes
}

TEST_CASE("a worker that tells of another step lives, also of one that was made before") {
  SignsOfLife signs;
  const auto tells = [&](int slot, std::int64_t step) {
    ProgressReport report;
    report.slot = slot;
    report.step = step;
    return signs.take(report);
  };
  CHECK_FALSE(tells(0, 0));  // it only waits
  CHECK(tells(0, 90));
  CHECK_FALSE(tells(0, 90));
  CHECK(tells(1, 90));
  CHECK(tells(0, 40));  // again from a checkpoint
  CHECK(tells(0, 41));
  CHECK_FALSE(tells(1, 90));
}

TEST_CASE("equal records and files are equal; else the first step that differs is named") {
  const RunRecord calm = record_of(9);
  constexpr SameFiles kBoth{true, true};
  CHECK(compare(calm, record_of(9), kBoth).is_equal);
  CHECK(compare(calm, record_of(9), kBoth).compared_steps == 9);
  CHECK(compare(calm, record_of(9), {false, true}).sentence ==
        "DIFFERENT: step 9: the model files differ");
  CHECK(compare(calm, record_of(9), {true, false}).sentence ==
        "DIFFERENT: step 9: the optimiser's states differ");
  CHECK_FALSE(compare({}, {}, kBoth).is_equal);
  CHECK(compare(calm, record_of(8), kBoth).sentence.find("step 9: the disturbed run did not") !=
        std::string::npos);
  RunRecord other = record_of(9);
  other.steps[4].sha256[0] = 'b';
  CHECK(compare(calm, other, kBoth).sentence.find("step 5: parameters b") != std::string::npos);
  other = record_of(9);
  other.steps[6].sha256.clear();
  CHECK_FALSE(compare(calm, other, kBoth).is_equal);
  CHECK_FALSE(compare(other, other, kBoth).is_equal);
  // A step twice, or one left out, is a difference whatever the hashes say.
  other = record_of(9);
  other.steps.insert(other.steps.begin() + 3, other.steps[3]);
  CHECK(compare(calm, other, kBoth).sentence.find("has step 4 in its place") != std::string::npos);
  other = record_of(9);
  other.steps[2].samples = 63;
  CHECK_FALSE(compare(calm, other, kBoth).is_equal);
}

TEST_CASE("a membership has stood still once, however much it changed, and not for the slow") {
  namespace kind = contract::change;
  const auto change = [](std::int64_t epoch, std::string_view called, std::int64_t stall_ms) {
    MembershipChange made;
    made.epoch = epoch;
    made.kind = called;
    made.stall_ms = stall_ms;
    return made;
  };
  CHECK(stalls_of({}).empty());
  CHECK(stalls_of({change(2, kind::kLost, 12), change(2, kind::kRespawned, 30),
                   change(2, kind::kSlow, 0), change(3, kind::kRefused, 0),
                   change(3, kind::kStranger, 0), change(4, kind::kJoined, 0),
                   change(5, kind::kReturned, 7)}) == std::vector<std::int64_t>{30, 0, 7});
}

TEST_CASE("percentiles are values that occurred") {
  CHECK(percentile({}, 50) == 0);
  CHECK(percentile({5}, 99) == 5);
  CHECK(percentile({4, 1, 3, 2}, 50) == 2);
  CHECK(percentile({4, 1, 3, 2}, 99) == 4);
  CHECK(percentile({4, 1, 3, 2}, 0) == 1);
}
