// A job that was changed ends as one that was made so: before it starts, and after it ran.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/rng.h"
#include "common/yaml_reader.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr int kPairs = 30;

/// A field of the spec and two values that it may have, as JSON; null: it is left out.
struct SpecField {
  const char* pointer;
  const char* one;
  const char* other;
};

constexpr SpecField kOfPrograms[] = {
    {"/worker/count", "2", "3"},
    {"/worker/min", "null", "1"},
    {"/worker/max", "null", "4"},
    {"/worker/processes", "null", "2"},
    {"/worker/threads", "null", "3"},
    {"/worker/resources/cpu", R"("1")", R"("2")"},
    {"/worker/resources/memory", R"("512Mi")", R"("1Gi")"},
    {"/worker/resources/gpus", "null", "1"},
    {"/worker/resources/devices", "null", R"({"rdma/hca_a": 1})"},
    {"/worker/resources/ephemeralStorage", "null", R"("1Gi")"},
    {"/worker/image", "null", R"("pytorch:2")"},
    {"/worker/command", R"(["train"])", R"(["train", "--fast"])"},
    {"/worker/args", "null", R"(["--slow"])"},
    {"/worker/env", "null", R"([{"name": "A", "value": "1"}])"},
    {"/worker/envFrom", "null", R"([{"prefix": "X_", "configMapRef": {"name": "c"}}])"},
    {"/worker/ports", "null", R"([{"name": "http", "containerPort": 8080}])"},
    {"/worker/volumes", R"([{"name": "tmp", "emptyDir": {}}])",
     R"([{"name": "tmp", "emptyDir": {}}, {"name": "more", "emptyDir": {}}])"},
    {"/worker/volumeMounts", "null", R"([{"name": "tmp", "mountPath": "/scratch"}])"},
    {"/worker/initContainers", "null",
     R"([{"name": "fetch", "image": "curl:8", "command": ["curl"]}])"},
    {"/worker/shmSize", "null", R"("1Gi")"},
    {"/worker/nodeSelector", "null", R"({"disk": "ssd"})"},
    {"/worker/affinity", "null",
     R"({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
         [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}}})"},
    {"/worker/tolerations", "null", R"([{"key": "gpu", "operator": "Exists"}])"},
    {"/worker/imagePullSecrets", "null", R"([{"name": "pull"}])"},
    {"/worker/imagePullPolicy", "null", R"("Always")"},
    {"/worker/serviceAccountName", "null", R"("trainer")"},
    {"/worker/runtimeClassName", "null", R"("nvidia")"},
    {"/worker/schedulerName", "null", R"("mine")"},
    {"/worker/resourceClaims", "null", R"([{"name": "gpu", "resourceClaimName": "large"}])"},
    {"/worker/runAsUser", "null", "1000"},
    {"/worker/runAsGroup", "null", "1001"},
    {"/worker/fsGroup", "null", "2000"},
    {"/worker/supplementalGroups", "null", "[2000]"},
    {"/worker/terminationGracePeriodSeconds", "null", "60"},
    {"/worker/shape", "null", R"("Free")"},
    {"/restart/policy", R"("OnFailure")", R"("Never")"},
    {"/restart/maxRestarts", "3", "5"},
    {"/restart/backoffSeconds", "10", "20"},
    {"/topology", "null", R"({"preferred": "rack"})"},
    {"/scheduling", "null", R"("Unplaced")"},
    {"/queueName", "null", R"("research")"},
    {"/priorityClassName", "null", R"("high")"},
    {"/activeDeadlineSeconds", "null", "36000"},
    {"/ttlSecondsAfterFinished", "null", "86400"},
};

constexpr SpecField kOfEngine[] = {
    {"/worker/count", "2", "3"},
    {"/worker/min", "1", "2"},
    {"/worker/max", "4", "3"},
    {"/worker/growsTo", "null", R"("Max")"},
    {"/worker/threads", "null", "3"},
    {"/worker/image", "null", R"("own:2")"},
    {"/training/batchSize", "64", "128"},
    {"/training/microBatchSize", "null", "16"},
    {"/training/epochs", "1", "2"},
    {"/training/data/train/idx/images", R"("i")", R"("other")"},
    {"/training/optimizer", R"({"sgd": {"learningRate": "0.1"}})",
     R"({"adamw": {"learningRate": "0.01"}})"},
    {"/training/gradientClipping", "null", R"({"maxNorm": "1.0"})"},
    {"/training/evaluation", "null", R"({"everyEpochs": 2})"},
    {"/training/checkpoint", "null", R"({"path": "/ckpt", "everySteps": 50, "keep": 3})"},
    {"/training/onNonFinite", "null", R"("Stop")"},
    {"/training/optimizerState", "null", R"("Sharded")"},
    {"/training/parallelism", "null", R"({"tensor": 2, "pipeline": 1})"},
    {"/restart/maxRestarts", "3", "5"},
    {"/scheduling", "null", R"("Placed")"},
    {"/priorityClassName", "null", R"("high")"},
};

