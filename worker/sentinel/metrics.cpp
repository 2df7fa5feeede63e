#include "worker/sentinel/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
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

constexpr std::size_t kPhases = 6;
constexpr const char* kPhaseNames[kPhases] = {"all",         "data",   "compute",
                                              "communicate", "update", "checkpoint"};

struct Process {
  prometheus::Counter* steps;
  prometheus::Counter* samples;
  prometheus::Counter* sent_bytes;
  prometheus::Counter* computations;
  prometheus::Counter* cpu_seconds;
  prometheus::Gauge* loss;
  prometheus::Gauge* samples_per_second;
  prometheus::Gauge* memory_bytes;
  prometheus::Gauge* checkpoint_step;
  prometheus::Histogram* phases[kPhases];
};

/// A counter that follows a total counted elsewhere.
void follow(prometheus::Counter& counter, double total) {
  if (total > counter.Value()) counter.Increment(total - counter.Value());
}

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::vector<Process> processes;

  prometheus::Family<prometheus::Counter>& counter(std::string_view called, const char* help) {
    return prometheus::BuildCounter().Name(std::string(called)).Help(help).Register(registry);
  }
  prometheus::Family<prometheus::Gauge>& gauge(std::string_view called, const char* help) {
    return prometheus::BuildGauge().Name(std::string(called)).Help(help).Register(registry);
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
  auto& loss = impl.gauge(name::kWorkerLoss, "Loss of the newest step, mean over the batch.");
  auto& rate = impl.gauge(name::kWorkerSamplesPerSecond, "Samples a second, of all workers.");
  auto& memory = impl.gauge(name::kWorkerMemoryBytes, "Resident memory of the trainer process.");
  auto& checkpoint = impl.gauge(name::kWorkerCheckpointStep,
                                "Step of the newest complete checkpoint, -1 before the first.");
  auto& phases = prometheus::BuildHistogram()
                     .Name(std::string(name::kWorkerStepSeconds))
                     .Help("Time of a step by phase; phase \"all\" is the whole step.")
                     .Register(impl.registry);
  for (int i = 0; i < processes; ++i) {
    const Labels own{{"namespace", labels.namespace_name},
                     {"training_job", labels.training_job},
                     {"slot", std::to_string(labels.slot)},
                     {"process", std::to_string(i)}};
    Process process{
        &steps.Add(own), &samples.Add(own), &sent.Add(own),   &computed.Add(own),   &cpu.Add(own),
        &loss.Add(own),  &rate.Add(own),    &memory.Add(own), &checkpoint.Add(own), {}};
    process.checkpoint_step->Set(-1);
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      Labels with_phase = own;
      with_phase["phase"] = kPhaseNames[phase];
      process.phases[phase] = &phases.Add(with_phase, step_buckets());
    }
    impl.processes.push_back(process);
  }
}

Metrics::~Metrics() = default;

void Metrics::add(int process, const StepsMessage& message) {
  MUSTER_CHECK(static_cast<std::size_t>(process) < impl_->processes.size());
  Process& target = impl_->processes[static_cast<std::size_t>(process)];
  double seconds = 0, samples = 0;
  for (const StepRecord& step : message.steps) {
    const double phases[kPhases] = {step.step_seconds,    step.data_seconds,
                                    step.compute_seconds, step.communicate_seconds,
                                    step.update_seconds,  step.checkpoint_seconds};
    for (std::size_t i = 0; i < kPhases; ++i) target.phases[i]->Observe(phases[i]);
    seconds += step.step_seconds;
    samples += static_cast<double>(step.samples);
  }
  if (message.steps.empty()) return;
  const StepRecord& last = message.steps.back();
  target.steps->Increment(static_cast<double>(message.steps.size()));
  target.samples->Increment(samples);
  follow(*target.sent_bytes, static_cast<double>(last.sent_bytes));
  follow(*target.computations, static_cast<double>(last.logical_rank_computations));
  follow(*target.cpu_seconds, message.usage.cpu_seconds);
  target.loss->Set(last.loss);
  if (seconds > 0) target.samples_per_second->Set(samples / seconds);
  target.memory_bytes->Set(static_cast<double>(message.usage.resident_bytes));
  target.checkpoint_step->Set(static_cast<double>(last.checkpoint_step));
}

std::string Metrics::render() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace muster::sentinel
