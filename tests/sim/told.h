// What one operator was told by its own watches: that it never goes back but by a list, and of
// where nodes stand; and whether the places that the operator decides on are, by that alone, what
// their jobs require, and nobody else's, and no two jobs get some on one claim. The rules of
// docs/topology.md are read here a second time: nothing of operator/core is asked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/kube/api_client.h"
#include "operator/runtime/applier.h"
#include "operator/runtime/mailbox.h"

namespace muster::sim {

/// What was judged, by all operators of a world.
struct Judged {
  std::int64_t required = 0;  ///< gangs placed as a whole within a required level, on several nodes
  std::int64_t joined = 0;    ///< slots that joined a gang within its level
};

class Told {
 public:
  explicit Told(Judged& judged) : judged_(judged) {}
  void take(const runtime::WatchBatch& batch);
  /// Of a plan that was made of all that was taken until now; empty, or what is wrong with it.
  std::string judge(const runtime::Work& work);
  /// Of an operator that must have seen everything: a sentence about what it has not.
  std::string missing(kube::ApiClient& server) const;

 private:
  using Objects = std::map<std::string, Json>;  ///< by name
  struct Seen {
    Objects objects, incoming;
    bool is_whole = false;      ///< it was listed, or is known not to be there
    std::uint64_t version = 0;  ///< newest that the watch has told since the list
  };
  /// One level of those that a node stands in.
  struct Step {
    std::vector<std::string> names;  ///< what jobs call it
    std::string domain;              ///< told apart by the whole path, and by who tells it
    std::string value;
  };
  using Places = std::map<std::string, std::vector<Step>>;  ///< coarse to fine, by node
  struct Level {
    std::string name, label;
  };

  void go_on(api::Kind kind, Seen& seen, const Json& object);
  const Objects& objects(api::Kind kind) const;
  bool knows_all() const;
  Places places() const;
  void add_labelled(const std::string& teller, const std::vector<Level>& levels,
                    Places& places) const;
  void add_hyper_nodes(Places& places) const;
  std::string judge_claim(const api::TrainingJob& before,
                          const std::vector<api::SlotPlacement>& now) const;
  std::string judge_places(const api::TrainingJob& before,
                           const std::vector<api::SlotPlacement>& now);
  std::string judge_room(const api::TrainingJob& before,
                         const std::vector<api::SlotPlacement>& fresh) const;
  bool holds(const api::TrainingJob& job, const api::SlotPlacement& place) const;
  std::string judge_required(const api::TrainingJob& before,
                             const std::vector<api::SlotPlacement>& fresh,
                             const std::vector<api::SlotPlacement>& stay, const Places& places);

  Judged& judged_;
  std::map<api::Kind, Seen> seen_;
  std::string went_back_;  ///< the first time that a watch did
};

}  // namespace muster::sim