/// Of a gpt alone.
constexpr SpecField kOfTexts[] = {
    {"/training/steps", "1000", "2000"},
    {"/training/pretrained", "null", R"({"directory": "gpt2"})"},
    {"/training/buddies", "null", "2"},
    {"/training/activations", "null", R"("Recomputed")"},
};

/// Of a worker alone: a node has one in its network, and here there is one node.
constexpr SpecField kOfOneWorker[] = {{"/worker/hostNetwork", "null", "true"}};

/// What no table has: what may never change, what has one value, and what every test here changes.
constexpr const char* kOfNoTable[] = {
    "/managedBy",     "/suspend",        "/training/algorithm", "/training/logicalRanks",
    "/training/mode", "/training/model", "/training/precision", "/training/seed"};

Json program_spec() {
  return Json{{"worker",
               {{"count", 2},
                {"command", Json::array({"train"})},
                {"resources", {{"cpu", "1"}, {"memory", "512Mi"}}},
                {"volumes", Json::array({Json{{"name", "tmp"}, {"emptyDir", Json::object()}}})}}},
              {"restart", {{"policy", "OnFailure"}, {"maxRestarts", 3}, {"backoffSeconds", 10}}}};
}

Json trained_spec() {
  return Json{{"worker",
               {{"count", 2},
                {"min", 1},
                {"max", 4},
                {"processes", 2},
                {"resources", {{"cpu", "1"}, {"memory", "512Mi"}}}}},
              {"training", sim::engine_spec()},
              {"queueName", "research"},
              {"restart", {{"maxRestarts", 3}}}};
}

Json text_spec() {
  Json spec = trained_spec();
  Json& training = spec["training"];
  training.erase("epochs");
  training["steps"] = 1000;
  training["optimizerState"] = "Sharded";
  training["model"] =
      *parse_json(R"({"gpt": {"layers": 6, "heads": 12, "width": 192, "contextLength": 64}})");
  training["data"] =
      *parse_json(R"({"train": {"text": {"file": "a"}}, "test": {"text": {"file": "b"}}})");
  return spec;
}

Json with_field(Json spec, const char* pointer, const std::string& value) {
  const auto read = parse_json(value);
  REQUIRE(read);
  const Json::json_pointer at{std::string(pointer)};
  if (!read->is_null()) {
    spec[at] = *read;
  } else if (spec.contains(at)) {
    spec[at.parent_pointer()].erase(at.back());
  }
  return spec;
}

/// The merge patch that makes `after` of `before`.
Json patch_of(const Json& before, const Json& after) {
  Json patch = Json::object();
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old != before.end() && *old == value) continue;
    const bool are_objects = old != before.end() && old->is_object() && value.is_object();
    patch[key] = are_objects ? patch_of(*old, value) : value;
  }
  return patch;
}

/// All that a job could want, made when the job is there already: so it has the same uid, and its
/// pods have the same names, in every world.
void furnish(World& world) {
  const Json amounts{{"cpu", "64"},           {"memory", "64Gi"},
                     {"pods", "100"},         {"ephemeral-storage", "100Gi"},
                     {"nvidia.com/gpu", "8"}, {"rdma/hca_a", "8"}};
  const Json ready{{"type", "Ready"}, {"status", "True"}};
  const Json node{{"apiVersion", "v1"},
                  {"kind", "Node"},
                  {"metadata", {{"name", "local"}, {"labels", {{"disk", "ssd"}}}}},
                  {"status", {{"allocatable", amounts}, {"conditions", Json::array({ready})}}}};
  REQUIRE(world.user->create(api::Kind::kNode, "", node));
  world.create_queue("research", 64);
  world.create_priority("high", 100);
}

void let_pass(World& world) {
  for (int round = 0; round < 3; ++round) {
    world.pass(seconds(5));
    world.reap(contract::exit_code::kPlannedLeave);
    world.run_all_pods();
    world.settle();
  }
}

Result<Json> create_as(World& world, const Json& spec) {
  return world.user->create(api::Kind::kTrainingJob, "default",
                            Json{{"apiVersion", contract::kApiVersion},
                                 {"kind", contract::kKindTrainingJob},
                                 {"metadata", {{"name", "j"}, {"namespace", "default"}}},
                                 {"spec", spec}});
}

