#include "tests/contract/api_contract.h"

namespace muster::contract_test {
namespace {

Json delete_options(const Json& more) {
  Json options = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  options.update(more);
  return options;
}

Watch watch_from_now(const std::string& collection) {
  return Watch(collection, "resourceVersion=" + call("GET", collection).meta("resourceVersion"));
}

}  // namespace

TEST_CASE("a delete can demand a uid") {
  const auto ns = new_namespace();
  const auto made = call("POST", pods_path(ns), pod("a"));
  const auto wrong =
      call("DELETE", pods_path(ns, "a"),
           delete_options({{"preconditions", {{"uid", "11111111-1111-4111-8111-111111111111"}}}}));
  CHECK(wrong.code == 409);
  CHECK(wrong.reason() == "Conflict");
  CHECK(call("GET", pods_path(ns, "a")).code == 200);
  CHECK(call("DELETE", pods_path(ns, "a"),
             delete_options({{"preconditions", {{"uid", made.meta("uid")}}}}))
            .code == 200);
  CHECK(call("GET", pods_path(ns, "a")).code == 404);
}

TEST_CASE("a delete can demand a version") {
  const auto ns = new_namespace();
  const auto made = call("POST", pods_path(ns), pod("a"));
  REQUIRE(patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"x", "1"}}}}}}).code == 200);
  const Json options =
      delete_options({{"preconditions", {{"resourceVersion", made.meta("resourceVersion")}}}});
  CHECK(call("DELETE", pods_path(ns, "a"), options).code == 409);
  CHECK(call("GET", pods_path(ns, "a")).code == 200);
}

TEST_CASE("what is not there cannot be deleted") {
  CHECK(call("DELETE", pods_path(new_namespace(), "nobody")).code == 404);
}

TEST_CASE("a pod on a node stays until its kubelet has stopped it") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), bound_pod("a")).code == 201);

  REQUIRE(call("DELETE", pods_path(ns, "a"), delete_options({{"gracePeriodSeconds", 20}})).code ==
          200);

  const auto stopping = call("GET", pods_path(ns, "a"));
  CHECK(stopping.code == 200);
  CHECK(parse_time(stopping.meta("deletionTimestamp")));
  CHECK(stopping.meta("deletionGracePeriodSeconds") == "20");
  // A second delete hurries it and does not put it off.
  REQUIRE(call("DELETE", pods_path(ns, "a"), delete_options({{"gracePeriodSeconds", 60}})).code ==
          200);
  CHECK(call("GET", pods_path(ns, "a")).meta("deletionGracePeriodSeconds") == "20");
  REQUIRE(call("DELETE", pods_path(ns, "a"), delete_options({{"gracePeriodSeconds", 5}})).code ==
          200);
  CHECK(call("GET", pods_path(ns, "a")).meta("deletionGracePeriodSeconds") == "5");

  REQUIRE(call("DELETE", pods_path(ns, "a"), delete_options({{"gracePeriodSeconds", 0}})).code ==
          200);
  CHECK(call("GET", pods_path(ns, "a")).code == 404);
}

TEST_CASE("a pod without a wish gets its own grace period") {
  const auto ns = new_namespace();
  auto wish = bound_pod("a");
  wish["spec"]["terminationGracePeriodSeconds"] = 7;
  REQUIRE(call("POST", pods_path(ns), wish).code == 201);
  REQUIRE(call("DELETE", pods_path(ns, "a")).code == 200);
  CHECK(call("GET", pods_path(ns, "a")).meta("deletionGracePeriodSeconds") == "7");
}

TEST_CASE("a pod that nobody runs is gone at once") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), pod("unbound")).code == 201);
  REQUIRE(call("POST", pods_path(ns), bound_pod("ended")).code == 201);
  REQUIRE(patch(pods_path(ns, "ended") + "/status", {{"status", {{"phase", "Succeeded"}}}}).code ==
          200);
  CHECK(call("DELETE", pods_path(ns, "unbound")).code == 200);
  CHECK(call("DELETE", pods_path(ns, "ended")).code == 200);
  CHECK(call("GET", pods_path(ns)).body["items"].empty());
}

