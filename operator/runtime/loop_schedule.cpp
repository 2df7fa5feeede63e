// The part of the loop that looks at all jobs at once: what is free, who waits, who holds something
// of a queue, and one pass of the scheduler over them.
#include <algorithm>

#include "common/check.h"
#include "common/contract.h"
#include "operator/api/kueue.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/gang_view.h"
#include "operator/core/queue_words.h"
#include "operator/core/reconcile.h"
#include "operator/runtime/loop.h"

namespace muster::runtime {
namespace {

/// Between two passes so many times what the first has taken: while much happens, passes take a
/// tenth of the thread, and what arrives meanwhile is decided together. At most so long.
constexpr int kPassGap = 9;
constexpr std::chrono::milliseconds kPassGapMost{250};
/// A pod of which so many deletions were refused stays: the last one more than words::kOverdue
/// after the first.
constexpr int kRefusalsOfWhoStays = 4;

/// The job as it is in places that are on their way into its status, where its workers may be of
/// another size. `other` has it then.
const api::TrainingJob& in_size(const api::TrainingJob& job, int size,
                                std::optional<api::TrainingJob>& other) {
  if (job.spec.worker.size == size) return job;
  other = job;
  other->spec.worker = api::with_size(job.spec.worker, size);
  return *other;
}

}  // namespace

bool OperatorLoop::has_placement(const api::TrainingJobStatus& status,
                                 const api::SlotPlacement& placement) {
  return std::any_of(status.placement.begin(), status.placement.end(),
                     [&](const api::SlotPlacement& one) {
                       return one.slot == placement.slot && one.attempt == placement.attempt;
                     });
}

std::vector<core::Assumed> OperatorLoop::assumed_of(const api::ObjectKey& key) const {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr) return {};
  std::vector<core::Assumed> list;
  const api::TrainingJob& job = record->job;
  const auto wish = waiting_.find(key);
  // A slot that waits for another place has given up the one it had.
  const auto is_homeless = [&](int slot) {
    return wish != waiting_.end() &&
           std::binary_search(wish->second.slots.begin(), wish->second.slots.end(), slot);
  };
  for (const auto& placement : job.status.placement) {
    if (placement.node.empty() || job.status.finished()) continue;
    if (is_homeless(placement.slot)) continue;
    const api::Pod* pod =
        pods_.find({key.namespace_name, api::pod_name(job, placement.slot, placement.attempt)});
    // One that has ended holds nothing any more, but the gang may start again in its places.
    // Anybody may make a pod of this name; then the job's own is still to come.
    const bool is_to_come = pod == nullptr || pod->ended() || !core::is_owned(*pod, job);
    if (is_to_come && core::may_have_pod(job, placement)) {
      list.push_back({placement.node, api::pod_resources(job.spec.worker)});
    }
  }
  const auto memory = memory_.find(key);
  if (memory == memory_.end() || !memory->second.decided_places) return list;
  std::optional<api::TrainingJob> other;
  const api::TrainingJob& decided = in_size(job, memory->second.decided_size, other);
  // What has come into status meanwhile is there already.
  for (const auto& placement : *memory->second.decided_places) {
    if (!has_placement(job.status, placement)) {
      list.push_back({placement.node, api::pod_resources(decided.spec.worker)});
    }
  }
  return list;
}

/// Whether it may hold something, or be about to: a place, or a pod that has not ended. Most jobs
/// of a cluster have ended or wait, and are not looked at in each pass.
bool OperatorLoop::may_hold(const api::ObjectKey& key) const {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr) return false;
  const api::TrainingJobStatus& status = record->job.status;
  if (!status.placement.empty() && !status.finished()) return true;
  const auto memory = memory_.find(key);
  if (memory != memory_.end() && memory->second.decided_places) return true;
  const auto pods = pods_of_job_.find(key);
  return pods != pods_of_job_.end() &&
         std::any_of(pods->second.begin(), pods->second.end(),
                     [this](const api::ObjectKey& pod) { return !pods_.find(pod)->ended(); });
}

void OperatorLoop::update_assumed() {
  for (const auto& key : assumed_is_old_) {
    inventory_.promise(key, assumed_of(key));
    gangs_.take(key, running_gang(key));
    if (may_hold(key)) {
      may_hold_.insert(key);
    } else {
      may_hold_.erase(key);
    }
  }
  assumed_is_old_.clear();
}

// ---- Claims of checkpoints

