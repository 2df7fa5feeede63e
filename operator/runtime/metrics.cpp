#include "operator/runtime/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "common/check.h"
#include "common/contract.h"
#include "operator/runtime/metrics_jobs.h"
#include "operator/runtime/metrics_process.h"

namespace muster::runtime {
namespace {

namespace name = contract::metric;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Buckets = Histogram::BucketBoundaries;

/// The one controller and its queue, as their labels call them.
constexpr const char* kController = "trainingjob";

Buckets look_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
}
Buckets exchange_buckets() { return {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}; }
Buckets start_buckets() {
  return {0.25, 0.5, 1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1200, 1800, 3600};
}
Buckets schedule_buckets() { return {0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5}; }

std::string_view text_of(ReconcileResult result) {
  switch (result) {
    case ReconcileResult::kSuccess:
      return "success";
    case ReconcileResult::kError:
      return "error";
    case ReconcileResult::kRequeue:
      return "requeue";
    case ReconcileResult::kRequeueAfter:
      return "requeue_after";
  }
  return "error";
}

std::string_view text_of(core::Pass pass) {
  switch (pass) {
    case core::Pass::kNone:
      return "none";
    case core::Pass::kDecision:
      return "decision";
    case core::Pass::kObservation:
      return "observation";
    case core::Pass::kProgress:
      return "progress";
  }
  return "none";
}

std::string_view text_of(core::Remade why) {
  switch (why) {
    case core::Remade::kFirst:
      return "first";
    case core::Remade::kNodes:
      return "nodes";
    case core::Remade::kTopology:
      return "topology";
    case core::Remade::kChanges:
      return "changes";
  }
  return "none";
}

std::string_view text_of_path(std::string_view path) {
  if (path == contract::kPathJoin) return "join";
  if (path == contract::kPathWitness) return "witness";
  return path == contract::kPathProgress ? "progress" : "other";
}

/// A counter that follows a total counted elsewhere.
void follow(Counter& counter, double total) {
  if (total > counter.Value()) counter.Increment(total - counter.Value());
}

class Families {
 public:
  prometheus::Family<Counter>& counter(std::string_view called, const char* help) {
    return prometheus::BuildCounter().Name(std::string(called)).Help(help).Register(registry_);
  }
  prometheus::Family<Gauge>& gauge(std::string_view called, const char* help) {
    return prometheus::BuildGauge().Name(std::string(called)).Help(help).Register(registry_);
  }
  prometheus::Family<Histogram>& histogram(std::string_view called, const char* help) {
    return prometheus::BuildHistogram().Name(std::string(called)).Help(help).Register(registry_);
  }
  std::string render() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

 private:
  prometheus::Registry registry_;
};

}  // namespace

struct Metrics::Impl {
  explicit Impl(const MetricsOptions& given);

  /// When a job was put on the queue and when it was taken in hand; both may be.
  struct Turn {
    std::optional<MonoTime> waits_since, in_hand_since;
  };

  void refresh(MonoTime now);
  JobBook::Now now() const { return {clock.mono_now(), clock.wall_now()}; }

  const Clock& clock;
  Families all;
  const Labels controller{{"controller", kController}};
  const Labels queue{{"name", kController}};

