// What is read of a job whose spec another version of the operator has let start.
#include <doctest/doctest.h>

#include "common/contract.h"
#include "operator/api/training_job.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

TEST_CASE("the status survives a spec that an older schema admitted") {
  const Json json = with(full_training_job(), "/spec/worker/count", 0);
  const auto [job, verdict] = read_training_job(json);
  REQUIRE_FALSE(verdict);
  CHECK(verdict.error().exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(job.meta.name == "digits");
  CHECK(job.status == parse_training_job(full_training_job())->status);
  CHECK(job.status.is_true("Running"));
  CHECK_FALSE(job.status.finished());
}

TEST_CASE("labels that are refused do not hide that a job is being deleted, nor which one it is") {
  Json json = full_training_job();
  json["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z";
  json["metadata"]["deletionGracePeriodSeconds"] = 7;
  const TrainingJob whole = *parse_training_job(json);
  REQUIRE(whole.meta.deletion_time);
  Json labels = Json::object();
  for (int i = 0; i <= 4096; ++i) labels["l" + std::to_string(i)] = "x";
  for (const Json& broken : {labels, Json{{"a", 1}}, Json(7)}) {
    for (const char* field : {"labels", "annotations"}) {
      json["metadata"]["labels"] = Json::object();
      json["metadata"]["annotations"] = Json::object();
      json["metadata"][field] = broken;
      const auto [job, verdict] = read_training_job(json);
      REQUIRE_FALSE(verdict);
      CHECK(verdict.error().message().find("metadata." + std::string(field)) == 0);
      CHECK(job.meta.deletion_time == whole.meta.deletion_time);
      CHECK(job.meta.deletion_grace_seconds == 7);
      CHECK(job.meta.uid == whole.meta.uid);
      CHECK(job.meta.resource_version == whole.meta.resource_version);
      CHECK(job.meta.creation_time == whole.meta.creation_time);
    }
  }
}

TEST_CASE(
    "of a spec that is refused all is read that can be, and what is trained stays as written") {
  Json json = full_training_job();
  Json& spec = json["spec"];
  spec["suspend"] = true;
  spec["managedBy"] = "else.where/controller";
  spec["restart"] = Json{{"maxRestarts", 7}, {"policy", "Tomorrow"}};
  Json& training = spec["training"];
  training["optimizer"] = {{"sgd", {{"learningRate", "0.5"}}},
                           {"schedule", {{"cosine", {{"warmupSteps", 99}}}}}};
  training.erase("epochs");
  training["steps"] = 10;
  training["model"] = {{"tomorrow", {{"width", 3}}}};
  training["precision"] = "Float4";
  const auto [job, verdict] = read_training_job(json);
  REQUIRE_FALSE(verdict);
  CHECK_FALSE(is_about_pods(verdict.error()));
  CHECK(job.spec.suspend);
  CHECK(job.spec.managed_by == "else.where/controller");
  CHECK(job.spec.restart.max_restarts == 7);
  CHECK(job.spec.worker == parse_training_job(full_training_job())->spec.worker);
  CHECK(job.spec.training->checkpoint ==
        parse_training_job(full_training_job())->spec.training->checkpoint);
  const Json sent = training_to_json(*job.spec.training);
  CHECK(sent["model"] == training["model"]);
  CHECK(sent["optimizer"]["schedule"]["cosine"]["warmupSteps"] == 99);
  CHECK(sent["steps"] == 10);
  CHECK(sent["precision"] == "Float4");
}

TEST_CASE(
    "where it is not understood how many workers there should be, those stay that there are") {
  Json json = full_training_job();
  json["status"]["placement"] = {{{"slot", 0}}, {{"slot", 1}}, {{"slot", 2}}};
  for (const Json& wrong : {Json("2"), Json(9)}) {
    json["spec"]["worker"]["count"] = wrong;
    const auto [job, verdict] = read_training_job(json);
    REQUIRE_FALSE(verdict);
    CHECK(is_about_pods(verdict.error()));
    CHECK(job.spec.worker.count == 3);
    CHECK(job.spec.worker.min == 3);
    CHECK(job.spec.worker.max == 3);
  }
  // Of anything else that is refused the wish counts, as far as it can be.
  json["spec"]["worker"]["count"] = 4;
  json["spec"]["worker"]["threads"] = 5000;
  const auto [job, verdict] = read_training_job(json);
  CHECK(is_about_pods(verdict.error()));
  CHECK(job.spec.worker.count == 4);
  CHECK(job.spec.worker.threads == 1024);
}

TEST_CASE("what pods are made of is refused before all else that is") {
  Json json = with(full_training_job(), "/spec/training/mode", "Tomorrow");
  CHECK_FALSE(is_about_pods(read_training_job(json).second.error()));
  for (const char* path : {"/proc", "relative"}) {
    json["spec"]["training"]["checkpoint"]["path"] = path;
    CHECK(is_about_pods(read_training_job(json).second.error()));
  }
  for (const Json& wrong : {Json("x"), Json(nullptr)}) {
    CHECK(
        is_about_pods(read_training_job(with(full_training_job(), "/spec", wrong)).second.error()));
  }
}

TEST_CASE("of a job in the API server what only a newer schema knows is passed over") {
  Json json = least_program_job();
  const auto before = parse_training_job(json);
  REQUIRE(before);
  json["spec"]["tomorrow"] = Json{{"default", true}};
  json["spec"]["worker"]["colour"] = "red";
  json["spec"]["restart"] = Json{{"policy", "OnFailure"}, {"jitter", 3}};
  json["spec"]["worker"]["volumes"] =
      Json::array({{{"name", "data"}, {"emptyDir", {{"newer", 1}}}}});
  CHECK_FALSE(parse_training_job(json));
  auto [job, verdict] = read_training_job(json);
  CHECK_MESSAGE(verdict, (verdict ? "" : verdict.error().message()));
  CHECK(job.spec.worker.count == before->spec.worker.count);
  CHECK(spec_to_json(job.spec)["worker"]["volumes"][0]["emptyDir"] == Json::object());
  // What is wrong stays so.
  json["spec"]["worker"]["count"] = 0;
  CHECK_FALSE(read_training_job(json).second);
  // Nor is a name that looks like a path a way to another field, or to reading without end.
  json["spec"]["worker"]["count"] = 1;
  json["spec"]["worker.count"] = 5;
  CHECK(read_training_job(json).first.spec.worker.count == 1);
  for (int i = 0; i < 40; ++i) json["spec"]["x" + std::to_string(i)] = i;
  CHECK_FALSE(read_training_job(json).second);
}