bool OperatorLoop::may_still_write(const api::Pod& pod) const {
  const bool never_runs = pod.held_by_kueue && pod.meta.deletion_time;
  return !pod.ended() && !pod.termination && !never_runs &&
         !core::leaving_slot(pod, 0, options_.clock->wall_now()).is_stuck;
}

/// Of a decision that failed. Where nobody knows whether it took effect it may be stored: two jobs
/// would then write to one claim.
void OperatorLoop::drop_decided_places(const ApplyDone& done, Memory& memory) const {
  const bool had_places = memory.decided_places && !memory.decided_places->empty();
  const ErrorCode code = done.status.error().code();
  const bool is_unknown = code == ErrorCode::kDeadlineExceeded || code == ErrorCode::kUnavailable ||
                          code == ErrorCode::kAborted || code == ErrorCode::kInternal;
  const JobRecord* record = jobs_.find(done.key);
  if (had_places && is_unknown && record != nullptr) {
    memory.doubted = Unseen{record->meta.resource_version, now_};
  }
  memory.decided_places.reset();
}

/// Whether the job of that uid, which may be gone, has places, is about to, or may have without
/// anybody knowing.
bool OperatorLoop::has_places(const api::ObjectKey& key, const std::string& uid) const {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr || record->meta.uid != uid || record->meta.deletion_time) return false;
  const api::TrainingJobStatus& status = record->job.status;
  if (!status.placement.empty() && !status.finished()) return true;
  const auto memory = memory_.find(key);
  if (memory == memory_.end() || memory->second.uid != uid) return false;
  const auto& doubted = memory->second.doubted;
  const bool may_be_stored = doubted && record->meta.resource_version == doubted->version_before &&
                             now_ - doubted->since < kUnseenMost;
  const auto& decided = memory->second.decided_places;
  return may_be_stored || (decided && !decided->empty());
}

/// Whether pods of the job of that uid, which may be gone, are still there; `but`: none of these
/// names.
bool OperatorLoop::has_writers(const api::ObjectKey& key, const std::string& uid,
                               const std::set<std::string>& but) const {
  const auto own = pods_of_job_.find(key);
  return own != pods_of_job_.end() &&
         std::any_of(own->second.begin(), own->second.end(), [&](const api::ObjectKey& pod_key) {
           const api::Pod& pod = *pods_.find(pod_key);
           return pod.meta.controller()->uid == uid && !but.contains(pod.meta.name) &&
                  may_still_write(pod);
         });
}

/// Names of the pods of the places that are in the status of the job of that uid.
std::set<std::string> OperatorLoop::placed_pods(const api::ObjectKey& key,
                                                const std::string& uid) const {
  std::set<std::string> names;
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr || record->meta.uid != uid) return names;
  for (const api::SlotPlacement& one : record->job.status.placement) {
    names.insert(api::pod_name(record->job, one.slot, one.attempt));
  }
  return names;
}

/// Of the job of that name, and of those workers that have not left yet of jobs that had it before,
/// or that began when it named another claim.
std::vector<core::ClaimUse> OperatorLoop::claim_uses_of(const api::ObjectKey& key) const {
  const JobRecord* record = jobs_.find(key);
  auto now = record == nullptr ? std::nullopt : core::claim_use_of(record->job);
  // Whose the job's pods are that have no place: the claim that it names, or those before.
  bool has_left_some = false, had_this = false;
  std::vector<core::ClaimUse> uses;
  for (core::ClaimUse use : claim_uses_.of(key)) {
    if (use.hold != core::ClaimHold::kWorkers) continue;
    const bool is_of_job = now && use.uid == now->uid;
    if (is_of_job && use.claim == now->claim) {
      had_this = true;
      continue;
    }
    // What workers have mounted they have until they are gone, whatever becomes of their job. It
    // names another claim only while it has no places, so those that have one are of that.
    if (!has_writers(key, use.uid, placed_pods(key, use.uid))) continue;
    has_left_some = has_left_some || is_of_job;
    use.is_over = true;
    uses.push_back(std::move(use));
  }
  if (!now) return uses;
  const bool may_be_left = had_this || !has_left_some;
  if (has_places(key, now->uid) || (may_be_left && has_writers(key, now->uid))) {
    now->hold = core::ClaimHold::kWorkers;
  }
  const bool is_over = now->is_over && now->hold != core::ClaimHold::kWorkers;
  if (!is_over) uses.push_back(*std::move(now));
  return uses;
}

