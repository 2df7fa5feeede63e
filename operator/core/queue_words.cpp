#include "operator/core/queue_words.h"

#include <algorithm>
#include <string_view>

#include "common/list_text.h"
#include "operator/core/text.h"

namespace muster::core {
namespace {

constexpr std::size_t kMaxNamesInText = 5;

std::string ordinal(int number) {
  const int tens = number % 100;
  const int ones = number % 10;
  const char* end = tens >= 11 && tens <= 13 ? "th"
                    : ones == 1              ? "st"
                    : ones == 2              ? "nd"
                    : ones == 3              ? "rd"
                                             : "th";
  return std::to_string(number) + end;
}

/// What its user sets lower so that fewer workers are enough for it.
std::string least_field(const WaitingGang& gang) {
  return gang.starts_whole ? "spec.worker.count" : "spec.worker.min";
}

}  // namespace

std::string place_text(int place, const std::string& queue) {
  if (place <= kPlacesInWords) return ordinal(place) + " in queue " + queue;
  return "beyond the " + ordinal(kPlacesInWords) + " place in queue " + queue;
}

std::string why_no_queue(const std::string& queue, const std::vector<Queue>& queues) {
  std::string text = "spec.queueName: there is no TrainingQueue " + queue + "; make it, or name ";
  if (queues.empty()) return text + "none: there are no queues";
  std::vector<std::string> names;
  for (const Queue& one : queues) names.push_back(one.name);
  std::sort(names.begin(), names.end());
  return text + "one that there is (" + list_text(names, kMaxNamesInText) + ")";
}

std::string with_gone_queue(const std::string& told, const std::optional<std::string>& gone) {
  constexpr std::string_view kGone = "; there is no TrainingQueue ";
  const std::string before = told.substr(0, told.find(kGone));
  if (!gone) return told;
  if (gone->empty()) return before;
  return before + std::string(kGone) + *gone +
         " any more: the job keeps its places, in no quota, and does not grow; should it lose "
         "them, it waits until there is one again, or spec.queueName names another";
}

std::string why_not_taken(const Queue& queue, const std::string& namespace_name) {
  if (!queue.closed.empty()) return "queue " + queue.name + " starts no jobs: " + queue.closed;
  if (is_open_to(queue, namespace_name)) return "";
  return "spec.queueName: queue " + queue.name + " takes no jobs of namespace " + namespace_name +
         ", only of " + list_text(queue.namespaces, kMaxNamesInText) +
         "; name another queue, or have the namespace added to the queue's spec.namespaces";
}

std::string why_no_quota(const QuotaLack& lack, int queue, const std::string& cohort,
                         const QuotaLedger& ledger, const WaitingGang& gang, std::int64_t within) {
  std::string text = "needs " + amount_text(lack.resource, lack.wanted) + " " + lack.resource +
                     " of the queue's quota, and " + amount_text(lack.resource, lack.free) +
                     " may be taken now; its jobs hold " + amount_text(lack.resource, lack.held) +
                     ", nominal are " + amount_text(lack.resource, lack.nominal);
  if (!cohort.empty()) text += " and at most " + amount_text(lack.resource, lack.most);
  std::vector<int> borrowers;
  for (const int other : ledger.members_of(ledger.cohort_of(queue))) {
    if (other != queue && ledger.borrowed(other, lack.resource) > 0) borrowers.push_back(other);
  }
  if (!borrowers.empty()) {
    const auto share_of = [&](int other) {
      return ledger.name_of(other) + " " +
             amount_text(lack.resource, ledger.borrowed(other, lack.resource));
    };
    text += "; in cohort " + cohort + " borrow: " + list_text(borrowers, kMaxNamesInText, share_of);
  }
  if (const std::int64_t enough = within - within % gang.together; enough > 0) {
    text += "; its quota would do for " + least_field(gang) + " " +
            std::to_string(std::min<std::int64_t>(enough, gang.min));
  }
  return text;
}

std::string why_never(const QuotaLack& lack, const std::string& queue, const WaitingGang& gang) {
  return "asks for " + amount_text(lack.resource, lack.wanted) + " " + lack.resource +
         " at least, and queue " + queue + " may never hold more than " +
         amount_text(lack.resource, lack.most) + "; lower " + least_field(gang) +
         " or its resources, or raise the queue's quota. It holds nobody up";
}

std::string why_taken_back(const WaitingGang& head, const std::string& resource,
                           std::int64_t amount) {
  return "queue " + head.turn.queue + " takes back " + amount_text(resource, amount) + " " +
         resource + " of its nominal quota for " + head.job.text();
}

std::string why_beyond(const WaitingGang& head) {
  const std::string text = "what is beyond worker.count goes to " + head.job.text() + ", which ";
  if (!head.wish.slots.empty()) return text + "has fewer workers than it wishes for";
  return text + (head.turn.queue.empty() ? "waits for room" : "waits in queue " + head.turn.queue);
}

std::string why_priority(const WaitingGang& head, const QueueTurn& lower) {
  std::string text = head.job.text() + " in queue " + head.turn.queue +
                     " has the higher priority (" + std::to_string(head.turn.priority) + ", not " +
                     std::to_string(lower.priority) + ")";
  if (lower.queue != head.turn.queue) text += ", and queue " + lower.queue + " borrows";
  return text;
}

std::string lost_text(const QueueHolder& holder) {
  const auto processes = static_cast<std::int64_t>(holder.slots.size()) * holder.processes;
  return std::to_string(processes) + (processes == 1 ? " process, " : " processes, ") +
         std::to_string(holder.unsaved.count()) +
         (holder.has_saved ? " s since the last checkpoint" : " s without a checkpoint");
}

std::string makes_room_text(const api::ObjectKey& head,
                            const std::map<api::ObjectKey, TakeBack>& taken) {
  std::vector<std::string> names;
  for (const auto& [job, one] : taken) {
    if (!(one.job == head)) continue;
    names.push_back(job.text() + (one.workers == 0 ? " is preempted"
                                                   : " shrinks to " + std::to_string(one.workers)));
  }
  if (names.empty()) return "; it starts when those are gone that leave now";
  return "; room is made for it: " + list_text(names, kMaxNamesInText);
}

std::string spared_text(const std::vector<std::pair<api::ObjectKey, seconds>>& spared) {
  if (spared.empty()) return "";
  return "; room can be made for it once jobs have run for their least time: " +
         list_text(spared, kMaxNamesInText,
                   [](const auto& one) {
                     return one.first.text() + " " + std::to_string(one.second.count()) + " s";
                   }) +
         " (spec.preemption.minimumRunSeconds of their queue, or what follows a preemption)";
}

std::string why_kept(const api::ObjectKey& first, const std::string& what,
                     const std::string& queue) {
  return what + " is kept for " + first.text() + ", which comes first" +
         (queue.empty() ? "" : " in queue " + queue);
}

std::string why_ahead(const api::ObjectKey& head, seconds waits) {
  return "goes ahead of " + head.text() + ", which has room in " + std::to_string(waits.count()) +
         " s at the latest, because it is over before (spec.activeDeadlineSeconds)";
}

}  // namespace muster::core
