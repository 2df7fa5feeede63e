// The rest of a cluster in one thread: a scheduler that counts, kubelets and workers, nodes that
// fall silent, users and other controllers that meddle. Everything is drawn from one seed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "common/rng.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/training_queue.h"
#include "operator/embedded/api_server.h"
#include "operator/kube/api_client.h"
#include "tests/sim/crews.h"
#include "tests/sim/racks.h"

namespace muster::sim {

inline constexpr const char* kNamespace = "default";
/// Of a node, or of a rack of two.
inline constexpr int kNodeCpus = 4;
/// A claim whose volume lies on one node.
inline constexpr const char* kDisk = "disk";
inline constexpr const char* kDiskNode = "a";

/// What a scheduler sends that gives a pod its node.
kube::HttpRequest binding_request(const api::Pod& pod, const std::string& node);

class Cluster {
 public:
  /// With `drains` there is more room, and a job that has nobody to spare.
  Cluster(std::uint64_t seed, bool drains, ManualClock& clock, embedded::ApiServer& server);

  /// One thing that clusters do: bind, start, end, fail, evict, lose a node.
  void event();
  /// One thing that people do: suspend, resume, scale, delete, meddle.
  void user_event();
  /// Another least size of a job that trains.
  void least_event();
  /// Nodes are cordoned, in some clusters tainted, emptied as far as budgets allow, and given back.
  void drain_event();
  /// Where nodes stand is told, in some clusters, and jobs ask for it.
  bool has_racks() const { return racks_.has_value(); }
  void racks_event();
  /// Kueue makes a Workload, says something in it, or deletes it.
  void kueue_event();
  /// Kinds that nobody has installed.
  std::set<std::string> not_installed() const;
  /// Somebody else writes the job of this path.
  void foreign_write(const std::string& path);
  /// Whatever a worker may say, and may not.
  ProgressReport report();
  /// What all workers say that speak of their membership.
  std::vector<ProgressReport> honest_reports();
  /// A question to the witness, with the uid of the job it is about.
  std::optional<std::pair<std::string, WitnessRequest>> question();
  void go_on(const std::string& uid, const WitnessRequest& request) { crews_.go_on(uid, request); }
  std::int64_t joins() const { return crews_.joins(); }

  /// From here on everything does its part: nodes are there, jobs may run.
  void calm();
  /// One round of a cluster that does its part; every running worker ends with 0.
  void good_round();
  /// One in which all train on, while somebody empties one node after the other, as kubectl drain
  /// does. What went wrong; empty: nothing.
  std::string drain_round();
  /// How many nodes were emptied so, and how many of them a job has kept that says so.
  int emptied() const { return emptied_; }
  int kept() const { return kept_; }
  /// How many nodes went away under workers that had not ended.
  int lost() const { return lost_; }

  std::vector<api::Pod> pods() const;
  std::vector<api::TrainingJob> jobs() const;
  std::vector<api::TrainingQueue> queues() const;
  /// Names of all disruption budgets, and the uids of the jobs they are of.
  std::map<std::string, std::string> budgets() const;
  /// All objects that an operator writes, as they are read.
  std::string everything() const;
  /// Jobs whose status somebody else has written, or that may fail by their spec.
  bool may_fail(const std::string& uid) const { return may_fail_.contains(uid); }
  bool was_forged(const std::string& uid) const { return forged_.contains(uid); }
  kube::ApiClient& user() { return *user_; }
  void create_job(const std::string& name);

 private:
  struct NodeState {
    bool answers = true;
    bool exists = true;
    bool closed = false;   ///< to whom is not there, because somebody empties it
    bool refuses = false;  ///< its scheduler has a reason that we do not know
    MonoTime silent_since{};
  };

  /// What was read last, and the server's version then: reading it again is most of the work.
  template <typename Object>
  struct Seen {
    std::optional<std::uint64_t> version;
    std::vector<Object> objects;
  };

  void create_node(const std::string& name);
  const std::vector<std::string>& node_names() const;
  Json drawn_topology();
  void create_queue(const std::string& name);
  void create_priority();
  void create_disk();
  void queue_event();
  void count_event(const std::string& job);
  void priority_event();
  void disk_event();
  void touch(api::Kind kind, const api::ObjectKey& key);
  void set_ready(const std::string& name, bool ready);
  void node_event();
  void close_node(const std::string& name, bool on);
  bool lets_go(const api::Pod& pod) const;
  std::string empty_node();
  std::string why_not_emptied(const std::vector<api::Pod>& left);
  std::string evict_if_let(const api::Pod& pod);
  bool is_at_end(const api::Pod& pod) const;
  int training(const std::string& uid) const;
  void do_part(bool ends);
  void tell_silent_nodes();
  void bind(const api::Pod& pod);
  void refuse(const api::Pod& pod);
  void run(const api::Pod& pod);
  void end(const api::Pod& pod, int code, const std::string& message);
  void leave(const api::Pod& pod);
  void finish(const api::Pod& pod);
  void evict(const api::Pod& pod);
  void meddle(const std::string& job);
  bool can_act(const api::Pod& pod) const;
  void advance_crews();
  bool hears(const api::Pod& pod) const;
  bool is_elastic(const api::Pod& pod) const;
  std::map<std::string, int> used() const;
  const api::Pod* any_pod();
  void patch(api::Kind kind, const api::ObjectKey& key, const std::string& subresource,
             const Json& patch);
  void patch_spec(const std::string& job, const Json& spec);
  int code_of_failure(const api::Pod& pod);

  mutable Seen<api::Pod> seen_pods_;
  mutable Seen<api::TrainingJob> seen_jobs_;
  const bool drains_;
  const bool taints_;  ///< who empties nodes cordons none: a taint says so, as an autoscaler's does
  Rng rng_;
  Rng kueue_rng_;
  ManualClock& clock_;
  embedded::ApiServer& server_;
  std::unique_ptr<kube::ApiClient> user_;
  std::optional<Racks> racks_;
  int node_cpus_ = kNodeCpus;
  std::map<std::string, NodeState> nodes_;
  std::vector<std::string> names_{"x", "y", "z", "poor"};
  std::vector<api::Pod> seen_;
  std::set<std::string> may_fail_, forged_;  ///< uids
  std::map<std::string, std::int64_t> steps_;
  Crews crews_;
  int good_rounds_ = 0;
  std::set<std::string> cut_;      ///< names of pods that the others do not hear
  std::set<std::string> elastic_;  ///< uids of jobs whose workers speak of memberships
  std::string emptying_;           ///< the node that is being emptied; empty: none
  std::size_t next_to_empty_ = 0;
  int drain_rounds_ = 0, rounds_emptying_ = 0, emptied_ = 0, kept_ = 0, lost_ = 0;
};

}  // namespace muster::sim