/// Whoever waits for what has changed is looked at again.
void OperatorLoop::update_claim_uses() {
  for (const api::ObjectKey& key : std::exchange(claim_uses_are_old_, {})) {
    for (const api::ObjectKey& job : claim_uses_.take(key, claim_uses_of(key))) {
      queue_.add_after_back_off(job, now_);
    }
  }
}

void OperatorLoop::add_claim_of(core::JobSnapshot& snapshot) {
  update_claim_uses();
  const core::ClaimUse* other = claim_uses_.before(snapshot.job);
  if (other == nullptr) return;
  // That a pod leaves in time no more is told by nobody.
  claim_uses_are_old_.insert(other->job);
  update_claim_uses();
  other = claim_uses_.before(snapshot.job);
  if (other != nullptr) snapshot.claim_of = *other;
}

void OperatorLoop::check_inventory(core::Inventory& kept,
                                   const core::ClusterSnapshot& cluster) const {
  core::ClusterSnapshot anew;
  for (const auto& [key, node] : nodes_.all()) anew.nodes.push_back(&node);
  for (const auto& [key, pod] : pods_.all()) anew.pods.push_back(&pod);
  for (const auto& [key, record] : jobs_.all()) {
    const auto assumed = assumed_of(key);
    anew.assumed.insert(anew.assumed.end(), assumed.begin(), assumed.end());
  }
  std::vector<core::SendingGang> sending;
  for (const auto& [key, record] : jobs_.all()) {
    MUSTER_CHECK_MSG(may_hold_.contains(key) == may_hold(key), key.text());
    if (const auto gang = running_gang(key)) sending.push_back(core::sending_gang(*gang, kept));
  }
  MUSTER_CHECK(std::ranges::equal(
      sending, *cluster.sending, [](const auto& made, const auto* held) { return made == *held; }));
  anew.topology = cluster.topology;
  const std::string difference = kept.difference_from(core::inventory_of(anew));
  MUSTER_CHECK_MSG(difference.empty(), difference);
}

core::StorageSnapshot OperatorLoop::storage() const {
  core::StorageSnapshot storage;
  for (const auto& [key, claim] : claims_.all()) storage.claims.emplace(key, &claim);
  for (const auto& [key, volume] : volumes_.all()) storage.volumes.push_back(&volume);
  storage.nodes = inventory_.nodes();
  return storage;
}

/// Where nodes stand, for a job whose step is foretold. What is free is added up with it, whether
/// anybody waits or not: until then each word of a node counts as news of where it stands, and
/// would have all nodes read again for the next job.
std::shared_ptr<const core::Topology> OperatorLoop::topology_of_forecast() {
  std::shared_ptr<const core::Topology> topology = topology_book_.topology(inventory_);
  if (!topology) return topology;
  const core::KeptInventory::Asked kept = inventory_.inventory(topology);
  if (kept.remade && options_.metrics != nullptr) {
    options_.metrics->on_inventory_remade(*kept.remade);
  }
  return topology;
}

