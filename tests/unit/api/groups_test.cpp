// spec.topology.groups, and slices by Kueue's annotations: what may be asked for.
#include <doctest/doctest.h>

#include <string>

#include "operator/api/kueue.h"
#include "operator/api/training_job.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

constexpr const char* kSplit = "/spec/training/parallelism";

/// One group of this kind, within a rack, of a model that is split so.
Json grouped(const std::string& of, int tensor, int pipeline, int processes = 1) {
  Json json = grouped_training_job();
  json["spec"]["worker"]["count"] = tensor * pipeline;
  json["spec"]["worker"]["processes"] = processes;
  json["spec"]["training"]["parallelism"] = Json{{"tensor", tensor}, {"pipeline", pipeline}};
  json["spec"]["topology"]["groups"] = Json::array({Json{{"of", of}, {"required", "rack"}}});
  return json;
}

Json sliced(const std::string& size, int count) {
  Json json = with(least_program_job(), "/spec/worker/count", count);
  json["metadata"]["annotations"] = Json{{std::string(kueue::kSliceTopology), "example.com/rack"},
                                         {std::string(kueue::kSliceSize), size}};
  return json;
}

const std::string kSize = "metadata.annotations." + std::string(kueue::kSliceSize);

}  // namespace

TEST_CASE("groups are read, and written as they were") {
  const auto job = parse_training_job(grouped_training_job());
  REQUIRE(job);
  const std::vector<TopologyGroup> expected = {{"Tensor", "", "rack"}, {"Pipeline", "block", ""}};
  CHECK(job->spec.topology_groups == expected);
  CHECK(topology_wanted(*job).groups == expected);
  CHECK(topology_wanted(*job).asks());
  CHECK(spec_to_json(job->spec)["topology"] == grouped_training_job()["spec"]["topology"]);
  // All workers may have a level of their own beside them.
  CHECK(refusal(with(grouped_training_job(), "/spec/topology/required", "zone")) == "");
  CHECK(refusal(with(grouped_training_job(), "/spec/topology/preferred", "zone")) == "");
}

TEST_CASE("groups are of a model that is split so, in workers of their own") {
  for (const char* of : {"Tensor", "Pipeline", "Data"}) {
    CHECK(refusal(grouped(of, 2, 2)) == "");
    CHECK(refusal(grouped(of, 2, 2, 4)) == "");
    CHECK(refusal(grouped(of, 4, 2, 2)) == "");
  }
  const std::string field = "spec.topology.groups[0].of";
  CHECK(names(refusal(grouped("Tensor", 1, 2)), field, "parallelism.tensor above 1"));
  CHECK(names(refusal(grouped("Pipeline", 2, 1)), field, "parallelism.pipeline above 1"));
  CHECK(names(refusal(grouped("Data", 2, 1)), field, "spec.topology.required is for all of them"));
  // A worker with two processes has parts of two groups of three.
  CHECK(names(refusal(grouped("Tensor", 3, 2, 2)), field, "tensor (3) to be a multiple of"));
  CHECK(refusal(grouped("Pipeline", 3, 2, 2)) == "");
  CHECK(names(refusal(grouped("Data", 3, 2, 2)), field, "tensor (3) to be a multiple of"));
  CHECK(names(refusal(grouped("Pipeline", 1, 3, 2)), field, "tensor x pipeline (3) to be"));
  CHECK(names(refusal(grouped("Data", 1, 3, 2)), field, "tensor x pipeline (3) to be"));
  // What the operator chooses is not known beforehand.
  CHECK(names(refusal(with(grouped("Tensor", 2, 2), kSplit, Json{{"mode", "Auto"}})), field,
              "tensor above 1"));
  const Json program =
      with(least_program_job(), "/spec/topology", grouped_training_job()["spec"]["topology"]);
  CHECK(names(refusal(program), field, "needs spec.training"));
}

TEST_CASE("groups that cannot be kept beside each other are refused") {
  const std::string field = "spec.topology.groups";
  const auto with_groups = [](const char* text) {
    return with(grouped_training_job(), "/spec/topology/groups", *parse_json(text));
  };
  CHECK(names(refusal(with_groups(R"([{"of": "Pipeline", "required": "a"},
                                      {"of": "Data", "required": "a"}])")),
              field, "must not have both Pipeline and Data"));
  CHECK(names(refusal(with_groups(R"([{"of": "Data", "required": "a"},
                                      {"of": "Data", "preferred": "b"}])")),
              field + "[1]", "stands twice"));
  CHECK(names(refusal(with_groups("[]")), field, "at least one group"));
  CHECK(names(refusal(with_groups(R"([{"of": "Data"}])")), field + "[0]", "exactly one of"));
  CHECK(names(refusal(with_groups(R"([{"required": "a"}])")), field + "[0].of", "is required"));
  CHECK(names(refusal(with(grouped_training_job(), "/spec/worker/shape", "Free")), field,
              "must be left out with worker.shape: Free"));
  Json queued = grouped_training_job();
  queued["spec"].erase("queueName");
  queued["metadata"]["labels"] = Json{{std::string(kueue::kQueueName), "team"}};
  CHECK(names(refusal(queued), "spec.topology", "must be left out where metadata.labels."));
}

TEST_CASE("slices by Kueue's annotations are groups of so many workers") {
  const auto job = parse_training_job(sliced("2", 6));
  REQUIRE(job);
  const TopologyWish wish = topology_wanted(*job);
  CHECK(wish.slice_level == "example.com/rack");
  CHECK(wish.slice_size == 2);
  CHECK(wish.asks());
  CHECK(refusal(with(sliced("2", 6), "/spec/topology", Json{{"required", "zone"}})) == "");
}

TEST_CASE("slices that do not come out even, or of which one half is missing, are refused") {
  for (const char* wrong : {"", "0", "-1", "two", "2 ", "4097", "99999999999999999999"}) {
    CHECK(names(refusal(sliced(wrong, 6)), kSize, "a whole number from 1 to 4096"));
  }
  CHECK(names(refusal(sliced("4", 6)), kSize, "must divide spec.worker.count (6)"));
  CHECK(names(refusal(with(sliced("2", 6), "/spec/worker/min", 2)), kSize, "min, max and shape"));
  CHECK(names(refusal(with(sliced("2", 6), "/spec/worker/shape", "Free")), kSize, "min, max"));
  Json half = sliced("2", 6);
  half["metadata"]["annotations"].erase(std::string(kueue::kSliceTopology));
  CHECK(names(refusal(half), kSize, "needs kueue.x-k8s.io/podset-slice-required-topology"));
  Json level = sliced("2", 6);
  level["metadata"]["annotations"][std::string(kueue::kSliceTopology)] = "a b";
  CHECK(refusal(level).find("must be the label of a node") != std::string::npos);
  Json queued = sliced("2", 6);
  queued["metadata"]["labels"] = Json{{std::string(kueue::kQueueName), "team"}};
  CHECK(refusal(queued).find("slices are not handed on to Kueue") != std::string::npos);
  Json grouped = grouped_training_job();
  grouped["metadata"]["annotations"] = sliced("2", 8)["metadata"]["annotations"];
  CHECK(refusal(grouped).find("where spec.topology.groups is set") != std::string::npos);
}
