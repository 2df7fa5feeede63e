// Fragmentation of a simulated cluster over time: what of its free room was of no use to gangs of
// the trace's sizes, because too little of it lay in one leaf domain. Where nothing is known of the
// network a gang may stand anywhere, but a worker only on one node: there, to single workers.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/fragments.h"
#include "operator/runtime/simulation.h"

namespace muster::runtime {

class RoomMeter {
 public:
  RoomMeter(const std::vector<Json>& objects, const std::vector<TraceJob>& trace);

  /// From `now` on, which never goes back, a job of the trace stands there; nowhere: it is over.
  void place(std::size_t job, std::vector<std::string> nodes, milliseconds now);
  /// The part of the free room that was lost, on the mean from the first placement to the last.
  /// Absent: nothing was free.
  std::optional<double> lost() const;

 private:
  struct Leaf {
    int all = 0, free = 0;  ///< of what is scarce: GPUs, or processors
  };

  double lost_in(const Leaf& leaf) const;
  void take(std::size_t job, int sign);

  const std::vector<TraceJob>& trace_;
  bool counts_gpus_ = false;
  core::UsualSizes sizes_;
  std::vector<Leaf> leaves_;  ///< or nodes, see above
  std::map<std::string, std::size_t> leaf_of_node_;
  std::map<std::size_t, std::vector<std::string>> places_;
  double free_ = 0, lost_ = 0;            ///< now
  double free_time_ = 0, lost_time_ = 0;  ///< summed until since_
  std::optional<milliseconds> since_;
};

}  // namespace muster::runtime
