// What `muster prove` does to a job and how it judges: pure functions of a seed and of two records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_record.h"
#include "common/clock.h"
#include "common/messages.h"

namespace muster::cli {

enum class Blow {
  kResize,          ///< spec.worker.count becomes `size`
  kKillTrainer,     ///< SIGKILL of a trainer process: its sentinel starts another
  kKillWorker,      ///< SIGKILL of a whole worker: the operator makes another
  kFreezeTrainer,   ///< SIGSTOP of a trainer, SIGCONT after `lasts`
  kFreezeWorker,    ///< the same of a whole worker: to the others as silent as behind a cut network
  kFreezeSentinel,  ///< of a sentinel alone: as if cut off, while its trainers make steps
  kLeave,           ///< SIGTERM of a worker: it hands over and leaves, another comes
};

struct Disturbance {
  double share = 0;  ///< of all steps, after which it comes
  Blow blow = Blow::kResize;
  std::uint64_t choice = 0;  ///< which of the workers there are: the (choice mod their number)-th
  int size = 0;
  milliseconds lasts{0};
};

/// As many restarts as a job may have at most (spec.restart.maxRestarts): each kill of a whole
/// worker may cost one.
inline constexpr int kRestartsOfProof = 1'000;
/// Every second one is of a whole worker.
inline constexpr int kMaxKills = 2 * kRestartsOfProof;

bool is_kill(const Disturbance& disturbance);

/// Spread over most of the steps, `kills` of them deaths of every kind in turn, and between them a
/// resize through `sizes` in random order, a freeze or a leave. Same arguments, same plan.
std::vector<Disturbance> plan_disturbances(std::uint64_t seed, const std::vector<int>& sizes,
                                           int kills);

/// "SIGKILL the trainer of worker 2".
std::string describe(const Disturbance& disturbance, int slot);

/// How long training stood still, for each membership that came out of changes the longest of them
/// all.
std::vector<std::int64_t> stalls_of(const std::vector<MembershipChange>& changes);

/// Tells whether workers make steps. Which ones does not count: a run that trains again from a
/// checkpoint makes steps that it had made.
class SignsOfLife {
 public:
  /// Whether its worker told of another step the last time, or tells of one for the first time.
  bool take(const ProgressReport& report);

 private:
  std::map<int, std::int64_t> last_;  ///< step by slot: as many as there are workers
};

struct Verdict {
  bool is_equal = false;
  std::int64_t compared_steps = 0;
  std::string sentence;
};

/// What both runs have, with the same bytes.
struct SameFiles {
  bool model = false;
  bool optimizer = false;  ///< its state after the last step
};

/// Equal when both have the same steps with the same SHA-256 of the parameters, each step once, and
/// the same files; else what differs first.
Verdict compare(const RunRecord& calm, const RunRecord& disturbed, SameFiles same);

}  // namespace muster::cli
