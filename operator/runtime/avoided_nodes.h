// Nodes that a job's next start does without for a while, because they let no worker in, started
// none or ended one twice.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"

namespace muster::runtime {

/// Of one job. Each time that a node is avoided again it is for twice as long, up to an hour: so a
/// gang comes to other nodes in the end, and one that trains does not try a broken node every two
/// minutes. A node is forgiven when a worker runs there that was placed after the one that failed.
class AvoidedNodes {
 public:
  /// `failed`: nodes, and the attempt that failed there. It is told again and again, while others
  /// of the gang come and go, and is one failure, also once the node may be used again. Whether any
  /// was told for the first time.
  bool add(const std::map<std::string, int>& failed, MonoTime now);

  /// Whether some may be used again since the last call.
  bool end_those_over(MonoTime now);

  struct Run {
    std::string node;
    int attempt = 0;
  };
  /// `runs`: the job's workers that run, on which nodes, which are forgiven. Forgets those that
  /// `is_there` does not know, and what was a day ago.
  void forget(const std::vector<Run>& runs, const std::function<bool(const std::string&)>& is_there,
              MonoTime now);

  std::set<std::string> at(MonoTime now) const;
  /// When the next of them is to be used again.
  std::optional<MonoTime> next_end() const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Avoided {
    MonoTime until{};
    int times = 0;    ///< since it was forgiven
    int attempt = 0;  ///< the newest that failed there
    bool is_over = false;
  };
  std::map<std::string, Avoided> nodes_;
};

}  // namespace muster::runtime
