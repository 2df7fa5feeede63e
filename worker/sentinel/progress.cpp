#include "worker/sentinel/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/json.h"

namespace muster::sentinel {
namespace {

constexpr double kNewShare = 0.3;  ///< of a new group of steps in the smoothed seconds

/// Decimal text with four digits; empty for what is not a number.
std::string decimal(double value) {
  if (!std::isfinite(value)) return {};
  char text[64];
  const int bytes = std::snprintf(text, sizeof text, "%.4f", value);
  return bytes > 0 && bytes < static_cast<int>(sizeof text) ? text : "";
}

void smooth(double& average, double sample) {
  average = average == 0 ? sample : average + kNewShare * (sample - average);
}

/// Of steps in which the process computed.
void take_part(PartReport& part, const std::vector<StepRecord>& steps) {
  double compute = 0, in_turns = 0, update = 0;
  int count = 0;
  for (const StepRecord& step : steps) {
    if (step.part.micro_batches == 0) continue;
    part.counts = step.part;
    compute += step.data_seconds + step.compute_seconds;
    in_turns += step.turn_seconds;
    update += step.update_seconds;
    ++count;
  }
  if (count == 0) return;
  smooth(part.compute_seconds, compute / count);
  smooth(part.turn_seconds, in_turns / count);
  smooth(part.update_seconds, update / count);
}

}  // namespace

ProgressBook::ProgressBook(std::string job, int slot, int attempt, int processes)
    : sent_bytes_(static_cast<std::size_t>(processes)),
      computations_(static_cast<std::size_t>(processes)),
      parts_(static_cast<std::size_t>(processes)) {
  report_.job = std::move(job);
  report_.slot = slot;
  report_.attempt = attempt;
}

void ProgressBook::add(int process, const StepsMessage& message) {
  if (message.steps.empty()) return;
  const auto index = static_cast<std::size_t>(process);
  MUSTER_CHECK(index < sent_bytes_.size());
  const StepRecord& last = message.steps.back();
  sent_bytes_[index] = last.sent_bytes;
  computations_[index] = last.logical_rank_computations;
  take_part(parts_[index], message.steps);
  if (process != 0) return;
  has_news_ = true;
  double seconds = 0, exchange = 0, samples = 0;
  for (const StepRecord& step : message.steps) {
    seconds += step.step_seconds;
    exchange += step.communicate_seconds;
    samples += static_cast<double>(step.samples);
  }
  if (seconds > 0) {
    const auto steps = static_cast<double>(message.steps.size());
    smooth(report_.step_seconds, seconds / steps);
    smooth(report_.exchange_seconds, exchange / steps);
    // Not a mean of rates, which a few quick steps would lift above what the seconds say.
    report_.samples_per_second = samples / steps / report_.step_seconds;
  }
  report_.step = last.step;
  report_.total_steps = last.total_steps;
  report_.epoch = last.epoch;
  report_.loss = decimal(last.loss);
  if (last.accuracy >= 0) report_.accuracy = decimal(last.accuracy);
  report_.checkpoint_step = last.checkpoint_step;
}

void ProgressBook::add(int process, const SummaryMessage& message) {
  const auto index = static_cast<std::size_t>(process);
  MUSTER_CHECK(index < sent_bytes_.size());
  if (message.is_final) {
    sent_bytes_[index] = message.sent_bytes;
    computations_[index] = message.logical_rank_computations;
  }
  // Of a job that is complete each has the same to tell, and the first may not come to it.
  if (process != 0 && !(message.is_final && message.complete)) return;
  report_.model_parameters = message.model_parameters;
  report_.data_sha256 = message.data_sha256;
  report_.checkpoint_path = message.checkpoint_path;
  report_.checkpoint_durable = message.checkpoint_durable;
  if (message.is_final) has_news_ = true;
  // What it said while it had a state holds.
  if (message.step < 0) return;
  report_.total_steps = message.total_steps;
  report_.restored_step = message.restored_step;
  report_.step = message.step;
  if (message.checkpoint_step >= 0) report_.checkpoint_step = message.checkpoint_step;
  if (!message.is_final) return;
  // Who has made no step since the checkpoint knows no loss: that of an earlier attempt stands.
  if (message.step > std::max<std::int64_t>(0, message.restored_step)) {
    report_.loss = decimal(message.loss);
  }
  if (message.accuracy >= 0) report_.accuracy = decimal(message.accuracy);
  report_.model_sha256 = message.model_sha256;
}

void ProgressBook::restart(int process) {
  const auto index = static_cast<std::size_t>(process);
  MUSTER_CHECK(index < sent_bytes_.size());
  earlier_sent_bytes_ += std::exchange(sent_bytes_[index], 0);
  earlier_computations_ += std::exchange(computations_[index], 0);
  parts_[index] = {};
}

ProgressReport ProgressBook::report() const {
  ProgressReport report = report_;
  report.sent_bytes = std::accumulate(sent_bytes_.begin(), sent_bytes_.end(), earlier_sent_bytes_);
  report.logical_rank_computations =
      std::accumulate(computations_.begin(), computations_.end(), earlier_computations_);
  const bool has_all = std::ranges::all_of(
      parts_, [](const PartReport& part) { return part.counts.micro_batches > 0; });
  if (has_all && parts_.size() <= kMaxReportedParts) report.parts = parts_;
  if (report.step_seconds > 0) {
    report.eta_seconds =
        static_cast<double>(report.total_steps - report.step) * report.step_seconds;
  }
  return report;
}

std::string termination_message(const ProgressReport& report) {
  std::string text = dump_json(to_json(report));
  if (text.size() <= kMaxTerminationBytes) return text;
  ProgressReport shorter = report;
  shorter.checkpoint_path.clear();
  shorter.parts.clear();
  text = dump_json(to_json(shorter));
  if (text.size() <= kMaxTerminationBytes) return text;
  shorter.members.clear();
  return dump_json(to_json(shorter));
}

}  // namespace muster::sentinel