  prometheus::Family<Counter>& reconcile_total =
      all.counter(name::kReconcileTotal, "Looks at jobs, by result.");
  Counter& reconcile_errors =
      all.counter(name::kReconcileErrors, "Plans that were not carried out.").Add(controller);
  Histogram& reconcile_seconds =
      all.histogram(name::kReconcileSeconds, "From taking a job in hand until its plan is done.")
          .Add(controller, look_buckets());
  Gauge& concurrency =
      all.gauge(name::kReconcileMaxConcurrent, "Plans that may be carried out at a time.")
          .Add(controller);
  Gauge& active = all.gauge(name::kReconcileActive, "Jobs in hand now.").Add(controller);
  Gauge& depth = all.gauge(name::kQueueDepth, "Jobs that wait for a look.").Add(queue);
  Counter& adds = all.counter(name::kQueueAdds, "Jobs put on the queue.").Add(queue);
  Counter& retries = all.counter(name::kQueueRetries, "Jobs put back after failures.").Add(queue);
  Histogram& wait_seconds =
      all.histogram(name::kQueueWaitSeconds, "How long a job waits for its look.")
          .Add(queue, look_buckets());
  Histogram& work_seconds = all.histogram(name::kQueueWorkSeconds, "How long a job is in hand.")
                                .Add(queue, look_buckets());
  Gauge& unfinished_seconds =
      all.gauge(name::kQueueUnfinishedSeconds, "Time of the jobs in hand, summed.").Add(queue);
  Gauge& longest_seconds =
      all.gauge(name::kQueueLongestSeconds, "Time of the job longest in hand.").Add(queue);
  prometheus::Family<Counter>& rest_requests =
      all.counter(name::kRestRequests, "Exchanges with the API server.");
  prometheus::Family<Histogram>& rest_seconds =
      all.histogram(name::kRestSeconds, "Time until the API server's answer.");
  Gauge& leader;
  Counter& cpu_seconds =
      all.counter(name::kProcessCpuSeconds, "Processor time of the process.").Add({});
  Gauge& resident_bytes = all.gauge(name::kProcessResidentBytes, "Resident memory.").Add({});
  Gauge& virtual_bytes = all.gauge(name::kProcessVirtualBytes, "Virtual memory.").Add({});
  Gauge& open_fds = all.gauge(name::kProcessOpenFds, "Open descriptors.").Add({});
  Gauge& max_fds = all.gauge(name::kProcessMaxFds, "Descriptors that may be open.").Add({});
  Gauge& start_seconds =
      all.gauge(name::kProcessStartSeconds, "When the process began, since the epoch.").Add({});
  Histogram& gang_start_seconds =
      all.histogram(name::kGangStartSeconds, "From creation until all workers of a gang run.")
          .Add({}, start_buckets());
  Histogram& schedule_seconds =
      all.histogram(name::kScheduleSeconds, "One look at all waiting gangs.")
          .Add({}, schedule_buckets());
  prometheus::Family<Counter>& inventory_remade =
      all.counter(name::kInventoryRemade, "Times that what is free was added up anew, by reason.");
  prometheus::Family<Gauge>& guardrails =
      all.gauge(name::kGuardrailMissing, "1 while an admission policy is gone or does not refuse.");
  prometheus::Family<Gauge>& ca_end =
      all.gauge(name::kCaEnd, "When the CA of the workers' endpoint expires, since the epoch.");
  prometheus::Family<Counter>& relists =
      all.counter(name::kWatchRelists, "Lists after the first, because a watch lost its place.");
  prometheus::Family<Counter>& bad_lines =
      all.counter(name::kWatchBadLines, "Lines of watches that were no event.");
  prometheus::Family<Counter>& endpoint_requests =
      all.counter(name::kEndpointRequests, "Posts of workers, by answer.");
  prometheus::Family<Counter>& status_writes =
      all.counter(name::kStatusWrites, "Writes of job status.");

  std::mutex mutex;
  std::map<api::ObjectKey, Turn> turns;  // guarded by mutex; bounded as the queue is
  JobBook jobs;                          // guarded by mutex
  std::vector<QueueFigures> queues;      // guarded by mutex
};

Metrics::Impl::Impl(const MetricsOptions& given)
    : clock(*given.clock),
      leader(all.gauge(name::kLeader, "1 while this replica leads.")
                 .Add({{"name", given.leader_name}})) {
  all.gauge(name::kBuildInfo, "1, with the version as a label.")
      .Add({{"version", given.version}, {"contract", std::string(contract::kNumericsContract)}})
      .Set(1);
  // From the first scrape on, so that a first error is an increase.
  for (const auto result : {ReconcileResult::kSuccess, ReconcileResult::kError,
                            ReconcileResult::kRequeue, ReconcileResult::kRequeueAfter}) {
    reconcile_total.Add({{"controller", kController}, {"result", std::string(text_of(result))}});
  }
  for (const auto pass : {core::Pass::kDecision, core::Pass::kObservation, core::Pass::kProgress}) {
    status_writes.Add({{"pass", std::string(text_of(pass))}});
  }
  for (const auto why : {core::Remade::kFirst, core::Remade::kNodes, core::Remade::kTopology,
                         core::Remade::kChanges}) {
    inventory_remade.Add({{"reason", std::string(text_of(why))}});
  }
  for (const auto kind : {api::Kind::kTrainingJob, api::Kind::kPod, api::Kind::kNode}) {
    relists.Add({{"kind", std::string(api::info_of(kind).kind)}});
    bad_lines.Add({{"kind", std::string(api::info_of(kind).kind)}});
  }
}

void Metrics::Impl::refresh(MonoTime now) {
  double sum = 0, longest = 0;
  for (const auto& [key, turn] : turns) {
    if (!turn.in_hand_since) continue;
    const double time = seconds_of(now - *turn.in_hand_since);
    sum += time;
    longest = std::max(longest, time);
  }
  unfinished_seconds.Set(sum);
  longest_seconds.Set(longest);
  const ProcessFacts facts = read_process_facts();
  follow(cpu_seconds, facts.cpu_seconds);
  resident_bytes.Set(facts.resident_bytes);
  virtual_bytes.Set(facts.virtual_bytes);
  open_fds.Set(facts.open_fds);
  max_fds.Set(facts.max_fds);
  start_seconds.Set(facts.start_time_seconds);
}

Metrics::Metrics(const MetricsOptions& options) {
  MUSTER_CHECK(options.clock != nullptr);
  impl_ = std::make_unique<Impl>(options);
}

Metrics::~Metrics() = default;

void Metrics::set_leader(bool is_leader) { impl_->leader.Set(is_leader ? 1 : 0); }
void Metrics::set_concurrency(int plans) { impl_->concurrency.Set(plans); }
void Metrics::set_guardrail_missing(const std::string& policy, bool is_missing) {
  impl_->guardrails.Add({{"guardrail", policy}}).Set(is_missing ? 1 : 0);
}

