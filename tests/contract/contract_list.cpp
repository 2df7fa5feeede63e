#include <algorithm>
#include <vector>

#include "tests/contract/api_contract.h"

namespace muster::contract_test {
namespace {

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> names;
  for (const Json& item : list["items"]) names.push_back(item["metadata"]["name"]);
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

void make_labelled(const std::string& ns, const std::string& name, const Json& labels) {
  auto wish = pod(name);
  wish["metadata"]["labels"] = labels;
  REQUIRE(call("POST", pods_path(ns), wish).code == 201);
}

Names select(const std::string& ns, const std::string& encoded_selector) {
  const auto list = call("GET", pods_path(ns) + "?labelSelector=" + encoded_selector);
  REQUIRE(list.code == 200);
  return names_of(list.body);
}

}  // namespace

TEST_CASE("an empty list is a list, with a version to watch from") {
  const auto list = call("GET", pods_path(new_namespace()));
  CHECK(list.code == 200);
  CHECK(list.body["kind"] == "PodList");
  CHECK(list.body["items"].is_array());
  CHECK(list.body["items"].empty());
  CHECK(list.meta("resourceVersion") != "");
}

TEST_CASE("a list shows one namespace, or all") {
  const auto ns = new_namespace(), other = new_namespace();
  REQUIRE(call("POST", pods_path(ns), pod("a")).code == 201);
  REQUIRE(call("POST", pods_path(other), pod("b")).code == 201);
  CHECK(names_of(call("GET", pods_path(ns)).body) == Names{"a"});
  const auto all = names_of(call("GET", "/api/v1/pods?labelSelector=").body);
  CHECK(std::count(all.begin(), all.end(), "b") >= 1);
}

TEST_CASE("label selectors mean what they mean in Kubernetes") {
  const auto ns = new_namespace();
  make_labelled(ns, "plain", Json::object());
  make_labelled(ns, "red", {{"colour", "red"}});
  make_labelled(ns, "blue", {{"colour", "blue"}, {"size", "1"}});
  CHECK(select(ns, "colour%3Dred") == Names{"red"});
  CHECK(select(ns, "colour%3D%3Dred") == Names{"red"});
  CHECK(select(ns, "colour%21%3Dred") == Names{"blue", "plain"});
  CHECK(select(ns, "colour") == Names{"blue", "red"});
  CHECK(select(ns, "%21colour") == Names{"plain"});
  CHECK(select(ns, "colour%20in%20%28red%2C%20blue%29") == Names{"blue", "red"});
  CHECK(select(ns, "colour%20notin%20%28red%29") == Names{"blue", "plain"});
  CHECK(select(ns, "colour%20in%20%28red%2Cblue%29%2Csize") == Names{"blue"});
  CHECK(call("GET", pods_path(ns) + "?labelSelector=a%20of%20b").code == 400);
}

TEST_CASE("field selectors find by name and by node") {
  const auto ns = new_namespace();
  auto bound = pod("bound");
  bound["spec"]["nodeName"] = "node-of-nobody";
  REQUIRE(call("POST", pods_path(ns), bound).code == 201);
  REQUIRE(call("POST", pods_path(ns), pod("free")).code == 201);
  const auto by = [&](const std::string& selector) {
    return names_of(call("GET", pods_path(ns) + "?fieldSelector=" + selector).body);
  };
  CHECK(by("metadata.name%3Dfree") == Names{"free"});
  CHECK(by("spec.nodeName%3Dnode-of-nobody") == Names{"bound"});
  CHECK(by("spec.nodeName%3D") == Names{"free"});
  CHECK(by("spec.nodeName%21%3D") == Names{"bound"});
  CHECK(call("GET", pods_path(ns) + "?fieldSelector=spec.colour%3Dred").code == 400);
}

TEST_CASE("pages show the world as it was at the first page") {
  const auto ns = new_namespace();
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    REQUIRE(call("POST", pods_path(ns), pod(name)).code == 201);
  }
  const auto first = call("GET", pods_path(ns) + "?limit=2");
  CHECK(first.body["items"].size() == 2);
  REQUIRE(call("DELETE", pods_path(ns, "d")).code == 200);
  REQUIRE(call("POST", pods_path(ns), pod("f")).code == 201);

  Names seen = names_of(first.body);
  std::string token = first.meta("continue");
  int pages = 1;
  while (!token.empty()) {
    const auto page = call("GET", pods_path(ns) + "?limit=2&continue=" + token);
    REQUIRE(page.code == 200);
    CHECK(page.meta("resourceVersion") == first.meta("resourceVersion"));
    for (const auto& name : names_of(page.body)) seen.push_back(name);
    token = page.meta("continue");
    ++pages;
  }
  CHECK(pages == 3);
  CHECK(seen == Names{"a", "b", "c", "d", "e"});
  // A watch from the list's version then brings what the pages did not show.
  Watch watch(pods_path(ns), "resourceVersion=" + first.meta("resourceVersion"));
  CHECK(watch.wait_for("DELETED", "d"));
  CHECK(watch.wait_for("ADDED", "f"));
}

TEST_CASE("nonsense as a continue token is refused") {
  const auto answer = call("GET", pods_path(new_namespace()) + "?limit=2&continue=nonsense");
  CHECK(answer.code == 400);
}

}  // namespace muster::contract_test