void OperatorLoop::run_schedule() {
  schedule_is_old_ = false;
  const auto taken_before = std::exchange(taken_, {});
  schedule_due_.reset();
  const WallTime wall_now = options_.clock->wall_now();
  if (waiting_.empty() && !queue_book_.is_any_spent(wall_now)) return;
  const MonoTime began = options_.clock->mono_now();
  core::ClusterSnapshot cluster;
  std::vector<std::pair<const JobRecord*, const core::PlaceWish*>> order;
  for (const auto& [key, wish] : waiting_) {
    const JobRecord* record = jobs_.find(key);
    if (record != nullptr) order.emplace_back(record, &wish);
  }
  // Those of one second stay in the order of their names.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first->meta.creation_time < b.first->meta.creation_time;
  });
  update_claim_uses();
  cluster.gangs.reserve(order.size());
  std::optional<core::VolumeReach> volumes;
  const bool awaits_queues = options_.sees_queues && queue_book_.are_awaited();
  for (const auto& [record, wish] : order) {
    // Its claim is another's by now; it hears so when it is looked at, and has no turn before.
    if (wish->slots.empty() && claim_uses_.before(record->job) != nullptr) continue;
    core::WaitingGang gang = waiting_gang(record->job, *wish, volumes);
    const bool asks = api::topology_wanted(record->job).asks();
    if (asks && options_.sees_topologies && !topology_book_.synced()) continue;
    if (awaits_queues && wish->slots.empty()) continue;
    if (gang.turn.queue.empty() || queue_book_.synced()) cluster.gangs.push_back(std::move(gang));
  }
  update_assumed();
  cluster.topology = topology_book_.topology(inventory_);
  const core::KeptInventory::Asked kept = inventory_.inventory(cluster.topology);
  cluster.inventory = &kept.inventory;
  cluster.sending = gangs_.on(kept.inventory);
  if (options_.checks_inventory) check_inventory(kept.inventory, cluster);
  cluster.queues = queue_book_.queues(wall_now);
  cluster.holders = queue_holders();
  cluster.leaving = leaving_but_of(cluster.holders);
  auto [verdicts, taken, look_again] = core::schedule(cluster);
  held_ = std::move(cluster.holders);
  const MonoTime ended = options_.clock->mono_now();
  schedule_from_ = ended + std::min<MonoTime::duration>(kPassGap * (ended - began), kPassGapMost);
  if (options_.metrics != nullptr) {
    options_.metrics->on_scheduled(std::chrono::duration<double>(ended - began).count());
    if (kept.remade) options_.metrics->on_inventory_remade(*kept.remade);
  }
  add_topology_notes(verdicts);
  add_queue_notes(verdicts);
  for (const auto& [key, verdict] : verdicts) {
    const auto before = verdicts_.find(key);
    if (before == verdicts_.end() || !(before->second == verdict))
      queue_.add_after_back_off(key, now_);
  }
  verdicts_ = std::move(verdicts);
  // One that could not be written waits for its back-off: each try makes schedule think otherwise
  // for a moment, and while the watch is late that would be one write after the other.
  for (const auto& [key, one] : taken) {
    const auto before = taken_before.find(key);
    if (before == taken_before.end() || !(before->second == one))
      queue_.add_after_back_off(key, now_);
  }
  taken_ = std::move(taken);
  if (look_again) schedule_due_ = now_ + *look_again;
}

// ---- Queues

void OperatorLoop::take_queues(const kube::WatchEvent& event, api::Kind kind) {
  if (queue_book_.take(event, kind)) schedule_is_old_ = true;
  if (!options_.sees_queues || !queue_book_.are_others()) return;
  for (const auto& [key, record] : jobs_.all()) {
    const auto* admitted = record.job.status.condition(std::string(core::words::kAdmitted));
    if (admitted == nullptr || admitted->status != "True" || record.job.status.finished()) continue;
    const auto gone = queue_book_.gone_queue_of(record.job);
    if (core::with_gone_queue(admitted->message, gone) != admitted->message) look_again_at(key);
  }
}

core::WaitingGang OperatorLoop::waiting_gang(const api::TrainingJob& job,
                                             const core::PlaceWish& wish,
                                             std::optional<core::VolumeReach>& volumes) const {
  core::WaitingGang gang = core::gang_of(job, wish);
  if (options_.sees_queues) gang.turn = queue_book_.turn_of(job, !wish.slots.empty());
  if (options_.sees_volumes && core::names_claims(job)) {
    if (!volumes) volumes.emplace(storage());
    gang.volumes = volumes->limits(job);
  }
  if (!options_.sees_nodes) gang.unplaced = true;
  gang.nodes_may_come = options_.nodes_may_come;
  if (const auto memory = memory_.find(gang.job); memory != memory_.end()) {
    gang.avoid = memory->second.avoid.at(now_);
    gang.refused_for =
        std::max(seconds(0), std::chrono::ceil<seconds>(memory->second.preempts_from - now_));
  }
  return gang;
}

/// Nothing: it shares the network, and switches, with nobody.
std::optional<core::RunningGang> OperatorLoop::running_gang(const api::ObjectKey& key) const {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr) return std::nullopt;
  const api::TrainingJob& job = record->job;
  const auto memory = memory_.find(key);
  const bool is_decided = memory != memory_.end() && memory->second.decided_places;
  const auto& places = is_decided ? *memory->second.decided_places : job.status.placement;
  const auto waits = waiting_.find(key);
  const bool waits_for_all =
      waits != waiting_.end() && waits->second.slots.empty() && !waits->second.not_yet;
  // One alone sends nothing, but may hold GPUs of a switch that others share.
  const std::size_t least = job.spec.worker.resources.gpus > 0 ? 1 : 2;
  if (places.size() < least || job.status.finished() || waits_for_all) return std::nullopt;
  std::optional<api::TrainingJob> other;
  return core::running_gang(is_decided ? in_size(job, memory->second.decided_size, other) : job,
                            places);
}

