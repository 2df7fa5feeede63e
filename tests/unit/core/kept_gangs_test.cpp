#include "operator/core/kept_gangs.h"

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

namespace {

/// Each node stands alone, numbered by name.
Inventory inventory_with(const std::set<std::string>& names) {
  return {std::make_shared<const Topology>(lone_nodes(names)), {}};
}

RunningGang running_on(const std::string& name, std::vector<std::string> nodes) {
  return {{"ns", name}, std::move(nodes), {1e9, 2, 1}};
}

}  // namespace

TEST_CASE("where gangs stand that are kept is forgotten when nodes are numbered otherwise") {
  KeptGangs kept;
  kept.take({"ns", "a"}, running_on("a", {"n2", "n3", "n2"}));
  const Inventory two = inventory_with({"n2", "n3"});
  REQUIRE(kept.on(two).size() == 1);
  CHECK(kept.on(two)[0]->hosts == std::vector<HostShare>{{0, 2}, {1, 1}});
  // One comes before them, and one of theirs goes and comes again.
  CHECK(kept.on(inventory_with({"n1", "n2", "n3"}))[0]->hosts ==
        std::vector<HostShare>{{1, 2}, {2, 1}});
  const SendingGang left = *kept.on(inventory_with({"n1", "n3"}))[0];
  CHECK(left.hosts == std::vector<HostShare>{{1, 1}});
  CHECK(left.places == 3);
  CHECK(kept.on(two)[0]->hosts == std::vector<HostShare>{{0, 2}, {1, 1}});
}

TEST_CASE("gangs that are kept are those that are told, by job, whatever was told before") {
  Rng rng(test::seed());
  const auto names_below = [&](int most) {
    std::set<std::string> names;
    for (int node = 0; node < most; ++node) {
      if (rng.below(4) > 0) names.insert("n" + std::to_string(100 + node));
    }
    return names;
  };
  KeptGangs kept;
  std::map<api::ObjectKey, RunningGang> told;
  auto inventory = std::make_unique<Inventory>(inventory_with(names_below(12)));
  for (int event = 0; event < 2000; ++event) {
    const std::string name = "g" + std::to_string(rng.below(12));
    const api::ObjectKey job{"ns", name};
    if (rng.below(20) == 0) {
      inventory = std::make_unique<Inventory>(inventory_with(names_below(12)));
    } else if (rng.below(3) == 0) {
      told.erase(job);
      kept.take(job, std::nullopt);
    } else {
      std::vector<std::string> nodes;
      for (std::uint64_t i = rng.below(6); i > 0; --i) {
        nodes.push_back("n" + std::to_string(100 + rng.below(12)));
      }
      told[job] = running_on(name, nodes);
      told[job].step.gradient_bytes = rng.unit();
      kept.take(job, told[job]);
    }
    if (rng.below(3) == 0) continue;
    std::vector<SendingGang> made, found;
    for (const auto& [key, gang] : told) made.push_back(sending_gang(gang, *inventory));
    for (const SendingGang* gang : kept.on(*inventory)) found.push_back(*gang);
    REQUIRE(found == made);
  }
}
