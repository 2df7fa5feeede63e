// spec.worker.shape: Free: workers that are larger than they were asked for.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>

#include "operator/api/training_job.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

/// Four workers of one GPU each.
Json four_workers() {
  Json json = free_shape_job();
  json["spec"]["worker"]["resources"] =
      Json{{"cpu", "2"}, {"memory", "1Gi"}, {"gpus", 1}, {"devices", {{"rdma/hca", 3}}}};
  return json;
}

}  // namespace

TEST_CASE("a free shape is of gangs of one size that Muster places") {
  CHECK(refusal(four_workers()) == "");
  CHECK(parse_training_job(four_workers())->spec.worker.shape == "Free");
  CHECK(parse_training_job(least_program_job())->spec.worker.shape == "Fixed");
  CHECK(refusal(with(four_workers(), "/spec/worker/shape", "Round")) ==
        "spec.worker.shape: must be Fixed or Free, not \"Round\"");
  const auto refused = [](const char* pointer, const Json& value, const char* cure) {
    return names(refusal(with(four_workers(), pointer, value)), "spec.worker.shape", cure);
  };
  CHECK(refused("/spec/worker/min", 1, "so min and max must be left out"));
  CHECK(refused("/spec/worker/max", 8, "so min and max must be left out"));
  CHECK(refused("/spec/scheduling", "Unplaced", "needs scheduling: Placed and no hostNetwork"));
  CHECK(refused("/spec/worker/hostNetwork", true, "needs scheduling: Placed and no hostNetwork"));
  const Json claims = Json::array({Json{{"name", "a"}, {"resourceClaimTemplateName", "ca"}}});
  CHECK(refused("/spec/worker/resourceClaims", claims, "so resourceClaims must be left out"));
  CHECK(refusal(with(four_workers(), "/spec/worker/max", 4)) == "");
}

TEST_CASE("what runs has workers of the size that status tells, and its spec is as written") {
  Json json = four_workers();
  json["status"] = Json{{"workerSize", 2}, {"startCount", 2}};
  const TrainingJob written = *parse_training_job(json);
  CHECK(written.spec.worker.size == 1);
  CHECK(written.status.worker_size == 2);
  CHECK(*parse_training_job(to_json(written)) == written);
  const auto [job, verdict] = read_training_job(json);
  REQUIRE(verdict);
  const WorkerSpec& worker = job.spec.worker;
  CHECK(worker.size == 2);
  CHECK(worker.count == 2);
  CHECK(worker.min == 2);
  CHECK(worker.max == 2);
  CHECK(worker.processes == 2);
  CHECK(worker.threads == 2);
  CHECK(worker.resources.cpu_millis == 4000);
  CHECK(worker.resources.memory_bytes == std::int64_t{2} << 30);
  CHECK(worker.resources.gpus == 2);
  CHECK(worker.resources.devices.at("rdma/hca") == 6);
  CHECK(spec_to_json(job.spec) == spec_to_json(written.spec));
  CHECK(with_size(worker, 1) == written.spec.worker);
}

TEST_CASE("a size that no operator has chosen for the spec is none") {
  const auto size_of = [](Json json, int size, int started) {
    json["status"] = Json{{"workerSize", size}, {"startCount", started}};
    return read_training_job(json).first.spec.worker.size;
  };
  CHECK(size_of(four_workers(), 4, 1) == 4);
  CHECK(size_of(four_workers(), 3, 1) == 1);   // four are not divided by it
  CHECK(size_of(four_workers(), 65, 1) == 1);  // nor read at all
  CHECK(size_of(with(four_workers(), "/spec/worker/shape", "Fixed"), 2, 2) == 1);
  const Json of_many = with(four_workers(), "/spec/worker/processes", 32);
  CHECK(size_of(of_many, 2, 2) == 2);
  CHECK(size_of(of_many, 4, 1) == 1);
  // An operator that knows of no sizes has started it since, or so many are asked for since.
  CHECK(size_of(four_workers(), 2, 4) == 1);
  CHECK(size_of(with(four_workers(), "/spec/worker/count", 8), 2, 2) == 1);
}

TEST_CASE("workers become no larger than a spec could ask for") {
  const auto largest = [](const char* field, const Json& value) {
    const Json json = with(free_shape_job(), std::string("/spec/worker/") + field, value);
    return largest_size(parse_training_job(json)->spec.worker);
  };
  CHECK(largest("processes", 1) == 64);
  CHECK(largest("processes", 24) == 2);
  CHECK(largest("shape", "Fixed") == 1);
  CHECK(largest("resources", Json{{"gpus", 8}}) == 8);
  CHECK(largest("resources", Json{{"cpu", "300"}}) == 3);
  CHECK(largest("resources", Json{{"memory", "40Ti"}}) == 1);
  CHECK(largest("resources", Json{{"ephemeralStorage", "30Ti"}}) == 2);
  CHECK(largest("resources", Json{{"devices", {{"a.b/c", 200}}}}) == 5);
}

TEST_CASE("how many workers there are cannot change while larger ones train") {
  TrainingJob before = *parse_training_job(four_workers());
  before.status.membership_epoch = 1;
  before.status.placement = {{0, 0, "n", ""}};
  const auto changed = [](TrainingJob job) {
    job.spec.worker.count = job.spec.worker.min = job.spec.worker.max = 8;
    return job;
  };
  const Status refused = check_update(before, changed(before));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().starts_with("spec.worker.count: cannot change while the job"));
  before.spec.suspend = true;
  before.status.placement.clear();
  CHECK(check_update(before, changed(before)));
  before = *parse_training_job(with(four_workers(), "/spec/worker/shape", nullptr));
  before.status.membership_epoch = 1;
  CHECK(check_update(before, changed(before)));
}