TEST_CASE("an object with a finalizer stays until the finalizer is taken off") {
  const auto ns = new_namespace();
  auto wish = job("a");
  wish["metadata"]["finalizers"] = {"example.com/hold"};
  REQUIRE(call("POST", jobs_path(ns), wish).code == 201);
  auto watch = watch_from_now(jobs_path(ns));

  REQUIRE(call("DELETE", jobs_path(ns, "a")).code == 200);
  CHECK(call("GET", jobs_path(ns, "a")).meta("deletionTimestamp") != "");
  // The delete changed what its controllers must do: the generation says so.
  CHECK(call("GET", jobs_path(ns, "a")).meta("generation") == "2");
  CHECK(patch(jobs_path(ns, "a"), {{"metadata", {{"finalizers", nullptr}}}}).code == 200);
  CHECK(call("GET", jobs_path(ns, "a")).code == 404);
  CHECK(watch.wait_for("DELETED", "a"));
}

TEST_CASE("with the owner go its dependents, and theirs") {
  const auto ns = new_namespace();
  const auto owner = call("POST", jobs_path(ns), job("owner"));
  const auto child = call("POST", services_path(ns), owned_by(service("child"), owner.body));
  REQUIRE(child.code == 201);
  REQUIRE(call("POST", pods_path(ns), owned_by(pod("grandchild"), child.body)).code == 201);
  REQUIRE(call("POST", pods_path(ns), pod("stranger")).code == 201);
  auto pods = watch_from_now(pods_path(ns));

  REQUIRE(call("DELETE", jobs_path(ns, "owner")).code == 200);

  CHECK(pods.wait_for("DELETED", "grandchild"));
  CHECK(call("GET", services_path(ns, "child")).code == 404);
  CHECK(call("GET", pods_path(ns, "stranger")).code == 200);
}

TEST_CASE("an owner deleted as Orphan leaves its dependents without it") {
  const auto ns = new_namespace();
  const auto owner = call("POST", jobs_path(ns), job("owner"));
  REQUIRE(call("POST", services_path(ns), owned_by(service("child"), owner.body)).code == 201);
  auto services = watch_from_now(services_path(ns));

  REQUIRE(call("DELETE", jobs_path(ns, "owner"), delete_options({{"propagationPolicy", "Orphan"}}))
              .code == 200);

  const auto freed = services.wait_for("MODIFIED", "child");
  CHECK_FALSE(freed->object["metadata"].contains("ownerReferences"));
  CHECK(call("GET", services_path(ns, "child")).code == 200);
}

TEST_CASE("an object born to an owner that is gone does not live") {
  const auto ns = new_namespace();
  const auto owner = call("POST", jobs_path(ns), job("owner"));
  REQUIRE(call("DELETE", jobs_path(ns, "owner")).code == 200);
  // A new object of the old name is not the owner: the uid decides.
  REQUIRE(call("POST", jobs_path(ns), job("owner")).code == 201);
  auto services = watch_from_now(services_path(ns));
  REQUIRE(call("POST", services_path(ns), owned_by(service("late"), owner.body)).code == 201);
  CHECK(services.wait_for("DELETED", "late"));
}

TEST_CASE("an object lives while one of its owners lives") {
  const auto ns = new_namespace();
  const auto first = call("POST", jobs_path(ns), job("first"));
  const auto second = call("POST", jobs_path(ns), job("second"));
  auto child = owned_by(service("child"), first.body);
  auto other = owned_by(service("child"), second.body)["metadata"]["ownerReferences"][0];
  other["controller"] = false;
  child["metadata"]["ownerReferences"].push_back(other);
  REQUIRE(call("POST", services_path(ns), child).code == 201);
  auto services = watch_from_now(services_path(ns));

  REQUIRE(call("DELETE", jobs_path(ns, "first")).code == 200);
  const auto changed = services.wait_for("MODIFIED", "child");
  CHECK(changed->object["metadata"]["ownerReferences"].size() == 1);
  REQUIRE(call("DELETE", jobs_path(ns, "second")).code == 200);
  CHECK(services.wait_for("DELETED", "child"));
}

}  // namespace muster::contract_test
