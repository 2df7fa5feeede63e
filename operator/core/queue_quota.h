// Quota: what the jobs of each queue hold, and what each may still take, borrowing from and lending
// to the other queues of its cohort. Amounts only; whose turn it is, is in queue_line.
//
// For one resource let queue q have nominal n, hold u, and keep g of n for itself (n less what it
// lends). A cohort lends P = sum of (n - g), of which sum of max(0, u - g) is used. Then always
//   u <= n + borrowingLimit, and sum of max(0, u - g) <= P,
// so nothing is borrowed that is not lent, and queues that stay within their nominal quota always
// have room together. Where quota was lowered under running jobs, neither may hold; then nothing
// is given until it does.
//
// A queue's *reserve* is what the first of its line waits for. Nobody behind it in the line takes
// of it, and of the other queues nobody who would borrow. Every resource is kept by itself: a job
// that takes of a resource leaves in it all that the first one needs, so that whenever the first
// one would have had room without that job, it has room with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/core/inventory.h"
#include "operator/core/queue.h"

namespace muster::core {

/// What a gang lacks of a resource; words are made from it.
struct QuotaLack {
  std::string resource;
  std::int64_t wanted = 0, free = 0;   ///< what it may take now
  std::int64_t nominal = 0, held = 0;  ///< of its queue
  std::int64_t most = 0;               ///< the queue may ever hold
  bool operator==(const QuotaLack&) const = default;
};

class QuotaLedger {
 public:
  /// Queues of the same name count once, the first; all others are kept in order.
  explicit QuotaLedger(const std::vector<Queue>& queues);

  /// -1: no such queue.
  int index_of(const std::string& queue) const;
  int queues() const { return static_cast<int>(queues_.size()); }
  const std::string& name_of(int queue) const { return queues_[at(queue)].name; }
  /// Queues that lend each other are in one cohort; numbered, a lone queue's is its own.
  int cohort_of(int queue) const { return queues_[at(queue)].cohort; }
  const std::vector<int>& members_of(int cohort) const { return cohorts_[at(cohort)].members; }

  /// Workers begin to hold; below 0, they give back.
  void charge(int queue, const ResourceAmounts& per_worker, std::int64_t workers);
  /// For the first of the queue's line.
  void reserve(int queue, const ResourceAmounts& per_worker, std::int64_t workers);

  /// For whom something is taken. kAlone: as the first, were nobody else the first of a line.
  enum class Place { kAlone, kFirst, kBehind };
  /// How many workers may begin to hold now.
  std::int64_t workers_within(int queue, const ResourceAmounts& per_worker, Place place) const;
  /// How many may without borrowing, whatever the others do.
  std::int64_t workers_within_nominal(int queue, const ResourceAmounts& per_worker) const;
  /// How many ever may, were all others gone.
  std::int64_t workers_ever(int queue, const ResourceAmounts& per_worker) const;

  /// Of what a queue holds and these workers would, the largest part of any resource of the cohort
  /// that is beyond the nominal quota, over the queue's weight.
  double share_with(int queue, const ResourceAmounts& per_worker, std::int64_t workers) const;
  /// Whether the queue holds more than its nominal quota of any resource that these workers take.
  bool borrows(int queue, const ResourceAmounts& per_worker) const;

  /// The resource of which the gang lacks most workers; nothing lacks: `resource` is empty.
  QuotaLack lack(int queue, const ResourceAmounts& per_worker, std::int64_t workers,
                 Place place) const;
  /// The same, were all others gone.
  QuotaLack lack_ever(int queue, const ResourceAmounts& per_worker, std::int64_t workers) const;
  /// Of the other queues that lend each other with this one, that whose first waits for most of
  /// what they lend of the resource; -1: nobody's does.
  int reserved_by(int queue, const std::string& resource) const;
  std::int64_t held(int queue, const std::string& resource) const;
  std::int64_t borrowed(int queue, const std::string& resource) const;

 private:
  struct Limit {
    std::int64_t nominal = 0, most = 0, kept = 0;  ///< most: nominal and what it may borrow
    std::int64_t held = 0, reserved = 0;
    std::int64_t lent_part() const;      ///< what it holds of what the cohort lends
    std::int64_t reserved_part() const;  ///< what its reserve would take of it
  };
  struct Pool {
    std::int64_t lent = 0, held = 0, reserved = 0, nominal = 0;
  };
  struct Entry {
    std::string name;
    int cohort = 0;
    int weight = 1;
    std::map<std::string, Limit> limits;
  };
  struct Cohort {
    std::vector<int> members;
    std::map<std::string, Pool> pools;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  void set_held(Entry& entry, const std::string& resource, std::int64_t held,
                std::int64_t reserved);
  std::int64_t room(const Entry& entry, const std::string& resource, const Limit& limit,
                    Place place) const;
  template <typename Room>
  std::int64_t least_workers(int queue, const ResourceAmounts& per_worker, const Room& room) const;
  std::int64_t room_ever(const Entry& entry, const std::string& resource, const Limit& limit) const;
  template <typename Room>
  QuotaLack greatest_lack(int queue, const ResourceAmounts& per_worker, std::int64_t workers,
                          const Room& room) const;

  std::vector<Entry> queues_;
  std::vector<Cohort> cohorts_;
  std::map<std::string, int> index_;
};

}  // namespace muster::core
