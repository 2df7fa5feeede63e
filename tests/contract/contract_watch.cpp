#include <set>

#include "tests/contract/api_contract.h"

namespace muster::contract_test {

TEST_CASE("a watch from a list's version sends what happened after the list") {
  const auto ns = new_namespace();
  REQUIRE(call("POST", pods_path(ns), pod("before")).code == 201);
  const auto list = call("GET", pods_path(ns));
  const auto made = call("POST", pods_path(ns), pod("a"));
  const auto changed = patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"x", "y"}}}}}});
  REQUIRE(call("DELETE", pods_path(ns, "a")).code == 200);

  Watch watch(pods_path(ns), "resourceVersion=" + list.meta("resourceVersion"));

  const auto added = watch.next(), modified = watch.next(), terminating = watch.next(),
             deleted = watch.next();
  CHECK(added->type == "ADDED");
  CHECK(added->object == made.body);
  CHECK(modified->type == "MODIFIED");
  CHECK(modified->object == changed.body);
  CHECK(terminating->type == "MODIFIED");
  CHECK(terminating->object["metadata"]["deletionGracePeriodSeconds"] == 0);
  CHECK(deleted->type == "DELETED");
  CHECK(deleted->object["metadata"]["labels"]["x"] == "y");
  CHECK(deleted->resource_version() != changed.meta("resourceVersion"));
}

TEST_CASE("a watch without a version, or from 0, begins with what is there") {
  const auto ns = new_namespace();
  const auto made = call("POST", pods_path(ns), pod("a"));
  for (const char* query : {"", "resourceVersion=0"}) {
    Watch watch(pods_path(ns), query);
    const auto event = watch.next();
    CHECK(event->type == "ADDED");
    CHECK(event->object == made.body);
  }
}

TEST_CASE("a selector turns changes into appearance and disappearance") {
  const auto ns = new_namespace();
  const auto version = call("GET", pods_path(ns)).meta("resourceVersion");
  REQUIRE(call("POST", pods_path(ns), pod("a")).code == 201);
  REQUIRE(patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"on", "1"}}}}}}).code == 200);
  REQUIRE(patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"n", "2"}}}}}}).code == 200);
  const auto off = patch(pods_path(ns, "a"), {{"metadata", {{"labels", {{"on", nullptr}}}}}});
  REQUIRE(call("DELETE", pods_path(ns, "a")).code == 200);
  REQUIRE(call("POST", pods_path(ns), pod("b")).code == 201);
  REQUIRE(patch(pods_path(ns, "b"), {{"metadata", {{"labels", {{"on", "1"}}}}}}).code == 200);

  Watch watch(pods_path(ns), "labelSelector=on%3D1&resourceVersion=" + version);

  CHECK(watch.next()->type == "ADDED");
  CHECK(watch.next()->type == "MODIFIED");
  const auto gone = watch.next();
  CHECK(gone->type == "DELETED");
  CHECK(gone->object["metadata"]["labels"]["on"] == "1");
  CHECK(gone->resource_version() == off.meta("resourceVersion"));
  const auto other = watch.next();
  CHECK(other->type == "ADDED");
  CHECK(other->name() == "b");
}

TEST_CASE("a watch of one namespace sees nothing of another") {
  const auto ns = new_namespace(), other = new_namespace();
  const auto version = call("GET", pods_path(ns)).meta("resourceVersion");
  Watch watch(pods_path(ns), "resourceVersion=" + version);
  REQUIRE(call("POST", pods_path(other), pod("foreign")).code == 201);
  REQUIRE(call("POST", pods_path(ns), pod("own")).code == 201);
  CHECK(watch.next()->name() == "own");
}

TEST_CASE("a watch ends by itself after timeoutSeconds") {
  const auto ns = new_namespace();
  Watch watch(pods_path(ns), "timeoutSeconds=1");
  CHECK_FALSE(watch.next());
}

TEST_CASE("a watch with bookmarks says where it stands before it ends") {
  const auto ns = new_namespace();
  const auto version = call("GET", pods_path(ns)).meta("resourceVersion");
  REQUIRE(call("POST", pods_path(ns), pod("a")).code == 201);
  Watch watch(pods_path(ns),
              "allowWatchBookmarks=true&timeoutSeconds=2&resourceVersion=" + version);
  std::string last;
  while (const auto event = watch.next()) {
    if (event->type == "BOOKMARK") CHECK(event->object["kind"] == "Pod");
    last = event->resource_version();
  }
  // Nothing is lost and nothing comes twice when the next watch starts from there.
  REQUIRE(call("POST", pods_path(ns), pod("b")).code == 201);
  Watch next(pods_path(ns), "resourceVersion=" + last);
  const auto event = next.next();
  CHECK(event->type == "ADDED");
  CHECK(event->name() == "b");
}

TEST_CASE("a watch may begin with a list, whose end a bookmark tells") {
  const auto ns = new_namespace();
  const auto made = call("POST", pods_path(ns), pod("a"));
  REQUIRE(call("POST", pods_path(ns), pod("b")).code == 201);
  Watch watch(pods_path(ns),
              "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
  REQUIRE(watch.code() == 200);
  const auto first = watch.next(), second = watch.next(), end = watch.next();
  CHECK(first->type == "ADDED");
  CHECK(second->type == "ADDED");
  CHECK(std::set{first->name(), second->name()} == std::set<std::string>{"a", "b"});
  CHECK((first->name() == "a" ? *first : *second).object == made.body);
  CHECK(end->type == "BOOKMARK");
  CHECK(end->object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true");
  // It goes on, and another watch may go on from there.
  REQUIRE(call("POST", pods_path(ns), pod("c")).code == 201);
  Watch next(pods_path(ns), "resourceVersion=" + end->resource_version());
  CHECK(watch.next()->name() == "c");
  CHECK(next.next()->name() == "c");
}

TEST_CASE("a watch that begins with a list says how old that may be") {
  for (const char* query :
       {"sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan"}) {
    Watch watch(pods_path(new_namespace()), query);
    CHECK_MESSAGE(watch.code() == 422, query);
  }
}

TEST_CASE("a version that is no number is refused") {
  Watch watch(pods_path(new_namespace()), "resourceVersion=abc");
  CHECK(watch.code() >= 400);  // Kubernetes says 500.
}

}  // namespace muster::contract_test
