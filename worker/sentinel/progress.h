// From the messages of a worker's trainers to the one report it sends. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/messages.h"
#include "worker/sentinel/channel.h"

namespace muster::sentinel {

class ProgressBook {
 public:
  ProgressBook(std::string job, int slot, int attempt, int processes);

  void add(int process, const StepsMessage& message);
  void add(int process, const SummaryMessage& message);
  /// Another process takes the place of `process` and counts anew.
  void restart(int process);

  /// The job's progress as process 0 of this worker knows it, bytes and computations summed over
  /// all processes, and parts of the model by process.
  ProgressReport report() const;
  /// Whether process 0 has made a step or ended: before, a report would only delay the next.
  bool has_news() const { return has_news_; }

 private:
  ProgressReport report_;
  std::vector<std::uint64_t> sent_bytes_, computations_;             ///< by process
  std::vector<PartReport> parts_;                                    ///< likewise
  std::uint64_t earlier_sent_bytes_ = 0, earlier_computations_ = 0;  ///< of those that ended
  bool has_news_ = false;
};

/// What Kubernetes keeps of a termination log.
inline constexpr std::size_t kMaxTerminationBytes = 4096;

/// At most kMaxTerminationBytes bytes for the termination log: the report as JSON, without its path
/// and what is of the time before the end where it would not fit.
std::string termination_message(const ProgressReport& report);

}  // namespace muster::sentinel
