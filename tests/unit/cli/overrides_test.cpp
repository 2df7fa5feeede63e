#include "cli/overrides.h"

#include <doctest/doctest.h>

#include "common/contract.h"

namespace muster::cli {
namespace {

Json manifest() {
  return Json{{"metadata", {{"name", "digits"}}},
              {"spec", {{"worker", {{"count", 2}, {"env", {{{"name", "A"}, {"value", "1"}}}}}}}}};
}

TEST_CASE("--set replaces one value, typed as YAML") {
  struct Row {
    const char* assignment;
    const char* pointer;
    Json value;
  };
  const Row rows[] = {
      {"spec.worker.count=3", "/spec/worker/count", 3},
      {"spec.suspend=true", "/spec/suspend", true},
      {"spec.training.model.mlp.hidden=[64, 32]", "/spec/training/model/mlp/hidden",
       Json::array({64, 32})},
      {"spec.training.optimizer.sgd.learningRate=\"0.1\"",
       "/spec/training/optimizer/sgd/learningRate", "0.1"},
      {"spec.training.optimizer.sgd.learningRate=0.1", "/spec/training/optimizer/sgd/learningRate",
       0.1},
      {"spec.worker.env[0].value=a=b", "/spec/worker/env/0/value", "a=b"},
      {"spec.worker.env.0.value=x", "/spec/worker/env/0/value", "x"},
      {"spec.worker.env[1].name=B", "/spec/worker/env/1/name", "B"},
      {"metadata.annotations.muster\\.dev/note=hi", "/metadata/annotations/muster.dev~1note", "hi"},
      {"spec.worker.count=", "/spec/worker/count", nullptr},
  };
  for (const Row& row : rows) {
    CAPTURE(row.assignment);
    Json json = manifest();
    const Status applied = apply_override(row.assignment, json);
    if (!applied) FAIL(applied.error().message());
    CHECK(json[Json::json_pointer(row.pointer)] == row.value);
    CHECK(json["metadata"]["name"] == "digits");
  }
}

TEST_CASE("--set makes a list by its first item, and takes an item out") {
  Json json = manifest();
  for (const char* assignment :
       {"spec.worker.tolerations[0].key=a", "spec.worker.env[1].name=B",
        "spec.worker.env[0]=", "metadata.labels[team]=x", "metadata.annotations.0=y"}) {
    const Status applied = apply_override(assignment, json);
    REQUIRE_MESSAGE(applied, applied.error().message());
  }
  CHECK(json["spec"]["worker"] == Json{{"count", 2},
                                       {"env", Json::array({Json{{"name", "B"}}})},
                                       {"tolerations", Json::array({Json{{"key", "a"}}})}});
  CHECK(json["metadata"] ==
        Json{{"name", "digits"}, {"labels", {{"team", "x"}}}, {"annotations", {{"0", "y"}}}});
}

TEST_CASE("a --set that cannot be meant is refused as usage") {
  struct Row {
    const char* assignment;
    const char* message;
  };
  const Row rows[] = {
      {"spec.worker.count",
       "--set spec.worker.count: write a path, = and a value, as in "
       "spec.worker.count=3"},
      {"=3", "--set =3: write a path, = and a value, as in spec.worker.count=3"},
      {"spec..count=3",
       "--set spec..count=3: the path must be names separated by dots, as in spec.worker.count"},
      {"spec.worker.env[0=3",
       "--set spec.worker.env[0=3: the path must be names separated by "
       "dots, as in spec.worker.count"},
      {"spec.worker.env[2].name=B",
       "--set spec.worker.env[2].name=B: spec.worker.env is a list of 1; \"2\" is no index in it"},
      {"spec.worker.env[1]=",
       "--set spec.worker.env[1]=: spec.worker.env is a list of 1; \"1\" is no index in it"},
      {"spec.worker.args[0]=",
       "--set spec.worker.args[0]=: spec.worker.args is a list of 0; \"0\" is no index in it"},
      {"spec.worker.args[1]=b",
       "--set spec.worker.args[1]=b: spec.worker.args is a list of 0; \"1\" is no index in it"},
      {"spec.worker.env.x=1",
       "--set spec.worker.env.x=1: spec.worker.env is a list of 1; \"x\" is no index in it"},
      {"metadata.name.x=1",
       "--set metadata.name.x=1: metadata.name is a single value and has no "
       "field \"x\""},
      {"spec.x={a: 1, a: 2}", "--set spec.x:1: the key \"a\" stands here twice"},
  };
  for (const Row& row : rows) {
    Json json = manifest();
    const Status applied = apply_override(row.assignment, json);
    REQUIRE_FALSE(applied);
    CHECK(applied.error().message() == row.message);
    CHECK(applied.error().exit_code() == contract::exit_code::kUsage);
  }
}

}  // namespace
}  // namespace muster::cli
