// What the loop knows of Kueue's Workloads, where the cluster has them: why a gang is not admitted.
// Only words follow from it.
#pragma once

#include <optional>
#include <string>

#include "operator/api/kueue.h"
#include "operator/kube/store.h"

namespace muster::runtime {

/// Threads: one.
class KueueBook {
 public:
  KueueBook() : workloads_(api::parse_kueue_workload) {}

  /// The pods of which something else may be said now.
  std::vector<api::ObjectKey> take(const kube::WatchEvent& event) {
    std::vector<api::ObjectKey> pods;
    for (const auto& key : workloads_.apply(event)) {
      const api::KueueWorkload* workload = workloads_.find(key);
      if (workload == nullptr || workload->pod.empty()) continue;
      pods.push_back({key.namespace_name, workload->pod});
    }
    return pods;
  }

  /// Empty: nothing is known.
  std::string says(const api::TrainingJob& job) const {
    if (job.status.kueue_queue.empty()) return "";
    const api::KueueWorkload* workload =
        workloads_.find({job.meta.namespace_name, api::kueue_group_name(job)});
    return workload == nullptr ? "" : workload->says;
  }

 private:
  kube::Store<api::KueueWorkload> workloads_;
};

}  // namespace muster::runtime
