// Random operations on the embedded server, and what must hold after every one of them.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/rng.h"
#include "operator/embedded/api_server.h"
#include "operator/kube/api_client.h"
#include "tests/test_main.h"

namespace muster::embedded {
namespace {

using api::Kind;
using State = std::map<std::string, Json>;  ///< "namespace/name" -> object

constexpr Kind kKinds[] = {Kind::kService, Kind::kPod};

std::string key_of(const Json& object) {
  return object["metadata"]["namespace"].get<std::string>() + "/" +
         object["metadata"]["name"].get<std::string>();
}
std::uint64_t revision_of(const Json& object) {
  return std::stoull(object["metadata"]["resourceVersion"].get<std::string>());
}

class World {
 public:
  explicit World(std::uint64_t seed)
      : rng_(seed),
        server_({.clock = &clock_, .seed = seed}),
        client_(kube::make_rest_client(server_)) {}

  ApiServer& server() { return server_; }
  Rng& rng() { return rng_; }

  void act() {
    const auto before = server_.resource_version();
    const Kind kind = kKinds[rng_.below(2)];
    const api::ObjectKey key{"n" + std::to_string(rng_.below(2)),
                             "o" + std::to_string(rng_.below(6))};
    switch (rng_.below(6)) {
      case 0:
      case 1:
        create(kind, key);
        break;
      case 2:
        (void)client_->merge_patch(
            kind, key, "", {{"metadata", {{"labels", {{"l", std::to_string(rng_.below(3))}}}}}});
        break;
      case 3:
        (void)client_->merge_patch(kind, key, "", {{"metadata", {{"finalizers", nullptr}}}});
        break;
      case 4:
        (void)client_->merge_patch(kind, key, "status",
                                   {{"status", {{"phase", rng_.below(2) ? "Running" : "Failed"}}}});
        break;
      default:
        remove(kind, key);
    }
    CHECK(server_.resource_version() >= before);
  }

  State list(Kind kind, const std::string& selector = "") {
    kube::ListOptions options;
    options.label_selector = selector;
    options.limit = static_cast<int>(rng_.below(4));
    State state;
    do {
      auto page = client_->list(kind, options);
      REQUIRE(page);
      for (const Json& item : page->items) state[key_of(item)] = item;
      options.continue_token = page->continue_token;
    } while (!options.continue_token.empty());
    return state;
  }

  /// What a watch from `from` makes of `state`. Checks that revisions rise.
  State replay(Kind kind, State state, std::uint64_t from, const std::string& selector = "") {
    kube::WatchOptions options;
    options.resource_version = std::to_string(from);
    options.label_selector = selector;
    auto stream = client_->watch(kind, options);
    REQUIRE(stream);
    std::uint64_t last = from;
    while (true) {
      const auto line = (*stream)->next_line(milliseconds(0));
      if (!line) break;
      REQUIRE(*line);
      const Json event = *parse_json(**line);
      const Json& object = event["object"];
      CHECK(revision_of(object) > last);
      last = revision_of(object);
      const std::string key = key_of(object);
      const bool known = state.contains(key);
      const std::string type = event["type"];
      CHECK_MESSAGE(known == (type != "ADDED"), type << " of " << key);
      if (type == "DELETED") {
        state.erase(key);
      } else {
        state[key] = object;
      }
    }
    return state;
  }

 private:
  void create(Kind kind, const api::ObjectKey& key) {
    Json object = {
        {"metadata", {{"name", key.name}, {"labels", {{"l", std::to_string(rng_.below(3))}}}}},
        {"spec", {{"containers", {{{"name", "worker"}, {"image", "x"}}}}}}};
    if (kind == Kind::kPod && rng_.below(2) == 0) object["spec"]["nodeName"] = "n";
    if (rng_.below(4) == 0) object["metadata"]["finalizers"] = {"example.com/hold"};
    if (rng_.below(2) == 0) object["metadata"]["ownerReferences"] = owners(key.namespace_name);
    (void)client_->create(kind, key.namespace_name, object);
  }

