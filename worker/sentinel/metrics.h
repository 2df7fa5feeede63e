// The worker's metrics in Prometheus' text format. Names: contract.h, metric::.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "worker/sentinel/channel.h"

namespace muster::sentinel {

struct MetricLabels {
  std::string namespace_name, training_job;
  int slot = 0;
};

/// Threads: any.
class Metrics {
 public:
  Metrics(const MetricLabels& labels, int processes);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void add(int process, const StepsMessage& message);
  /// How long a stage before the first step took; `stage` is join or load.
  void set_start(int process, std::string_view stage, double seconds);
  /// Another process takes the place of `process` and counts anew.
  void restart(int process);
  void add(int process, const EnteredMessage& message);
  void add_respawn(int process);
  /// Of the step in which the membership changed last.
  void set_change_delay(int process, double seconds);
  void set_step_delay(int process, microseconds delay);
  void set_membership(std::int64_t epoch, int workers);
  /// All families as text.
  std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::sentinel