/// On a node that is away: nobody can end the pod, and the node's resources are nobody's.
bool OperatorLoop::is_cut_off(const api::Pod& pod) const {
  if (!options_.sees_nodes || pod.node_name.empty()) return false;
  const api::Node* node = nodes_.find({"", pod.node_name});
  return node == nullptr || (!node->ready && ready_nodes_ > 0);
}

std::vector<core::QueueHolder> OperatorLoop::queue_holders() const {
  std::vector<core::QueueHolder> holders;
  if (queue_book_.empty()) return holders;
  for (const api::ObjectKey& key : may_hold_) {
    const JobRecord& record = *jobs_.find(key);
    if (record.job.spec.managed_by != contract::kManagedBy) continue;
    const auto memory = memory_.find(key);
    const bool is_decided = memory != memory_.end() && memory->second.decided_places;
    const auto& places = is_decided ? *memory->second.decided_places : record.job.status.placement;
    // Until a start is in its status, that names the queue of the one before.
    const bool starts_anew = record.job.status.placement.empty() && !places.empty();
    const core::QueueTurn turn = queue_book_.turn_of(record.job, !starts_anew);
    if (turn.queue.empty()) continue;
    std::vector<const api::Pod*> pods;
    const auto waits = waiting_.find(key);
    // Who waits for a whole gang has waited for what was to be waited for: what is still there is
    // on nodes that cannot end it.
    const bool may_leave =
        waits == waiting_.end() || !waits->second.slots.empty() || waits->second.not_yet;
    if (const auto own = pods_of_job_.find(key); may_leave && own != pods_of_job_.end()) {
      for (const auto& pod : own->second) pods.push_back(pods_.find(pod));
      std::erase_if(pods, [&](const api::Pod* pod) {
        return is_cut_off(*pod) || !core::is_owned(*pod, record.job);
      });
    }
    std::optional<api::TrainingJob> other;
    const api::TrainingJob& job =
        is_decided ? in_size(record.job, memory->second.decided_size, other) : record.job;
    auto holder = core::holder_of(job, turn, places, pods, options_.clock->wall_now());
    if (!holder) continue;
    if (memory != memory_.end()) {
      holder->shrinks_to = memory->second.shrinks_to;
      note_who_stays(record, memory->second, pods, *holder);
    }
    if (record.job.status.cost && queue_book_.has_budget(turn.queue)) {
      const auto cost =
          core::cost_until(*record.job.status.cost, options_.prices, options_.clock->wall_now());
      holder->rate_per_hour = cost.rate_per_hour;
      holder->currency = cost.currency;
    }
    // A slot that waits for another place has given up the one it had.
    for (core::HeldSlot& slot : holder->slots) {
      const bool is_homeless =
          waits != waiting_.end() && !is_decided &&
          std::binary_search(waits->second.slots.begin(), waits->second.slots.end(), slot.slot);
      if (is_homeless) slot.node.clear();
    }
    holders.push_back(std::move(*holder));
  }
  for (const core::QueueHolder& before : held_) {
    const JobRecord* record = jobs_.find(before.job);
    if (record != nullptr && record->meta.uid == before.uid) continue;
    core::QueueHolder gone = before;
    gone.slots.clear();
    gone.leaving = leaving_of(gone);
    gone.comes_back = false;
    if (!gone.leaving.empty()) holders.push_back(std::move(gone));
  }
  return holders;
}

/// Nobody counts on the room of pods that may not be deleted. A leader that does not know of them
/// yet learns it by trying.
void OperatorLoop::note_who_stays(const JobRecord& record, const Memory& memory,
                                  const std::vector<const api::Pod*>& pods,
                                  core::QueueHolder& holder) {
  for (const api::Pod* pod : pods) {
    const auto refusal = memory.refusals.find(pod->meta.uid);
    if (refusal == memory.refusals.end()) continue;
    if (refusal->second.times < kRefusalsOfWhoStays) continue;
    for (core::HeldSlot& one : holder.leaving) {
      if (one.slot == core::slot_of(*pod, record.job)) one.is_stuck = true;
    }
  }
}

