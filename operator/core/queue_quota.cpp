#include "operator/core/queue_quota.h"

#include <algorithm>

namespace muster::core {
namespace {

/// Sums of amounts stay below this, so that none overflows.
constexpr std::int64_t kMostAmount = std::int64_t{1} << 61;
constexpr std::int64_t kManyQuotaWorkers = 1'000'000;

std::int64_t sum(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) out = a < 0 ? -kMostAmount : kMostAmount;
  return std::clamp(out, -kMostAmount, kMostAmount);
}

std::int64_t times(std::int64_t amount, std::int64_t workers) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(amount, workers, &out)) {
    out = (amount < 0) != (workers < 0) ? -kMostAmount : kMostAmount;
  }
  return std::clamp(out, -kMostAmount, kMostAmount);
}

}  // namespace

std::int64_t QuotaLedger::Limit::lent_part() const {
  return std::max<std::int64_t>(0, held - kept);
}

std::int64_t QuotaLedger::Limit::reserved_part() const {
  return std::max<std::int64_t>(0, sum(held, reserved) - kept) - lent_part();
}

QuotaLedger::QuotaLedger(const std::vector<Queue>& queues) {
  std::vector<const Queue*> sorted;
  for (const Queue& queue : queues) sorted.push_back(&queue);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Queue* a, const Queue* b) { return a->name < b->name; });
  std::map<std::string, int> cohort_index;
  for (const Queue* queue : sorted) {
    const int number = static_cast<int>(queues_.size());
    if (!index_.emplace(queue->name, number).second) continue;
    const bool is_alone = queue->cohort.empty();
    const int next = static_cast<int>(cohorts_.size());
    const int cohort = is_alone ? next : cohort_index.emplace(queue->cohort, next).first->second;
    if (cohort == next) cohorts_.emplace_back();
    cohorts_[at(cohort)].members.push_back(number);
    Entry entry{queue->name, cohort, std::max(1, queue->weight), {}};
    for (const api::QueueResource& one : queue->quota) {
      const std::int64_t nominal = std::clamp<std::int64_t>(one.nominal, 0, kMostAmount);
      const auto up_to = [&](const auto& limit, std::int64_t otherwise) {
        return limit ? std::clamp<std::int64_t>(*limit, 0, otherwise) : otherwise;
      };
      const std::int64_t lent = is_alone ? 0 : up_to(one.lending_limit, nominal);
      Limit limit;
      limit.nominal = nominal;
      limit.kept = nominal - lent;
      limit.most = sum(nominal, is_alone ? 0 : up_to(one.borrowing_limit, kMostAmount));
      entry.limits.emplace(one.name, limit);
      Pool& pool = cohorts_[at(cohort)].pools[one.name];
      pool.lent = sum(pool.lent, lent);
      pool.nominal = sum(pool.nominal, nominal);
    }
    queues_.push_back(std::move(entry));
  }
}

int QuotaLedger::index_of(const std::string& queue) const {
  const auto found = index_.find(queue);
  return found == index_.end() ? -1 : found->second;
}

void QuotaLedger::set_held(Entry& entry, const std::string& resource, std::int64_t held,
                           std::int64_t reserved) {
  const auto found = entry.limits.find(resource);
  if (found == entry.limits.end()) return;
  Limit& limit = found->second;
  Pool& pool = cohorts_[at(entry.cohort)].pools[resource];
  pool.held -= limit.lent_part();
  pool.reserved -= limit.reserved_part();
  limit.held = held;
  limit.reserved = reserved;
  pool.held = sum(pool.held, limit.lent_part());
  pool.reserved = sum(pool.reserved, limit.reserved_part());
}

void QuotaLedger::charge(int queue, const ResourceAmounts& per_worker, std::int64_t workers) {
  Entry& entry = queues_[at(queue)];
  for (const auto& [resource, amount] : per_worker) {
    const auto found = entry.limits.find(resource);
    if (found == entry.limits.end() || amount <= 0) continue;
    set_held(entry, resource, sum(found->second.held, times(amount, workers)),
             found->second.reserved);
  }
}

void QuotaLedger::reserve(int queue, const ResourceAmounts& per_worker, std::int64_t workers) {
  Entry& entry = queues_[at(queue)];
  for (const auto& [resource, amount] : per_worker) {
    const auto found = entry.limits.find(resource);
    if (found == entry.limits.end() || amount <= 0) continue;
    set_held(entry, resource, found->second.held, times(amount, workers));
  }
}

std::int64_t QuotaLedger::room(const Entry& entry, const std::string& resource, const Limit& limit,
                               Place place) const {
  const Pool& pool = cohorts_[at(entry.cohort)].pools.at(resource);
  const bool behind = place == Place::kBehind;
  const std::int64_t held = sum(limit.held, behind ? limit.reserved : 0);
  const std::int64_t own_part = behind ? limit.reserved_part() : 0;
  const std::int64_t kept = std::max<std::int64_t>(0, limit.kept - held);
  const std::int64_t lent = pool.lent - pool.held - own_part;
  const std::int64_t of_others = place == Place::kAlone ? 0 : pool.reserved - limit.reserved_part();
  const std::int64_t unreserved = lent - of_others;
  const std::int64_t there_is = sum(kept, std::max<std::int64_t>(0, lent));
  // Its own quota is its own, whoever else waits; what is beyond must be nobody's reserve.
  const std::int64_t due =
      std::max(limit.nominal - held, sum(kept, std::max<std::int64_t>(0, unreserved)));
  return std::max<std::int64_t>(0, std::min({there_is, limit.most - held, due}));
}

