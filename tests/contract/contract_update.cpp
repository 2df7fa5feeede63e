#include "tests/contract/api_contract.h"

namespace muster::contract_test {
TEST_CASE("a merge patch changes what it names and nothing else") {
  const auto ns = new_namespace();
  auto wish = pod("a");
  wish["metadata"]["labels"] = {{"keep", "1"}, {"drop", "2"}};
  const auto made = call("POST", pods_path(ns), wish);

  const auto patched =
      patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"drop", nullptr}, {"new", "3"}}}}}});

  CHECK(patched.code == 200);
  CHECK(patched.body["metadata"]["labels"] == Json({{"keep", "1"}, {"new", "3"}}));
  CHECK(patched.body["spec"] == made.body["spec"]);
  CHECK(patched.meta("resourceVersion") != made.meta("resourceVersion"));
}

TEST_CASE("a patch that changes nothing keeps the version") {
  const auto ns = new_namespace();
  auto wish = pod("a");
  wish["metadata"]["labels"] = {{"x", "1"}};
  const auto made = call("POST", pods_path(ns), wish);
  const auto patched = patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"x", "1"}}}}}});
  CHECK(patched.code == 200);
  CHECK(patched.meta("resourceVersion") == made.meta("resourceVersion"));
}

TEST_CASE("the generation counts changes of the spec and no others") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", jobs_path(ns), job("a")).meta("generation") == "1");
  CHECK(patch(jobs_path(ns, "a"), {{"metadata", {{"labels", {{"x", "1"}}}}}}).meta("generation") ==
        "1");
  CHECK(patch(jobs_path(ns, "a") + "/status", {{"status", {{"phase", "Running"}}}})
            .meta("generation") == "1");
  CHECK(patch(jobs_path(ns, "a"), {{"spec", {{"suspend", true}}}}).meta("generation") == "2");
  CHECK(patch(jobs_path(ns, "a"), {{"spec", {{"suspend", true}}}}).meta("generation") == "2");
}

TEST_CASE("the main resource does not write status, and status writes nothing else") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", jobs_path(ns), job("a")).code == 201);

  const auto spec_side =
      patch(jobs_path(ns, "a"), {{"spec", {{"suspend", true}}}, {"status", {{"phase", "Lie"}}}});
  CHECK(spec_side.body["spec"]["suspend"] == true);
  CHECK_FALSE(spec_side.body.contains("status"));

  const auto status_side = patch(jobs_path(ns, "a") + "/status",
                                 {{"spec", {{"suspend", false}}}, {"status", {{"phase", "True"}}}});
  CHECK(status_side.body["spec"]["suspend"] == true);
  CHECK(status_side.body["status"]["phase"] == "True");

  const auto kept = patch(jobs_path(ns, "a"), {{"spec", {{"suspend", false}}}});
  CHECK(kept.body["status"]["phase"] == "True");
}

TEST_CASE("another uid is invalid, and passed over in a patch of the status") {
  const auto ns = new_namespace();
  const auto made = call("POST", jobs_path(ns), job("a"));
  const Json wrong = {{"metadata", {{"uid", "11111111-1111-4111-8111-111111111111"}}},
                      {"spec", {{"suspend", true}}},
                      {"status", {{"phase", "x"}}}};
  const auto refused = patch(jobs_path(ns, "a"), wrong);
  CHECK(refused.code == 422);
  CHECK(refused.message().find("metadata.uid") != std::string::npos);
  const auto status = patch(jobs_path(ns, "a") + "/status", wrong);
  CHECK(status.code == 200);
  CHECK(status.meta("uid") == made.meta("uid"));
  CHECK(status.body["status"]["phase"] == "x");
}

TEST_CASE("a patch can demand a version") {
  const auto ns = new_namespace();
  const auto made = call("POST", jobs_path(ns), job("a"));
  const auto version = made.meta("resourceVersion"), uid = made.meta("uid");
  const std::string path = jobs_path(ns, "a") + "/status";

  const Json demanding = {{"metadata", {{"uid", uid}, {"resourceVersion", version}}},
                          {"status", {{"phase", "Running"}}}};
  CHECK(patch(path, demanding).code == 200);
  const auto late = patch(path, demanding);
  CHECK(late.code == 409);
  CHECK(late.reason() == "Conflict");
}

TEST_CASE("of two writers that read the same version one wins") {
  const auto ns = new_namespace();
  const auto made = call("POST", jobs_path(ns), job("a"));
  auto mine = made.body, yours = made.body;
  mine["spec"]["suspend"] = true;
  yours["spec"]["activeDeadlineSeconds"] = 60;

  CHECK(call("PUT", jobs_path(ns, "a"), mine).code == 200);
  const auto lost = call("PUT", jobs_path(ns, "a"), yours);
  CHECK(lost.code == 409);
  CHECK(lost.reason() == "Conflict");
  CHECK_FALSE(call("GET", jobs_path(ns, "a")).body["spec"].contains("activeDeadlineSeconds"));
}

TEST_CASE("a job is not replaced blindly") {
  const auto ns = new_namespace();
  auto body = call("POST", jobs_path(ns), job("a")).body;
  body["metadata"].erase("resourceVersion");
  CHECK(call("PUT", jobs_path(ns, "a"), body).code == 422);
}

