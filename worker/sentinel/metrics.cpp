#include "worker/sentinel/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <vector>

#include "common/check.h"
#include "common/contract.h"

namespace muster::sentinel {
namespace {

using Labels = prometheus::Labels;
namespace name = contract::metric;

/// Step times from a tenth of a millisecond to a minute and a half.
prometheus::Histogram::BucketBoundaries step_buckets() {
  return {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 90};
}

/// Parts of every step, then what stands between steps now and then.
constexpr std::array kPhaseNames = {"data",   "compute",  "communicate", "update",
                                    "record", "evaluate", "checkpoint"};
constexpr std::size_t kPhases = kPhaseNames.size();
constexpr std::size_t kPhasesOfEveryStep = 4;

struct Process {
  Labels labels;
  prometheus::Counter* steps;
  prometheus::Counter* samples;
  prometheus::Counter* sent_bytes;
  prometheus::Counter* computations;
  prometheus::Counter* cpu_seconds;
  prometheus::Gauge* step;
  prometheus::Gauge* loss;
  prometheus::Gauge* samples_per_second;
  prometheus::Gauge* memory_bytes;
  prometheus::Gauge* checkpoint_step;
  prometheus::Counter* stall_seconds;
  prometheus::Counter* respawns;
  prometheus::Counter* recomputed;
  prometheus::Counter* state_bytes;
  prometheus::Gauge* blocks_short;
  prometheus::Gauge* epoch;
  prometheus::Gauge* members;
  prometheus::Gauge* waits_for_copy;
  prometheus::Gauge* last_stall;
  prometheus::Gauge* change_delay;
  prometheus::Gauge* step_delay;
  prometheus::Histogram* step_seconds;
  std::array<prometheus::Histogram*, kPhases> phases;
  /// Totals of the processes that were at this place before.
  double earlier_sent = 0, earlier_computed = 0, earlier_cpu = 0;
};

Labels labels_of(const MetricLabels& labels, int process) {
  return {{"namespace", labels.namespace_name},
          {"training_job", labels.training_job},
          {"slot", std::to_string(labels.slot)},
          {"process", std::to_string(process)}};
}

std::array<prometheus::Histogram*, kPhases> phases_of(
    prometheus::Family<prometheus::Histogram>& family, Labels labels) {
  std::array<prometheus::Histogram*, kPhases> phases{};
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    labels["phase"] = kPhaseNames[phase];
    phases[phase] = &family.Add(labels, step_buckets());
  }
  return phases;
}

/// A counter that follows a total counted elsewhere.
void follow(prometheus::Counter& counter, double total) {
  if (total > counter.Value()) counter.Increment(total - counter.Value());
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::vector<Process> processes;
  prometheus::Family<prometheus::Gauge>* accuracy = nullptr;
  prometheus::Family<prometheus::Gauge>* start_seconds = nullptr;

  prometheus::Family<prometheus::Counter>& counter(std::string_view called, const char* help) {
    return prometheus::BuildCounter().Name(std::string(called)).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Gauge>& gauge(std::string_view called, const char* help) {
    return prometheus::BuildGauge().Name(std::string(called)).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Histogram>& histogram(std::string_view called, const char* help) {
    return prometheus::BuildHistogram().Name(std::string(called)).Help(help).Register(registry);
  }
};

Metrics::Metrics(const MetricLabels& labels, int processes) : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  auto& steps = impl.counter(name::kWorkerSteps, "Optimiser steps finished by this process.");
  auto& samples = impl.counter(name::kWorkerSamples, "Samples of these steps, of all workers.");
  auto& sent = impl.counter(name::kWorkerSentBytes, "Bytes sent to other workers.");
  auto& computed = impl.counter(name::kWorkerLogicalRankComputations,
                                "Logical ranks computed by this process, one a step each.");
  auto& cpu = impl.counter(name::kWorkerCpuSeconds, "Processor time of the trainer process.");
  auto& step = impl.gauge(name::kWorkerStep, "The newest step.");
  auto& loss = impl.gauge(name::kWorkerLoss, "Loss of the newest step, mean over the batch.");
  auto& rate = impl.gauge(name::kWorkerSamplesPerSecond, "Samples a second, of all workers.");
  auto& memory = impl.gauge(name::kWorkerMemoryBytes, "Resident memory of the trainer process.");
  auto& checkpoint = impl.gauge(name::kWorkerCheckpointStep,
                                "Step of the newest complete checkpoint, -1 before the first.");
  auto& stall =
      impl.counter(name::kWorkerStallSeconds, "Standing still for changes of membership.");
  auto& respawns = impl.counter(name::kWorkerRespawns, "Trainers started again at this place.");
  auto& recomputed =
      impl.counter(name::kWorkerRecomputedLogicalRanks, "Logical ranks taken over from the lost.");
  auto& state = impl.counter(name::kWorkerStateBytes, "State received from other workers.");
  auto& blocks_short = impl.gauge(name::kWorkerStateBlocksShort,
                                  "Blocks of the optimiser's state with too few copies.");
  auto& epoch = impl.gauge(name::kWorkerMembershipEpoch, "The membership that this worker is in.");
  auto& members = impl.gauge(name::kWorkerMembers, "Workers in this membership.");
  auto& waits = impl.gauge(name::kWorkerWaitsForCopy, "Waiting for others of its copy.");
  auto& last_stall = impl.gauge(name::kWorkerLastStallSeconds,
                                "Standing still for the newest change of membership.");
  auto& change_delay = impl.gauge(name::kWorkerChangeDelaySeconds,
                                  "How much longer than a usual step the one of the newest change "
                                  "of membership took.");
  auto& step_delay = impl.gauge(name::kWorkerStepDelaySeconds,
                                "How much longer the others wait for this process than for each "
                                "other in a usual step.");
  impl.accuracy = &impl.gauge(name::kWorkerAccuracy, "Accuracy of the last evaluation.");
  impl.start_seconds =
      &impl.gauge(name::kWorkerStartSeconds, "Time of what came before the first step.");
  auto& step_seconds = impl.histogram(name::kWorkerStepSeconds, "Time of one optimiser step.");
  auto& phases = impl.histogram(name::kWorkerPhaseSeconds,
                                "Time of the parts of a step and of what stands between steps.");
  for (int i = 0; i < processes; ++i) {
    const Labels own = labels_of(labels, i);
    Process process{own,
                    &steps.Add(own),
                    &samples.Add(own),
                    &sent.Add(own),
                    &computed.Add(own),
                    &cpu.Add(own),
                    &step.Add(own),
                    &loss.Add(own),
                    &rate.Add(own),
                    &memory.Add(own),
                    &checkpoint.Add(own),
                    &stall.Add(own),
                    &respawns.Add(own),
                    &recomputed.Add(own),
                    &state.Add(own),
                    &blocks_short.Add(own),
                    &epoch.Add(own),
                    &members.Add(own),
                    &waits.Add(own),
                    &last_stall.Add(own),
                    &change_delay.Add(own),
                    &step_delay.Add(own),
                    &step_seconds.Add(own, step_buckets()),
                    {}};
    process.checkpoint_step->Set(-1);
    process.phases = phases_of(phases, own);
    impl.processes.push_back(process);
  }
}

Metrics::~Metrics() = default;

void Metrics::add(int process, const StepsMessage& message) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  Process& target = impl_->processes[static_cast<std::size_t>(process)];
  double seconds = 0, samples = 0, copied = 0;
  for (const StepRecord& step : message.steps) {
    const std::array<double, kPhases> phases = {
        step.data_seconds,   step.compute_seconds,  step.communicate_seconds, step.update_seconds,
        step.record_seconds, step.evaluate_seconds, step.checkpoint_seconds};
    target.step_seconds->Observe(step.step_seconds);
    for (std::size_t i = 0; i < kPhases; ++i) {
      if (i < kPhasesOfEveryStep || phases[i] > 0) target.phases[i]->Observe(phases[i]);
    }
    seconds += step.step_seconds;
    samples += static_cast<double>(step.samples);
    copied += static_cast<double>(step.copied_bytes);
  }
  if (message.steps.empty()) return;
  const StepRecord& last = message.steps.back();
  target.steps->Increment(static_cast<double>(message.steps.size()));
  target.samples->Increment(samples);
  follow(*target.sent_bytes, target.earlier_sent + static_cast<double>(last.sent_bytes));
  follow(*target.computations,
         target.earlier_computed + static_cast<double>(last.logical_rank_computations));
  follow(*target.cpu_seconds, target.earlier_cpu + message.usage.cpu_seconds);
  target.state_bytes->Increment(copied);
  target.blocks_short->Set(static_cast<double>(last.blocks_short));
  target.step->Set(static_cast<double>(last.step));
  target.loss->Set(last.loss);
  if (last.accuracy >= 0) impl_->accuracy->Add(target.labels).Set(last.accuracy);
  if (seconds > 0) target.samples_per_second->Set(samples / seconds);
  target.memory_bytes->Set(static_cast<double>(message.usage.resident_bytes));
  target.checkpoint_step->Set(static_cast<double>(last.checkpoint_step));
}

void Metrics::restart(int process) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  Process& target = impl_->processes[static_cast<std::size_t>(process)];
  target.earlier_sent = target.sent_bytes->Value();
  target.earlier_computed = target.computations->Value();
  target.earlier_cpu = target.cpu_seconds->Value();
  target.waits_for_copy->Set(0);
}

