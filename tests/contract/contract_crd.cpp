// What the schemas of the CRDs do to jobs and queues.
#include "tests/contract/api_contract.h"

namespace muster::contract_test {

TEST_CASE("a stored job has the defaults of its schema") {
  const auto ns = new_namespace();
  const auto made = call("POST", jobs_path(ns), job("a"));
  REQUIRE_MESSAGE(made.code == 201, made.message());
  const Json& spec = made.body["spec"];
  CHECK(spec["managedBy"] == "muster.dev/operator");
  CHECK(spec["suspend"] == false);
  CHECK(spec["restart"] ==
        Json({{"policy", "OnFailure"}, {"maxRestarts", 3}, {"backoffSeconds", 10}}));
  CHECK(spec["worker"]["resources"]["memory"] == "512Mi");
  CHECK_FALSE(spec.contains("training"));
  CHECK(call("GET", jobs_path(ns, "a")).body["spec"] == spec);
}

TEST_CASE("a default that is taken out comes back") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["spec"]["restart"] = {{"maxRestarts", 7}};
  const auto made = call("POST", jobs_path(ns), wish);
  CHECK(made.body["spec"]["restart"]["maxRestarts"] == 7);
  CHECK(made.body["spec"]["restart"]["policy"] == "OnFailure");
  const auto patched = patch(jobs_path(ns, "a"), {{"spec", {{"restart", nullptr}}}});
  CHECK(patched.body["spec"]["restart"]["maxRestarts"] == 3);
  CHECK(patched.meta("generation") == "2");
}

TEST_CASE("fields that no schema names are dropped, in spec, status and at the top") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["nonsense"] = 1;
  wish["spec"]["nonsense"] = {{"a", 1}};
  wish["spec"]["worker"]["Count"] = 5;
  const auto made = call("POST", jobs_path(ns), wish);
  REQUIRE_MESSAGE(made.code == 201, made.message());
  CHECK_FALSE(made.body.contains("nonsense"));
  CHECK_FALSE(made.body["spec"].contains("nonsense"));
  CHECK_FALSE(made.body["spec"]["worker"].contains("Count"));
  CHECK(made.body["spec"]["worker"]["count"] == 1);

  const auto status = patch(jobs_path(ns, "a") + "/status",
                            {{"status", {{"phase", "Running"}, {"nonsense", true}}}});
  CHECK(status.body["status"] == Json({{"phase", "Running"}}));
  const auto same = patch(jobs_path(ns, "a"), {{"spec", {{"nonsense", 2}}}});
  CHECK(same.code == 200);
  CHECK(same.meta("resourceVersion") == status.meta("resourceVersion"));
  CHECK(same.meta("generation") == "1");
}

TEST_CASE("a queue has no namespace, the defaults of its schema, and a status of its own") {
  const auto name = new_namespace();
  auto wish = queue(name);
  wish["spec"]["nonsense"] = 1;
  wish["spec"]["resources"] = Json::array({Json{{"name", "cpu"}, {"nominal", "4"}}});
  wish["status"] = {{"admitted", 7}};
  const auto made = call("POST", queues_path(), wish);
  REQUIRE_MESSAGE(made.code == 201, made.message());
  CHECK(made.body["spec"]["weight"] == 1);
  CHECK(made.body["spec"]["suspend"] == false);
  CHECK_FALSE(made.body["spec"].contains("nonsense"));
  CHECK_FALSE(made.body.contains("status"));
  CHECK(made.meta("namespace").empty());
  CHECK(made.meta("generation") == "1");

  const auto status = patch(queues_path(name) + "/status",
                            {{"metadata", {{"resourceVersion", made.meta("resourceVersion")}}},
                             {"spec", {{"weight", 5}}},
                             {"status", {{"admitted", 3}, {"nonsense", true}}}});
  REQUIRE_MESSAGE(status.code == 200, status.message());
  CHECK(status.body["status"] == Json({{"admitted", 3}}));
  CHECK(status.body["spec"]["weight"] == 1);
  CHECK(status.meta("generation") == "1");
  const auto late = patch(queues_path(name) + "/status",
                          {{"metadata", {{"resourceVersion", made.meta("resourceVersion")}}},
                           {"status", {{"admitted", 4}}}});
  CHECK(late.code == 409);
  const auto heavier = patch(queues_path(name), {{"spec", {{"weight", 5}}}});
  CHECK(heavier.meta("generation") == "2");
  CHECK(call("DELETE", queues_path(name)).code == 200);
  CHECK(call("GET", queues_path(name)).code == 404);
}