TEST_CASE("an object cannot change its name, uid or birth") {
  const auto ns = new_namespace();
  const auto made = call("POST", pods_path(ns), pod("a"));
  CHECK(patch(pods_path(ns, "a"), {{"metadata", {{"name", "b"}}}}).code >= 400);
  const auto patched = patch(
      pods_path(ns, "a"),
      {{"metadata", {{"creationTimestamp", "2001-01-01T00:00:00Z"}, {"labels", {{"x", "1"}}}}}});
  CHECK(patched.code == 200);
  CHECK(patched.meta("creationTimestamp") == made.meta("creationTimestamp"));
  CHECK(patched.meta("uid") == made.meta("uid"));
}

TEST_CASE("a job stays valid") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", jobs_path(ns), job("a")).code == 201);
  const auto answer = patch(jobs_path(ns, "a"), {{"spec", {{"worker", {{"count", "two"}}}}}});
  CHECK(answer.code == 422);
  CHECK(answer.message().find("spec.worker.count") != std::string::npos);
  CHECK(call("GET", jobs_path(ns, "a")).body["spec"]["worker"]["count"] == 1);
}

TEST_CASE("a job's seed and logical ranks never change") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["spec"]["worker"] = {{"count", 1}};
  wish["spec"]["training"] = {
      {"seed", 7},
      {"logicalRanks", 16},
      {"batchSize", 64},
      {"epochs", 1},
      {"model", {{"mlp", {{"hidden", {8}}}}}},
      {"data", {{"train", {{"idx", {{"images", "i"}, {"labels", "l"}}}}}}},
      {"optimizer", {{"sgd", {{"learningRate", "0.1"}, {"momentum", "0.9"}}}}}};
  const auto made = call("POST", jobs_path(ns), wish);
  REQUIRE_MESSAGE(made.code == 201, made.message());
  for (const char* field : {"seed", "logicalRanks"}) {
    const auto refused = patch(jobs_path(ns, "a"), {{"spec", {{"training", {{field, 32}}}}}});
    CHECK(refused.code == 422);
    CHECK(refused.message().find(field) != std::string::npos);
  }
  CHECK(patch(jobs_path(ns, "a"), {{"spec", {{"training", {{"epochs", 2}}}}}}).code == 200);
}

TEST_CASE("a job that went ahead by its deadline cannot put it off while it has its places") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["spec"]["activeDeadlineSeconds"] = 600;
  REQUIRE(call("POST", jobs_path(ns), wish).code == 201);
  const auto deadline = [&](const Json& seconds) {
    return patch(jobs_path(ns, "a"), {{"spec", {{"activeDeadlineSeconds", seconds}}}}).code;
  };
  const auto status = [&](const Json& placement) {
    const Json wanted = {{"status", {{"wentAhead", true}, {"placement", placement}}}};
    return patch(jobs_path(ns, "a") + "/status", wanted).code;
  };
  CHECK(deadline(700) == 200);
  REQUIRE(status(Json::array({{{"slot", 0}, {"attempt", 0}}})) == 200);
  for (const Json& later : {Json(701), Json(nullptr)}) CHECK(deadline(later) == 422);
  CHECK(deadline(500) == 200);
  REQUIRE(status(Json::array()) == 200);
  CHECK(deadline(nullptr) == 200);
}

TEST_CASE("a pod's image may change and its command may not") {
  const auto ns = new_namespace();
  auto body = call("POST", pods_path(ns), pod("a")).body;
  Json containers = body["spec"]["containers"];
  containers[0]["image"] = "example.invalid/worker:2";
  CHECK(patch(pods_path(ns, "a"), {{"spec", {{"containers", containers}}}}).code == 200);
  containers[0]["command"] = Json::array({"false"});
  const auto refused = patch(pods_path(ns, "a"), {{"spec", {{"containers", containers}}}});
  CHECK(refused.code == 422);
  CHECK(refused.reason() == "Invalid");
}

TEST_CASE("a patch of something that is not there finds nothing") {
  const auto ns = new_namespace();
  CHECK(patch(pods_path(ns, "nobody"), {{"metadata", {{"labels", {{"x", "1"}}}}}}).code == 404);
  CHECK(patch(jobs_path(ns, "nobody") + "/status", {{"status", {{"phase", "x"}}}}).code == 404);
}

TEST_CASE("a patch of an unknown format is refused") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", jobs_path(ns), job("a")).code == 201);
  kube::HttpRequest request;
  request.method = "PATCH";
  request.path = jobs_path(ns, "a");
  request.content_type = "application/x-unheard-of";
  request.body = "{}";
  const auto response = contract_transport().send(request);
  REQUIRE(response);
  CHECK(response->code == 415);
}

TEST_CASE("a pod is bound once") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), pod("a")).code == 201);
  const auto binding = [](const char* node) {
    return Json{{"apiVersion", "v1"},
                {"kind", "Binding"},
                {"metadata", {{"name", "a"}}},
                {"target", {{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}}}};
  };
  CHECK(call("POST", pods_path(ns, "a") + "/binding", binding("n1")).code == 201);
  CHECK(call("GET", pods_path(ns, "a")).body["spec"]["nodeName"] == "n1");
  const auto again = call("POST", pods_path(ns, "a") + "/binding", binding("n2"));
  CHECK(again.code == 409);
  CHECK(again.reason() == "Conflict");
  CHECK(call("GET", pods_path(ns, "a")).body["spec"]["nodeName"] == "n1");
}

TEST_CASE("a kubelet writes the status of its pod") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), bound_pod("a")).code == 201);
  const auto running = patch(pods_path(ns, "a") + "/status",
                             {{"status", {{"phase", "Running"}, {"podIP", "127.0.0.1"}}}});
  CHECK(running.code == 200);
  CHECK(running.body["status"]["phase"] == "Running");
  CHECK(running.body["spec"]["nodeName"] == "node-of-nobody");
}

}  // namespace muster::contract_test