/// Of a job that is gone, whose pods nobody knows by their slots any more. Another one may have its
/// name.
std::vector<core::HeldSlot> OperatorLoop::leaving_of(const core::QueueHolder& gone) const {
  std::vector<core::HeldSlot> leaving;
  const auto own = pods_of_job_.find(gone.job);
  if (own == pods_of_job_.end()) return leaving;
  for (const auto& key : own->second) {
    const api::Pod& pod = *pods_.find(key);
    const bool is_its = pod.meta.controller()->uid == gone.uid;
    if (!is_its || pod.ended() || pod.termination || is_cut_off(pod)) continue;
    const int number = static_cast<int>(leaving.size());
    leaving.push_back(core::leaving_slot(pod, number, options_.clock->wall_now()));
  }
  return leaving;
}

/// What jobs hear that ask for topology while it is not known.
void OperatorLoop::add_topology_notes(std::map<api::ObjectKey, core::GangVerdict>& verdicts) const {
  const std::string why = options_.sees_topologies ? topology_book_.why_unknown(now_) : "";
  if (why.empty()) return;
  for (const auto& [key, wish] : waiting_) {
    const JobRecord* record = jobs_.find(key);
    if (record == nullptr || !api::topology_wanted(record->job).asks()) continue;
    verdicts[key] = core::GangVerdict{std::nullopt, why, wish.slots};
  }
}

/// What jobs hear whose queue is not known, or not heeded here.
void OperatorLoop::add_queue_notes(std::map<api::ObjectKey, core::GangVerdict>& verdicts) const {
  if (options_.sees_queues && queue_book_.synced()) return;
  for (const auto& [key, wish] : waiting_) {
    const JobRecord* record = jobs_.find(key);
    if (record == nullptr || record->job.spec.queue_name.empty()) continue;
    const auto found = verdicts.find(key);
    if (found != verdicts.end() && found->second.placement && !options_.sees_queues) {
      std::string& why = found->second.placement->why;
      why += why.empty() ? "" : "; ";
      why += "spec.queueName is not heeded: this operator sees no queues";
    }
    if (!options_.sees_queues) continue;
    const std::string why = queue_book_.why_unknown(now_);
    if (!why.empty()) verdicts[key] = core::GangVerdict{std::nullopt, why, wish.slots};
  }
}

void OperatorLoop::write_queues() {
  if (!options_.sees_queues || !queue_book_.synced()) return;
  update_assumed();
  std::map<std::string, int> waiting;
  for (const auto& [key, wish] : waiting_) {
    const JobRecord* record = jobs_.find(key);
    const bool waits_to_start = wish.slots.empty() && !wish.not_yet;
    if (record != nullptr && waits_to_start) ++waiting[queue_book_.queue_of(record->job)];
  }
  std::vector<core::QueueHolder> holders = queue_holders();
  for (Work& work : queue_book_.writes(now_, options_.clock->wall_now(), holders, waiting)) {
    options_.executor->execute(std::move(work));
  }
  held_ = std::move(holders);
  if (options_.metrics != nullptr) options_.metrics->on_queues(queue_book_.figures());
}

/// A restart that could not be written: it has its places still, and would be kept room beside
/// them.
void OperatorLoop::drop_wish_beside_places(const api::ObjectKey& key) {
  const auto waits = waiting_.find(key);
  if (waits == waiting_.end() || !waits->second.not_yet) return;
  const JobRecord* record = jobs_.find(key);
  if (record != nullptr && !record->job.status.placement.empty()) waiting_.erase(waits);
}

void OperatorLoop::note_waiting(const api::ObjectKey& key, const core::JobSnapshot& snapshot,
                                Memory& memory) {
  if (const int least = core::shrinks_to(snapshot); memory.shrinks_to != least) {
    memory.shrinks_to = least;
    schedule_is_old_ = true;
  }
  const auto wish = core::wanted_places(snapshot);
  if (!wish) {
    if (const auto waits = waiting_.find(key); waits != waiting_.end()) {
      // What was kept for a whole gang is for others now.
      if (waits->second.slots.empty()) schedule_is_old_ = true;
      waiting_.erase(waits);
      verdicts_.erase(key);
      assumed_is_old_.insert(key);  // slots that waited for another place have theirs again
      queue_book_.touch();
    }
    return;
  }
  const auto [found, is_new] = waiting_.try_emplace(key, *wish);
  if (!is_new && found->second == *wish) return;
  found->second = *wish;
  verdicts_.erase(key);  // it is about another wish
  assumed_is_old_.insert(key);
  schedule_is_old_ = true;
  queue_book_.touch();
}

}  // namespace muster::runtime