TEST_CASE("a queue that cannot be right is refused") {
  const auto name = new_namespace();
  const auto code_with = [&](const Json& spec) {
    auto wish = queue(name);
    wish["spec"] = spec;
    return call("POST", queues_path(), wish).code;
  };
  const auto resource = [](const Json& fields) {
    Json one{{"name", "cpu"}, {"nominal", "4"}};
    one.update(fields);
    return Json{{"resources", Json::array({one})}};
  };
  CHECK(code_with(resource({{"nominal", "-1"}})) == 422);
  CHECK(code_with(resource({{"nominal", -1}})) == 422);
  CHECK(code_with(resource({{"nominal", "2E"}})) == 422);
  CHECK(code_with(resource({{"nominal", nullptr}})) == 422);
  CHECK(code_with(resource({{"borrowingLimit", "1"}})) == 422);
  CHECK(code_with(resource({{"name", "a/b/c"}})) == 422);
  CHECK(code_with({{"weight", 0}}) == 422);
  CHECK(code_with({{"weight", 1001}}) == 422);
  CHECK(code_with({{"cohort", "Not a label"}}) == 422);
  // A cohort is a name that queues have in common: it has no parent, and so there are no loops.
  CHECK(code_with({{"cohort", Json{{"parent", "other"}}}}) == 422);
  CHECK(code_with({{"namespaces", Json::array({"a", "a"})}}) == 422);
}

TEST_CASE("a topology that cannot be right is refused") {
  const std::string path = "/apis/muster.dev/v1alpha1/topologyconfigs";
  const auto name = new_namespace();
  const Json rack{{"name", "rack"}, {"nodeLabel", "example.com/rack"}};
  const auto code_with = [&](const Json& spec) {
    const Json wish{{"apiVersion", "muster.dev/v1alpha1"},
                    {"kind", "TopologyConfig"},
                    {"metadata", {{"name", name}}},
                    {"spec", spec}};
    return call("POST", path, wish).code;
  };
  const auto level = [&](const Json& fields) {
    Json one = rack;
    one.update(fields);
    return Json{{"levels", Json::array({one})}};
  };
  CHECK(code_with(Json::object()) == 422);
  CHECK(code_with({{"levels", Json::array()}}) == 422);
  CHECK(code_with({{"levels", Json::array({rack, rack})}}) == 422);
  Json other = rack;
  other["name"] = "row";
  CHECK(code_with({{"levels", Json::array({rack, other})}}) == 422);
  CHECK(code_with(level({{"name", "host"}})) == 422);
  CHECK(code_with(level({{"name", "Rack"}})) == 422);
  CHECK(code_with(level({{"nodeLabel", "a/b/c"}})) == 422);
  CHECK(code_with(level({{"oversubscription", "0"}})) == 422);
  CHECK(code_with(level({{"oversubscription", "1000001"}})) == 422);
  CHECK(code_with(level({{"oversubscription", "nan"}})) == 422);
  CHECK(code_with(level({{"latencyMicroseconds", -1}})) == 422);
  Json with_host = level({{"oversubscription", "2.5"}});
  with_host["host"] = {{"gigabitsPerSecond", "0"}};
  CHECK(code_with(with_host) == 422);
  with_host["host"] = {{"gigabitsPerSecond", "200"}};
  CHECK(code_with(with_host) == 201);
  CHECK(call("DELETE", path + "/" + name).code == 200);
}

TEST_CASE("a watch of queues sees what becomes of them") {
  const auto name = new_namespace();
  Watch watch(queues_path());
  REQUIRE(watch.code() == 200);
  REQUIRE(call("POST", queues_path(), queue(name)).code == 201);
  CHECK(watch.wait_for("ADDED", name));
  REQUIRE(patch(queues_path(name), {{"spec", {{"weight", 2}}}}).code == 200);
  const auto changed = watch.wait_for("MODIFIED", name);
  REQUIRE(changed);
  CHECK(changed->object["spec"]["weight"] == 2);
  REQUIRE(call("DELETE", queues_path(name)).code == 200);
  CHECK(watch.wait_for("DELETED", name));
}

}  // namespace muster::contract_test