Result<Json> patch_spec_of(World& world, const Json& spec) {
  return world.user->merge_patch(api::Kind::kTrainingJob, {"default", "j"}, "",
                                 Json{{"spec", spec}});
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// Attempts count how often a job started, and stand in names: they differ, and nothing else.
Json without_attempt(const World& world, const api::Pod& pod, const Json& object) {
  const std::string attempt = std::to_string(pod.attempt());
  const std::string stem = api::service_name(world.job("j"));
  std::string text = dump_json(Json{{"labels", object["metadata"]["labels"]},
                                    {"annotations", object["metadata"]["annotations"]},
                                    {"spec", object["spec"]}});
  for (int slot = 0; slot < 8; ++slot) {
    const std::string seat = stem + "-" + std::to_string(slot) + "-";
    replace_all(text, seat + attempt, seat + "N");
  }
  replace_all(text, "\"" + stem + "-" + attempt + "\"", "\"" + stem + "-N\"");
  replace_all(text, "\"MUSTER_ATTEMPT\",\"value\":\"" + attempt + "\"",
              "\"MUSTER_ATTEMPT\",\"value\":\"N\"");
  replace_all(text, "\"muster.dev/attempt\":\"" + attempt + "\"", "\"muster.dev/attempt\":\"N\"");
  return *parse_json(text);
}

/// What there is of the job, apart from how often it was started.
Json outcome_of(World& world) {
  const auto job = world.job("j");
  Json result{{"target", job.status.target_workers},
              {"phase", job.status.phase},
              {"queue", job.status.queue},
              {"pods", Json::object()}};
  for (const auto& pod : world.pods()) {
    if (pod.ended() || pod.meta.deletion_time) continue;
    const auto object = world.user->get(api::Kind::kPod, pod.meta.key());
    REQUIRE(object);
    result["pods"][std::to_string(pod.slot())] = without_attempt(world, pod, *object);
  }
  for (const auto kind : {api::Kind::kService, api::Kind::kPodDisruptionBudget}) {
    const auto page = world.user->list(kind, {"default", "", 0, ""});
    REQUIRE(page);
    for (const Json& item : page->items) result[api::info_of(kind).plural].push_back(item["spec"]);
  }
  const auto gang = world.op->endpoint.gangs.find("default/j");
  if (gang != world.op->endpoint.gangs.end()) {
    result["gang"] = {{"processes", gang->second.processes},
                      {"threads", gang->second.threads},
                      {"training", gang->second.training}};
  }
  return result;
}

/// nullopt: the API server refuses it.
std::optional<Json> made_so(const Json& spec) {
  static std::map<std::string, std::optional<Json>> all;  // many fields begin at the same spec
  const auto [found, is_new] = all.try_emplace(dump_json(spec));
  if (!is_new) return found->second;
  World world(test::seed());
  if (!create_as(world, spec)) return std::nullopt;
  furnish(world);
  let_pass(world);
  return found->second = outcome_of(world);
}

/// While it is suspended, or waits for want of a node. nullopt: it started without any.
std::optional<Json> changed_before_it_starts(const Json& from, const Json& to, bool is_suspended) {
  World world(test::seed());
  Json first = from;
  first["suspend"] = is_suspended;
  REQUIRE(create_as(world, first));
  let_pass(world);
  if (!world.pods().empty()) return std::nullopt;
  const auto done = patch_spec_of(world, patch_of(from, to));
  REQUIRE_MESSAGE(done.has_value(), done.error().message());
  furnish(world);
  let_pass(world);
  REQUIRE(world.pods().empty() == (is_suspended || (*made_so(to))["pods"].empty()));
  if (is_suspended) REQUIRE(patch_spec_of(world, Json{{"suspend", false}}));
  let_pass(world);
  return outcome_of(world);
}

/// At once where that is allowed, else while it is suspended; then it starts again.
Json changed_when_it_ran(const Json& from, const Json& to) {
  World world(test::seed());
  REQUIRE(create_as(world, from));
  furnish(world);
  let_pass(world);
  const bool is_free = patch_spec_of(world, patch_of(from, to)).has_value();
  let_pass(world);
  REQUIRE(patch_spec_of(world, Json{{"suspend", true}}));
  let_pass(world);
  REQUIRE(world.job("j").status.is_true("Suspended"));
  if (!is_free) {
    const auto done = patch_spec_of(world, patch_of(from, to));
    REQUIRE_MESSAGE(done.has_value(), done.error().message());
  }
  REQUIRE(patch_spec_of(world, Json{{"suspend", false}}));
  let_pass(world);
  return outcome_of(world);
}

/// False: the two values do not go together with the rest, and the API server says so.
bool is_as_made(const Json& from, const Json& to) {
  const auto expected = made_so(to);
  if (!expected || !made_so(from)) return false;
  const auto check = [&](const char* when, const Json& got) {
    CHECK_MESSAGE(got == *expected, when << ": " << dump_json(Json::diff(*expected, got)));
  };
  for (const bool is_suspended : {false, true}) {
    const auto got = changed_before_it_starts(from, to, is_suspended);
    if (got) check(is_suspended ? "suspended before it starts" : "before it starts", *got);
  }
  check("when it ran", changed_when_it_ran(from, to));
  return true;
}

void check_fields(const Json& base, std::span<const SpecField> fields, std::size_t pods = 2) {
  for (const SpecField& field : fields) {
    const std::string name = field.pointer;
    CAPTURE(name);
    const Json one = with_field(base, field.pointer, field.one);
    const Json other = with_field(base, field.pointer, field.other);
    CHECK(is_as_made(one, other));
    CHECK(is_as_made(other, one));
    for (const Json& spec : {one, other}) {
      const auto alone = made_so(spec);
      const std::size_t least = spec["worker"].contains("shape") ? 1 : pods;  // two become one
      CHECK_MESSAGE((alone && (*alone)["pods"].size() >= least), "it has no pods to compare");
    }
  }
}

Json schema_of_spec() {
  const std::string path = "crds/trainingjob.yaml";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const auto crd = parse_yaml(text.str(), path);
  REQUIRE(crd);
  const Json& schema = (*crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
  return schema["properties"]["spec"]["properties"];
}

/// Whether a table has the field, or a part of it.
bool is_in_table(const std::string& pointer) {
  const auto is_it = [&](const SpecField& field) {
    const std::string of = field.pointer;
    return of == pointer || of.starts_with(pointer + "/");
  };
  return std::any_of(std::begin(kOfPrograms), std::end(kOfPrograms), is_it) ||
         std::any_of(std::begin(kOfEngine), std::end(kOfEngine), is_it) ||
         std::any_of(std::begin(kOfTexts), std::end(kOfTexts), is_it) ||
         std::any_of(std::begin(kOfOneWorker), std::end(kOfOneWorker), is_it);
}

/// Two fields at once, drawn.
void check_pairs(const Json& base, std::span<const SpecField> fields) {
  Rng rng(test::seed());
  int tried = 0;
  for (int i = 0; i < kPairs; ++i) {
    const SpecField& first = fields[rng.below(fields.size())];
    const SpecField& second = fields[rng.below(fields.size())];
    const std::string names = std::string(first.pointer) + " " + second.pointer;
    CAPTURE(names);
    if (&first == &second) continue;
    const Json from =
        with_field(with_field(base, first.pointer, first.one), second.pointer, second.one);
    const Json to =
        with_field(with_field(base, first.pointer, first.other), second.pointer, second.other);
    tried += is_as_made(from, to) ? 1 : 0;
  }
  CHECK(tried > kPairs / 2);
}

}  // namespace

TEST_CASE("a job that runs an own program and is changed ends as one that was made so") {
  check_fields(program_spec(), kOfPrograms);
}

TEST_CASE("a job that trains and is changed ends as one that was made so") {
  check_fields(trained_spec(), kOfEngine);
}

TEST_CASE("a job that learns texts and is changed ends as one that was made so") {
  check_fields(text_spec(), kOfTexts);
}

TEST_CASE("a worker that enters or leaves its node's network ends as one that was made so") {
  check_fields(with_field(program_spec(), "/worker/count", "1"), kOfOneWorker, 1);
}

TEST_CASE("each field of the schema is in a table of changes, or named as one that is in none") {
  int found = 0;
  const auto check = [&](const std::string& pointer) {
    const bool is_left_out =
        std::find(std::begin(kOfNoTable), std::end(kOfNoTable), pointer) != std::end(kOfNoTable);
    CHECK_MESSAGE(is_in_table(pointer) != is_left_out, pointer);
    ++found;
  };
  const Json schema = schema_of_spec();
  for (const auto& [name, property] : schema.items()) {
    if (name == "worker" || name == "training" || name == "restart") {
      for (const auto& part : property["properties"].items()) check("/" + name + "/" + part.key());
    } else {
      check("/" + name);
    }
  }
  CHECK(found > 60);
}

TEST_CASE("two fields that are changed at once make what a job has that was made with both") {
  check_pairs(program_spec(), kOfPrograms);
  check_pairs(trained_spec(), kOfEngine);
}
