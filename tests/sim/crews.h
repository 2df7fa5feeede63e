// The workers of the simulation among themselves: who trains with whom, as their sentinels would
// agree on it, and what they say about it. What is true here the operator only hears of.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/messages.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"

namespace muster::sim {

class Crews {
 public:
  using Reaches = std::function<bool(const api::Pod&)>;

  /// One round of a job's sentinels: dead members are left behind, newcomers let in.
  void advance(const api::TrainingJob& job, const std::vector<api::Pod>& pods,
               const Reaches& reaches);
  /// What the worker of this pod says of the membership, if it is a member.
  void tell(ProgressReport& report, const api::Pod& pod, const std::string& uid);
  /// A question of those who see no majority, or of those they do not see.
  std::optional<WitnessRequest> question(const api::TrainingJob& job,
                                         const std::vector<api::Pod>& pods, const Reaches& reaches,
                                         bool other_side);
  /// The witness said yes.
  void go_on(const std::string& uid, const WitnessRequest& request);
  bool is_member(const std::string& uid, const api::Pod& pod) const;
  std::int64_t joins() const { return joins_; }

 private:
  struct Crew {
    int start = -2;
    std::int64_t epoch = 0;
    bool lost = false;
    std::map<int, int> members;  ///< attempt by slot
    std::vector<MembershipChange> changes;
  };
  std::map<std::string, Crew> crews_;  ///< by uid
  std::int64_t joins_ = 0;
};

}  // namespace muster::sim
