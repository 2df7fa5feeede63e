// What the schema of the CRD does to a job.
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

}  // namespace muster::contract_test