  void remove(Kind kind, const api::ObjectKey& key) {
    kube::DeleteOptions options;
    options.grace_period_seconds = static_cast<int>(rng_.below(3)) - 1;
    (void)client_->remove(kind, key, options);
  }

  /// One or two owners: living, dead or of the wrong uid.
  Json owners(const std::string& namespace_name) {
    Json references = Json::array();
    for (std::uint64_t i = 0; i <= rng_.below(2); ++i) {
      const Kind kind = kKinds[rng_.below(2)];
      const std::string name = "o" + std::to_string(rng_.below(6));
      const auto owner = client_->get(kind, {namespace_name, name});
      references.push_back({{"apiVersion", "v1"},
                            {"kind", api::info_of(kind).kind},
                            {"name", name},
                            {"uid", owner ? (*owner)["metadata"]["uid"] : Json("dead")}});
    }
    return references;
  }

  ManualClock clock_;
  Rng rng_;
  ApiServer server_;
  std::unique_ptr<kube::ApiClient> client_;
};

/// Objects all of whose owners are gone and that nobody is deleting.
std::vector<std::string> orphans(const std::vector<State>& all) {
  std::set<std::string> uids;
  for (const State& state : all) {
    for (const auto& [key, object] : state) uids.insert(object["metadata"]["uid"]);
  }
  std::vector<std::string> found;
  for (const State& state : all) {
    for (const auto& [key, object] : state) {
      const Json& metadata = object["metadata"];
      if (!metadata.contains("ownerReferences") || metadata.contains("deletionTimestamp")) continue;
      for (const Json& reference : metadata["ownerReferences"]) {
        if (!uids.contains(reference["uid"])) found.push_back(key);
      }
    }
  }
  return found;
}

}  // namespace

TEST_CASE(
    "after any operations: a watch from any moment rebuilds the present, and no orphan lives") {
  std::size_t events = 0, deletions = 0;
  for (int round = 0; round < test::tries(25); ++round) {
    const std::uint64_t seed = test::seed() * 1000 + static_cast<std::uint64_t>(round);
    CAPTURE(seed);
    World world(seed);
    struct Moment {
      std::uint64_t revision;
      State pods, services, selected;
    };
    std::vector<Moment> moments;
    for (int i = 0; i < 200; ++i) {
      if (i % 20 == 0) {
        moments.push_back({world.server().resource_version(), world.list(Kind::kPod),
                           world.list(Kind::kService), world.list(Kind::kPod, "l=1")});
      }
      world.act();
      REQUIRE(orphans({world.list(Kind::kPod), world.list(Kind::kService)}).empty());
    }
    const State pods = world.list(Kind::kPod), services = world.list(Kind::kService);
    const State selected = world.list(Kind::kPod, "l=1");
    for (const Moment& moment : moments) {
      CHECK(world.replay(Kind::kPod, moment.pods, moment.revision) == pods);
      CHECK(world.replay(Kind::kService, moment.services, moment.revision) == services);
      CHECK(world.replay(Kind::kPod, moment.selected, moment.revision, "l=1") == selected);
      for (const auto& [key, object] : moment.pods) deletions += pods.contains(key) ? 0 : 1;
    }
    events += world.server().resource_version();
  }
  // The operations did something.
  CHECK(events > static_cast<std::size_t>(test::tries(1000)));
  CHECK(deletions > static_cast<std::size_t>(test::tries(100)));
}

TEST_CASE("pages of one list agree with each other whatever is written between them") {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::uint64_t seed = test::seed() * 1000 + round;
    CAPTURE(seed);
    World world(seed);
    for (int i = 0; i < 60; ++i) world.act();
    const State then = world.list(Kind::kPod);
    const auto client = kube::make_rest_client(world.server());
    kube::ListOptions options;
    options.limit = 1;
    State paged;
    do {
      const auto page = client->list(Kind::kPod, options);
      REQUIRE(page);
      for (const Json& item : page->items) paged[key_of(item)] = item;
      options.continue_token = page->continue_token;
      for (int i = 0; i < 5; ++i) world.act();
    } while (!options.continue_token.empty());
    CHECK(paged == then);
  }
}

}  // namespace muster::embedded
