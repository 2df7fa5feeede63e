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