template <typename Room>
std::int64_t QuotaLedger::least_workers(int queue, const ResourceAmounts& per_worker,
                                        const Room& room) const {
  const Entry& entry = queues_[at(queue)];
  std::int64_t least = kManyQuotaWorkers;
  for (const auto& [resource, limit] : entry.limits) {
    const auto wanted = per_worker.find(resource);
    if (wanted == per_worker.end() || wanted->second <= 0) continue;
    least = std::min(least, std::max<std::int64_t>(0, room(resource, limit)) / wanted->second);
  }
  return least;
}

std::int64_t QuotaLedger::workers_within(int queue, const ResourceAmounts& per_worker,
                                         Place place) const {
  return least_workers(queue, per_worker, [&](const std::string& resource, const Limit& limit) {
    return room(queues_[at(queue)], resource, limit, place);
  });
}

std::int64_t QuotaLedger::workers_within_nominal(int queue,
                                                 const ResourceAmounts& per_worker) const {
  return least_workers(queue, per_worker, [](const std::string&, const Limit& limit) {
    return limit.nominal - limit.held;
  });
}

std::int64_t QuotaLedger::workers_ever(int queue, const ResourceAmounts& per_worker) const {
  return least_workers(queue, per_worker, [&](const std::string& resource, const Limit& limit) {
    return room_ever(queues_[at(queue)], resource, limit);
  });
}

std::int64_t QuotaLedger::room_ever(const Entry& entry, const std::string& resource,
                                    const Limit& limit) const {
  const Pool& pool = cohorts_[at(entry.cohort)].pools.at(resource);
  return std::min(limit.most, sum(limit.kept, pool.lent));
}

double QuotaLedger::share_with(int queue, const ResourceAmounts& per_worker,
                               std::int64_t workers) const {
  const Entry& entry = queues_[at(queue)];
  double share = 0;
  for (const auto& [resource, limit] : entry.limits) {
    const auto wanted = per_worker.find(resource);
    const std::int64_t more =
        wanted == per_worker.end() ? 0 : times(std::max<std::int64_t>(0, wanted->second), workers);
    const std::int64_t beyond = sum(limit.held, more) - limit.nominal;
    const std::int64_t whole = cohorts_[at(entry.cohort)].pools.at(resource).nominal;
    if (beyond <= 0 || whole <= 0) continue;
    share = std::max(share, static_cast<double>(beyond) / static_cast<double>(whole));
  }
  return share / entry.weight;
}

bool QuotaLedger::borrows(int queue, const ResourceAmounts& per_worker) const {
  const Entry& entry = queues_[at(queue)];
  return std::any_of(entry.limits.begin(), entry.limits.end(), [&](const auto& one) {
    const auto taken = per_worker.find(one.first);
    return taken != per_worker.end() && taken->second > 0 && one.second.held > one.second.nominal;
  });
}

template <typename Room>
QuotaLack QuotaLedger::greatest_lack(int queue, const ResourceAmounts& per_worker,
                                     std::int64_t workers, const Room& room) const {
  const Entry& entry = queues_[at(queue)];
  QuotaLack worst;
  std::int64_t fewest = workers;
  for (const auto& [resource, limit] : entry.limits) {
    const auto wanted = per_worker.find(resource);
    if (wanted == per_worker.end() || wanted->second <= 0) continue;
    const std::int64_t free = room(entry, resource, limit);
    if (free / wanted->second >= fewest) continue;
    fewest = free / wanted->second;
    worst = {resource,   times(wanted->second, workers),   free, limit.nominal,
             limit.held, room_ever(entry, resource, limit)};
  }
  return worst;
}

QuotaLack QuotaLedger::lack(int queue, const ResourceAmounts& per_worker, std::int64_t workers,
                            Place place) const {
  return greatest_lack(queue, per_worker, workers,
                       [&](const Entry& entry, const std::string& resource, const Limit& limit) {
                         return room(entry, resource, limit, place);
                       });
}

QuotaLack QuotaLedger::lack_ever(int queue, const ResourceAmounts& per_worker,
                                 std::int64_t workers) const {
  return greatest_lack(queue, per_worker, workers,
                       [&](const Entry& entry, const std::string& resource, const Limit& limit) {
                         return room_ever(entry, resource, limit);
                       });
}

int QuotaLedger::reserved_by(int queue, const std::string& resource) const {
  int found = -1;
  std::int64_t most = 0;
  for (const int other : members_of(cohort_of(queue))) {
    const auto& limits = queues_[at(other)].limits;
    const auto limit = limits.find(resource);
    if (other == queue || limit == limits.end() || limit->second.reserved_part() <= most) continue;
    most = limit->second.reserved_part();
    found = other;
  }
  return found;
}

std::int64_t QuotaLedger::held(int queue, const std::string& resource) const {
  const auto& limits = queues_[at(queue)].limits;
  const auto found = limits.find(resource);
  return found == limits.end() ? 0 : found->second.held;
}

std::int64_t QuotaLedger::borrowed(int queue, const std::string& resource) const {
  const auto& limits = queues_[at(queue)].limits;
  const auto found = limits.find(resource);
  if (found == limits.end()) return 0;
  return std::max<std::int64_t>(0, found->second.held - found->second.nominal);
}

}  // namespace muster::core
