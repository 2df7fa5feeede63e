#include "operator/core/witness.h"

#include <algorithm>
#include <iterator>

#include "operator/core/members.h"
#include "operator/core/status_edit.h"

namespace muster::core {
namespace {

using Slots = std::vector<int>;

struct Known {
  std::int64_t epoch = 0;
  Slots members;
};

/// The newest membership that somebody has told: the witness itself, or a worker of the gang.
Known newest_known(const JobSnapshot& snapshot, const GangView& gang) {
  Known known;
  if (const auto& grant = snapshot.job.status.witness) known = {grant->epoch, grant->members};
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr || !is_credible(snapshot, report->membership_epoch)) continue;
    if (report->membership_epoch > known.epoch) known = {report->membership_epoch, report->members};
  }
  return known;
}

/// Who the members of the asker's epoch are; empty = nobody has told. No other slots may stand for
/// them: a slot that is no member counts as one who is gone, and lets a minority through.
Slots members_of_epoch(const WitnessRequest& request, const Known& known) {
  if (!request.from_members.empty()) return request.from_members;
  if (known.epoch != request.epoch || known.members.empty()) return {};
  Slots slots;
  std::ranges::set_union(request.members, known.members, std::back_inserter(slots));
  return slots;
}

/// Whether a pod of this slot, of whatever attempt, may run. From a node without power nobody ever
/// hears that it does not: what is on a lost node counts as over. If that was only cut off, two
/// sides train the same steps, and their epochs keep them apart.
bool may_run(const JobSnapshot& snapshot, const GangView& gang, int slot) {
  const auto runs = [&](const api::Pod& pod) {
    return !pod.ended() && !pod.termination && !is_lost_node(snapshot, pod.node_name);
  };
  const Member* member = gang.find(slot);
  if (member != nullptr && member->pod != nullptr && runs(*member->pod)) return true;
  return std::any_of(gang.stale.begin(), gang.stale.end(), [&](const api::Pod* pod) {
    return slot_of(*pod, snapshot.job) == slot && runs(*pod);
  });
}

/// Whether one whom `before` does not have may train in a newer membership, and has not told of it
/// to this operator, which began after it did.
bool may_be_ahead(const JobSnapshot& snapshot, const GangView& gang, const Slots& before) {
  return std::ranges::any_of(gang.members, [&](const Member& member) {
    const int slot = member.placement.slot;
    return !is_among(before, slot) && is_member(snapshot, member) &&
           report_of(snapshot, member) == nullptr && may_run(snapshot, gang, slot);
  });
}

bool may_ask(const GangView& gang, const WitnessRequest& request) {
  const Member* asker = gang.find(request.slot);
  const bool is_current = asker != nullptr && asker->placement.attempt == request.attempt;
  return !gang.job_is_old && is_current && is_among(request.members, request.slot) &&
         request.next_epoch > request.epoch &&
         std::all_of(request.members.begin(), request.members.end(),
                     [&](int slot) { return gang.find(slot) != nullptr; });
}

}  // namespace

WitnessVerdict decide_witness(const JobSnapshot& snapshot, const WitnessRequest& request) {
  const api::TrainingJob& job = snapshot.job;
  const GangView gang = view_gang(snapshot);
  const Known known = newest_known(snapshot, gang);
  const WitnessVerdict no{{false, std::max(known.epoch, request.epoch), known.members}, {}};
  if (job.meta.deletion_time || job.status.finished() || !may_ask(gang, request)) return no;
  const api::WitnessGrant asked{request.epoch, request.next_epoch, request.members};
  const WitnessResponse yes{true, request.next_epoch, request.members};
  if (job.status.witness && *job.status.witness == asked) return {yes, {}};
  if (known.epoch > request.epoch) return no;
  // Beyond what the workers could have come to since the operator last decided, it is no epoch.
  if (!is_credible(snapshot, request.next_epoch)) return no;
  const Slots before = members_of_epoch(request, known);
  if (before.empty() || may_be_ahead(snapshot, gang, before)) return no;
  const auto others = std::count_if(before.begin(), before.end(), [&](int slot) {
    return !is_among(request.members, slot) && may_run(snapshot, gang, slot);
  });
  if (2 * others > static_cast<std::ptrdiff_t>(before.size())) return no;
  api::TrainingJobStatus status = job.status;
  status.membership_epoch = std::max(status.membership_epoch, request.next_epoch);
  status.witness = asked;
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  plan.reason = "the witness lets the workers go on to membership epoch " +
                std::to_string(request.next_epoch);
  return {yes, std::move(plan)};
}

}  // namespace muster::core
