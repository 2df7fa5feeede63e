// Nodes that a job's next start does without for a while, because they let no worker in, started
// none or ended one twice.
#pragma once

#include <cstddef>
#include <cstdint>
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
/// minutes. A node is forgiven when a worker that was placed after its failure runs there.
class AvoidedNodes {
 public:
  /// `epoch`: no attempt given out until now is as high. Of a node that is known to have failed in
  /// this epoch nothing is new, also once it may be used again.
  void add(const std::set<std::string>& nodes, std::int64_t epoch, MonoTime now);

  /// Whether some may be used again since the last call.
  bool end_those_over(MonoTime now);

  struct Run {
    std::string node;
    std::int64_t attempt = 0;
  };
  /// `runs`: the job's workers that run, on which nodes. Forgets those that `is_there` does not
  /// know, too, and what was a day ago.
  void forget(const std::vector<Run>& runs, const std::function<bool(const std::string&)>& is_there,
              MonoTime now);

  std::set<std::string> at(MonoTime now) const;
  /// When the next of them is to be used again.
  std::optional<MonoTime> next_end() const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Avoided {
    MonoTime until{};
    int times = 0;
    std::int64_t epoch = 0;
    bool is_over = false;
  };
  std::map<std::string, Avoided> nodes_;
};

}  // namespace muster::runtime