void Metrics::set_ca_end(WallTime end) {
  const auto since_epoch = std::chrono::duration_cast<seconds>(end.time_since_epoch());
  impl_->ca_end.Add({}).Set(static_cast<double>(since_epoch.count()));
}

void Metrics::on_add(const api::ObjectKey& key) {
  const std::lock_guard lock(impl_->mutex);
  impl_->turns[key].waits_since = impl_->clock.mono_now();
  impl_->adds.Increment();
  impl_->depth.Increment();
}

void Metrics::on_retry(const api::ObjectKey&) { impl_->retries.Increment(); }

void Metrics::on_pop(const api::ObjectKey& key) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Turn& turn = impl_->turns[key];
  const MonoTime now = impl_->clock.mono_now();
  if (turn.waits_since) impl_->wait_seconds.Observe(seconds_of(now - *turn.waits_since));
  turn.waits_since.reset();
  turn.in_hand_since = now;
  impl_->depth.Decrement();
  impl_->active.Increment();
}

void Metrics::on_done(const api::ObjectKey& key) {
  const std::lock_guard lock(impl_->mutex);
  const auto turn = impl_->turns.find(key);
  if (turn == impl_->turns.end() || !turn->second.in_hand_since) return;
  const double took = seconds_of(impl_->clock.mono_now() - *turn->second.in_hand_since);
  impl_->work_seconds.Observe(took);
  impl_->reconcile_seconds.Observe(took);
  impl_->active.Decrement();
  turn->second.in_hand_since.reset();
  if (!turn->second.waits_since) impl_->turns.erase(turn);
}

void Metrics::on_reconciled(ReconcileResult result) {
  impl_->reconcile_total
      .Add({{"controller", kController}, {"result", std::string(text_of(result))}})
      .Increment();
  if (result == ReconcileResult::kError) impl_->reconcile_errors.Increment();
}

void Metrics::on_scheduled(double seconds) { impl_->schedule_seconds.Observe(seconds); }

void Metrics::on_inventory_remade(core::Remade why) {
  impl_->inventory_remade.Add({{"reason", std::string(text_of(why))}}).Increment();
}

void Metrics::on_status_written(core::Pass pass) {
  impl_->status_writes.Add({{"pass", std::string(text_of(pass))}}).Increment();
}

void Metrics::on_watch(api::Kind kind, std::int64_t relists, std::int64_t bad_lines) {
  const Labels labels{{"kind", std::string(api::info_of(kind).kind)}};
  follow(impl_->relists.Add(labels), static_cast<double>(relists));
  follow(impl_->bad_lines.Add(labels), static_cast<double>(bad_lines));
}

void Metrics::on_rest(const RestExchange& exchange) {
  const std::string code = exchange.code > 0 ? std::to_string(exchange.code) : "<error>";
  impl_->rest_requests.Add({{"code", code}, {"method", exchange.method}, {"host", exchange.host}})
      .Increment();
  impl_->rest_seconds.Add({{"verb", exchange.method}, {"host", exchange.host}}, exchange_buckets())
      .Observe(exchange.seconds);
}

void Metrics::on_endpoint(std::string_view path, int code) {
  impl_->endpoint_requests
      .Add({{"path", std::string(text_of_path(path))}, {"code", std::to_string(code)}})
      .Increment();
}

void Metrics::on_job(const api::TrainingJob& job, std::string_view queue) {
  std::optional<double> started;
  {
    const std::lock_guard lock(impl_->mutex);
    started = impl_->jobs.add(job, queue, impl_->now());
  }
  if (started) impl_->gang_start_seconds.Observe(*started);
}

void Metrics::on_cost(const api::ObjectKey& job, const api::JobCost& cost) {
  const std::lock_guard lock(impl_->mutex);
  impl_->jobs.add(job, cost);
}

void Metrics::on_progress(const api::ObjectKey& job, const ProgressReport& report) {
  const std::lock_guard lock(impl_->mutex);
  impl_->jobs.add(job, report, impl_->now());
}

void Metrics::on_job_gone(const api::ObjectKey& job) {
  const std::lock_guard lock(impl_->mutex);
  impl_->jobs.remove(job);
}

void Metrics::on_queues(std::vector<QueueFigures> queues) {
  const std::lock_guard lock(impl_->mutex);
  impl_->queues = std::move(queues);
}

std::string Metrics::render() const {
  JobBook jobs;
  std::vector<QueueFigures> queues;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->refresh(impl_->clock.mono_now());
    // A copy, so that nobody who decides waits while text is made of a thousand jobs.
    jobs = impl_->jobs;
    queues = impl_->queues;
  }
  // In front of the longer text, which has room for it.
  std::string page = jobs.render(impl_->now());
  page += runtime::render(queues);
  return page.insert(0, impl_->all.render());
}

}  // namespace muster::runtime