void Metrics::add(int process, const EnteredMessage& message) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  Process& target = impl_->processes[static_cast<std::size_t>(process)];
  target.waits_for_copy->Set(message.step == kWaits ? 1 : 0);
  if (message.step < 0) return;
  target.stall_seconds->Increment(std::max(0.0, message.stall_seconds));
  target.last_stall->Set(std::max(0.0, message.stall_seconds));
  target.recomputed->Increment(
      static_cast<double>(std::max<std::int64_t>(0, message.recomputed_logical_ranks)));
  target.state_bytes->Increment(static_cast<double>(message.state_bytes));
}

void Metrics::add_respawn(int process) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  impl_->processes[static_cast<std::size_t>(process)].respawns->Increment();
}

void Metrics::set_step_delay(int process, microseconds delay) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  impl_->processes[static_cast<std::size_t>(process)].step_delay->Set(
      std::chrono::duration<double>(delay).count());
}

void Metrics::set_change_delay(int process, double seconds) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  impl_->processes[static_cast<std::size_t>(process)].change_delay->Set(std::max(0.0, seconds));
}

void Metrics::set_membership(std::int64_t epoch, int workers) {
  for (Process& process : impl_->processes) {
    process.epoch->Set(static_cast<double>(epoch));
    process.members->Set(workers);
  }
}

void Metrics::set_start(int process, std::string_view stage, double seconds) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  Labels labels = impl_->processes[static_cast<std::size_t>(process)].labels;
  labels["stage"] = std::string(stage);
  impl_->start_seconds->Add(labels).Set(seconds);
}

std::string Metrics::render() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace muster::sentinel
