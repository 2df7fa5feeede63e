// Pods that leave, of whomever: nobody is asked to give up room for another that is on its way
// already.
#include <algorithm>

#include "operator/core/rooms.h"
#include "operator/runtime/loop.h"

namespace muster::runtime {

void OperatorLoop::note_leaving(const api::ObjectKey& pod_key) {
  const api::Pod* pod = pods_.find(pod_key);
  // One whose worker has ended is deleted, where others run on in it.
  const bool leaves = pod != nullptr && !pod->ended() &&
                      (pod->meta.deletion_time || (pod->termination && pod->is_of_job()));
  if (leaves) {
    leaving_.insert(pod_key);
  } else {
    leaving_.erase(pod_key);
  }
}

/// Once: jobs that were gone before this operator led, of which only their pods tell.
void OperatorLoop::know_gone_jobs() {
  knows_gone_jobs_ = true;
  std::vector<const api::Pod*> orphans;
  for (const auto& [key, job] : job_of_pod_) {
    const api::Pod* pod = pods_.find(key);
    const JobRecord* record = jobs_.find(job);
    const bool is_there = record != nullptr && record->meta.uid == pod->meta.controller()->uid;
    if (!is_there) orphans.push_back(pod);
  }
  held_ = core::holders_of_gone(orphans, queue_book_.queues(options_.clock->wall_now()));
}

/// Whether a job that goes on has the pod's place: another pod comes there.
bool OperatorLoop::keeps_place(const api::Pod& pod, const api::ObjectKey& key) const {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr) return false;
  const api::TrainingJob& job = record->job;
  if (job.status.finished() || job.spec.suspend || job.meta.deletion_time) return false;
  return std::any_of(job.status.placement.begin(), job.status.placement.end(),
                     [&](const api::SlotPlacement& one) {
                       return api::pod_name(job, one.slot, one.attempt) == pod.meta.name;
                     });
}

/// What they hold that are no pods of `holders`, which count their own.
std::vector<core::Assumed> OperatorLoop::leaving_but_of(
    const std::vector<core::QueueHolder>& holders) const {
  std::vector<core::Assumed> leaving;
  // Who starts again waits for its own in any case.
  const bool is_awaited = std::any_of(waiting_.begin(), waiting_.end(),
                                      [](const auto& one) { return one.second.not_yet; });
  if (queue_book_.empty() && !is_awaited) return leaving;
  std::set<api::ObjectKey> counted;
  for (const core::QueueHolder& holder : holders) counted.insert(holder.job);
  const WallTime now = options_.clock->wall_now();
  for (const api::ObjectKey& key : leaving_) {
    const api::Pod& pod = *pods_.find(key);
    const std::string& node = core::node_of(pod);
    const bool is_stuck = is_cut_off(pod) || core::leaving_slot(pod, 0, now).is_stuck;
    if (node.empty() || is_stuck) continue;
    const auto job = job_of_pod_.find(key);
    const bool is_of_job = job != job_of_pod_.end();
    if (is_of_job && (counted.contains(job->second) || keeps_place(pod, job->second))) continue;
    leaving.push_back({node, pod.requests});
  }
  return leaving;
}

}  // namespace muster::runtime
