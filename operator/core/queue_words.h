// The sentences about queues: what a gang waits for, and what would help.
#pragma once

#include <optional>
#include <string>

#include "operator/core/queue_quota.h"
#include "operator/core/schedule.h"

namespace muster::core {

/// "1st in queue research". Far from the first it is said alike of all places, because every job
/// that leaves a queue moves all behind it, and each new word is a write; how long the line is
/// stands in the queue's status.
std::string place_text(int place, const std::string& queue);
/// How far from the first the reason is said in full.
inline constexpr int kPlacesInWords = 10;

std::string why_no_queue(const std::string& queue, const std::vector<Queue>& queues);
/// What a job is told that has its places, with what it has to know of its queue: `gone`, of which
/// there is none any more; empty: there is, and nothing is said of it again; absent: nobody knows,
/// and what is told stays.
std::string with_gone_queue(const std::string& told, const std::optional<std::string>& gone);
/// Why this queue starts no job of that namespace; empty: it does.
std::string why_not_taken(const Queue& queue, const std::string& namespace_name);

/// `within` workers would have room now; `cohort` is the queue's, empty where it is alone.
std::string why_no_quota(const QuotaLack& lack, int queue, const std::string& cohort,
                         const QuotaLedger& ledger, const WaitingGang& gang, std::int64_t within);
std::string why_never(const QuotaLack& lack, const std::string& queue, const WaitingGang& gang);
/// For whom and of what something is taken back.
std::string why_taken_back(const WaitingGang& head, const std::string& resource,
                           std::int64_t amount);
std::string why_beyond(const WaitingGang& head);
std::string why_priority(const WaitingGang& head, const QueueTurn& lower);
/// "3 processes, 12 s since the last checkpoint".
std::string lost_text(const QueueHolder& holder);
/// Of a gang that starts with what is kept for the first of its line.
std::string why_ahead(const api::ObjectKey& head, seconds waits);
/// Who makes room for a head, of those that give something back.
std::string makes_room_text(const api::ObjectKey& head,
                            const std::map<api::ObjectKey, TakeBack>& taken);
/// Who could be preempted for a head, but not yet, and after how long a run.
std::string spared_text(const std::vector<std::pair<api::ObjectKey, seconds>>& spared);
/// What it hears for whom nobody is preempted.
inline constexpr const char* kNotWhileRefused =
    "; nobody is preempted for it for a while, because its pods were refused when it had room last";
/// `queue`: the first one's, where it is another.
std::string why_kept(const api::ObjectKey& first, const std::string& what,
                     const std::string& queue = "");

}  // namespace muster::core
