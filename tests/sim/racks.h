// Where the nodes of the simulated cluster stand, and how that is told: by labels, by a
// TopologyConfig, or by objects of Kueue, KAI or Volcano. Two ways to tell never say the same, so
// that it shows by which of them a gang was placed.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/rng.h"
#include "operator/kube/api_client.h"

namespace muster::sim {

class Racks {
 public:
  Racks(std::uint64_t seed, kube::ApiClient& user);

  /// Pairs of nodes share a rack.
  static const std::vector<std::string>& nodes();
  /// What a node says of itself while nobody has meddled.
  static Json labels_of(const std::string& node);
  /// One thing that people and tools do to what is told: move, forget, make, change, delete.
  void event();
  /// From here on it is told rightly, in one way, and nobody touches it.
  void calm();
  /// Kinds that nobody has installed, as Coverage::views names them.
  const std::set<std::string>& not_installed() const { return not_installed_; }

 private:
  bool is_installed(api::Kind kind) const;
  void create(api::Kind kind);
  void remove(api::Kind kind);
  void label_event();
  void levels_event(api::Kind kind);
  void hyper_event();
  void set_members(const std::string& hyper_node, const std::vector<std::string>& nodes);
  void touch(api::Kind kind, const std::string& name);
  void patch(api::Kind kind, const std::string& name, const Json& patch);

  Rng rng_;
  kube::ApiClient& user_;
  api::Kind source_;  ///< what tells it rightly; kNode: labels alone
  std::set<std::string> not_installed_;
};

}  // namespace muster::sim
