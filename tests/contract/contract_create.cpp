#include "operator/api/pod.h"
#include "tests/contract/api_contract.h"

namespace muster::contract_test {

TEST_CASE("a created object gets what only the server can give it") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["metadata"]["uid"] = "mine";
  wish["metadata"]["generation"] = 7;
  wish["status"] = {{"phase", "Complete"}};

  const auto made = call("POST", jobs_path(ns), wish);

  CHECK(made.code == 201);
  CHECK(made.meta("namespace") == ns);
  CHECK(made.meta("uid").size() == 36);
  CHECK(made.meta("generation") == "1");
  CHECK(made.meta("resourceVersion") != "");
  CHECK(parse_time(made.meta("creationTimestamp")));
  CHECK_FALSE(made.body.contains("status"));
  CHECK(call("GET", jobs_path(ns, "a")).body == made.body);
}

TEST_CASE("a new pod is pending whatever its maker says") {
  const auto ns = new_namespace();
  auto wish = pod("a");
  wish["status"] = {{"phase", "Running"}};
  CHECK(call("POST", pods_path(ns), wish).body["status"]["phase"] == "Pending");
}

TEST_CASE("an event is kept with both kinds of its fields, and counted where it stands") {
  api::Event event;
  event.meta.namespace_name = new_namespace();
  event.meta.name = "a.0123456789abcdef";
  event.regarding = {event.meta.namespace_name, "a"};
  event.regarding_uid = "u";
  event.type = "Normal";
  event.reason = "GangScheduled";
  event.action = "Reconcile";
  event.note = "2 workers on 1 node";
  event.event_time = *parse_time("2026-01-01T00:00:09.250000Z");
  const std::string path = api::object_path(api::Kind::kEvent, event.meta.key());
  const std::string all = api::collection_path(api::Kind::kEvent, event.meta.namespace_name);
  Json wish = api::to_json(event);
  SUBCASE("as it is written") {}
  SUBCASE("as the core API shows those written through events.k8s.io") {
    for (const char* field : {"firstTimestamp", "lastTimestamp", "count", "source"}) {
      wish.erase(field);
    }
  }

  const auto made = call("POST", all, wish);
  REQUIRE_MESSAGE(made.code == 201, made.message());
  for (const auto& [name, value] : wish.items()) {
    if (name != "metadata") CHECK_MESSAGE(made.body[name] == value, name);
  }
  CHECK(call("POST", all, wish).reason() == "AlreadyExists");

  event.event_time = *parse_time("2026-01-01T00:00:12.500000Z");
  event.series_count = 2;
  const Json again = api::to_json(event);
  Json change{{"metadata", {{"resourceVersion", made.meta("resourceVersion")}}}};
  for (const char* field : {"series", "count", "lastTimestamp"}) change[field] = again[field];
  const auto counted = patch(path, change);
  REQUIRE_MESSAGE(counted.code == 200, counted.message());
  CHECK(patch(path, change).code == 409);
  for (const auto& [name, value] : wish.items()) {
    const bool is_same = name != "metadata" && !change.contains(name);
    if (is_same) CHECK_MESSAGE(counted.body[name] == value, name);
  }
  const auto list = call("GET", all);
  REQUIRE(list.body["items"].size() == 1);
  const Json& listed = list.body["items"][0];
  CHECK(listed["series"] == again["series"]);
  CHECK(listed["count"] == 2);
  CHECK(listed["lastTimestamp"] == "2026-01-01T00:00:12Z");
}

TEST_CASE("a name is taken once, and is free again after the object") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), pod("a")).code == 201);
  const auto again = call("POST", pods_path(ns), pod("a"));
  CHECK(again.code == 409);
  CHECK(again.reason() == "AlreadyExists");
  CHECK(again.message() == "pods \"a\" already exists");
  REQUIRE(call("DELETE", pods_path(ns, "a")).code == 200);
  CHECK(call("POST", pods_path(ns), pod("a")).code == 201);
}

TEST_CASE("generateName makes names that differ") {
  const auto ns = new_namespace();
  auto wish = pod("x");
  wish["metadata"] = {{"generateName", "g-"}};
  const auto first = call("POST", pods_path(ns), wish), second = call("POST", pods_path(ns), wish);
  CHECK(first.code == 201);
  CHECK(second.code == 201);
  CHECK(first.meta("name").substr(0, 2) == "g-");
  CHECK(first.meta("name").size() == 7);
  CHECK(first.meta("name") != second.meta("name"));
}

TEST_CASE("what cannot be an object is refused with the field") {
  const auto ns = new_namespace();
  SUBCASE("a bad name") {
    const auto answer = call("POST", pods_path(ns), pod("Not_A_Name"));
    CHECK(answer.code == 422);
    CHECK(answer.reason() == "Invalid");
    CHECK(answer.message().find("metadata.name") != std::string::npos);
  }
  SUBCASE("no name") {
    auto wish = pod("x");
    wish["metadata"].erase("name");
    CHECK(call("POST", pods_path(ns), wish).code == 422);
  }
  SUBCASE("another namespace than the path's") {
    auto wish = pod("x");
    wish["metadata"]["namespace"] = "elsewhere";
    CHECK(call("POST", pods_path(ns), wish).code == 400);
  }
  SUBCASE("another kind than the path's") {
    CHECK(call("POST", pods_path(ns), service("x")).code == 400);
  }
  SUBCASE("a job whose field has the wrong type") {
    auto wish = job("x");
    wish["spec"]["worker"]["count"] = "many";
    const auto answer = call("POST", jobs_path(ns), wish);
    CHECK(answer.code == 422);
    CHECK(answer.reason() == "Invalid");
    CHECK(answer.message().find("spec.worker.count") != std::string::npos);
  }
  SUBCASE("a label that is no label") {
    auto wish = pod("x");
    wish["metadata"]["labels"] = {{"a", "not a label"}};
    const auto answer = call("POST", pods_path(ns), wish);
    CHECK(answer.code == 422);
    CHECK(answer.message().find("metadata.labels") != std::string::npos);
  }
  CHECK(call("GET", pods_path(ns)).body["items"].empty());
}

TEST_CASE("a body that is not JSON is a bad request") {
  kube::HttpRequest request;
  request.method = "POST";
  request.path = pods_path(new_namespace());
  request.content_type = "application/json";
  request.body = R"({"apiVersion":"v1",)";
  const auto response = contract_transport().send(request);
  REQUIRE(response);
  CHECK(response->code == 400);
}

TEST_CASE("an unknown object, kind or group is not found") {
  const auto ns = new_namespace();
  const auto missing = call("GET", jobs_path(ns, "nobody"));
  CHECK(missing.code == 404);
  CHECK(missing.reason() == "NotFound");
  CHECK(missing.message() == "trainingjobs.muster.dev \"nobody\" not found");
  CHECK(call("GET", pods_path(ns, "nobody")).message() == "pods \"nobody\" not found");
}

TEST_CASE("an object over the size limit is too large") {
  const auto ns = new_namespace();
  auto wish = pod("big");
  wish["metadata"]["labels"] = {{"a", "b"}};
  wish["spec"]["containers"][0]["env"] = {
      {{"name", "A"}, {"value", std::string(std::size_t{4} << 20, 'x')}}};
  CHECK(call("POST", pods_path(ns), wish).code == 413);
}

}  // namespace muster::contract_test
