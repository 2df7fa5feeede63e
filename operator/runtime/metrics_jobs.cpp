#include "operator/runtime/metrics_jobs.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "common/contract.h"
#include "operator/api/price_list.h"
#include "operator/core/words.h"

namespace muster::runtime {
namespace {

namespace name = contract::metric;
namespace words = core::words;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr std::array kPhases = {
    words::kPhasePending,   words::kPhaseWaiting,  words::kPhaseRunning, words::kPhaseRestarting,
    words::kPhaseSuspended, words::kPhaseComplete, words::kPhaseFailed};
constexpr std::array kConditions = {words::kAdmitted,  words::kRunning,  words::kRestarting,
                                    words::kSuspended, words::kComplete, words::kFailed};
constexpr std::string_view kTrue = "true";
constexpr std::array<std::string_view, 3> kStatuses = {kTrue, "false", "unknown"};
constexpr std::size_t kMaxReasonBytes = 64;
/// A clock that is behind, or a job from long ago: no more than this is believed.
constexpr seconds kMaxAge{366 * 24 * 3600};

double epoch_seconds(WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// A phase of ours, whatever stands in the object.
std::string_view phase_of(const std::string& text) {
  const auto* const found = std::find(kPhases.begin(), kPhases.end(), text);
  return found == kPhases.end() ? words::kPhasePending : *found;
}

/// Reasons are words of ours; an object that says otherwise must not make up labels.
std::string reason_of(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  const bool is_word = !text.empty() && text.size() <= kMaxReasonBytes &&
                       std::all_of(text.begin(), text.end(), is_letter);
  return is_word ? text : std::string(words::kError);
}

std::string_view status_of(const std::string& text) {
  if (text == "True") return kTrue;
  return text == "False" ? "false" : "unknown";
}

/// What a job that has no workers yet waits for. Behind others, or for a budget, that is as it
/// should be however long it takes; everything else is for somebody to look at.
std::string_view awaited(const api::TrainingJobStatus& status, std::string_view queue) {
  const auto* running = status.condition(std::string(words::kRunning));
  if (running != nullptr && running->reason == words::kWaitingForKueue) return "Turn";
  const auto* admitted = status.condition(std::string(words::kAdmitted));
  if (admitted != nullptr && admitted->status == "True") return "Workers";
  if (admitted == nullptr || queue.empty()) return "Room";
  const bool waits = admitted->reason == contract::reason::kGangWaiting ||
                     admitted->reason == contract::reason::kPreempted ||
                     admitted->reason == contract::reason::kBudgetSpent;
  return waits ? "Turn" : "Room";
}

/// When that was, by the local clock; now where it was never told.
MonoTime local_time(const std::optional<WallTime>& time, JobBook::Now now) {
  if (!time) return now.mono;
  const nanoseconds age = now.wall - *time;
  return now.mono - std::clamp<nanoseconds>(age, nanoseconds(0), kMaxAge);
}

/// Since when a job that has never had its workers waits for them: it was created, or resumed.
MonoTime waiting_since(const api::TrainingJob& seen, JobBook::Now now) {
  const auto* suspended = seen.status.condition(std::string(words::kSuspended));
  const bool is_resumed = suspended != nullptr && suspended->status == "False";
  const MonoTime created = local_time(seen.meta.creation_time, now);
  return is_resumed ? std::max(created, local_time(suspended->last_transition_time, now)) : created;
}

/// So many metrics of a family are made into text at a time: before, they take ten times its room.
constexpr std::size_t kMetricsAtOnce = 1000;
/// Of a job's text, more than it is; what is not written takes no memory.
constexpr std::size_t kJobBytesMost = 8192;

constexpr bool kGauge = false;
constexpr bool kCounter = true;
constexpr bool kAlsoOfPast = true;

}  // namespace

/// A family in the making, and the text of what is made.
class JobBook::Page {
 public:
  using Labels = std::vector<prometheus::ClientMetric::Label>;

  Page(std::size_t jobs, Now now) : now_(now) { text_.reserve(jobs * kJobBytesMost); }

  MonoTime now() const { return now_.mono; }

  void begin(const Family& family) {
    write();
    has_head_ = false;
    family_.name = std::string(family.name);
    family_.help = family.help;
    family_.type = family.is_counter ? MetricType::Counter : MetricType::Gauge;
  }
  void add(Labels labels, double value) {
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    if (family_.type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    family_.metric.push_back(std::move(metric));
    if (family_.metric.size() >= kMetricsAtOnce) write();
  }
  std::string take() {
    write();
    return std::move(text_);
  }

 private:
  void write() {
    if (family_.metric.empty()) return;
    const std::string part = prometheus::TextSerializer().Serialize({family_});
    std::size_t begin = 0;
    // What the family is, in two lines of comment, is said once.
    while (has_head_ && part[begin] == '#') begin = part.find('\n', begin) + 1;
    text_.append(part, begin);
    has_head_ = true;
    family_.metric.clear();
  }

  const Now now_;
  MetricFamily family_;
  bool has_head_ = false;
  std::string text_;
};

bool JobBook::Job::is_true(std::string_view type) const {
  return std::any_of(conditions.begin(), conditions.end(), [&](const auto& condition) {
    return condition.first == type && condition.second == kTrue;
  });
}

bool JobBook::Job::is_pending() const {
  return phase == words::kPhasePending || phase == words::kPhaseWaiting;
}

std::optional<double> JobBook::add(const api::TrainingJob& seen, std::string_view queue, Now now) {
  Job& job = jobs_[seen.meta.key()];
  const bool is_new = job.uid != seen.meta.uid;
  if (is_new) {
    job = Job{};
    job.uid = seen.meta.uid;
    job.phase = phase_of(seen.status.phase);
    job.phase_since = now.mono;
    job.pending_since = seen.status.membership_epoch == 0 ? waiting_since(seen, now) : now.mono;
    job.reported_at = now.mono;
    job.progress_at = now.wall;
    if (seen.status.progress) job.most_steps = seen.status.progress->step;
  }
  const bool was_running = job.is_true(words::kRunning);
  const bool was_suspended = job.is_true(words::kSuspended);
  take_status(job, seen, now);
  job.awaits = awaited(seen.status, queue);
  const bool is_running = job.is_true(words::kRunning);
  if (is_running && !was_running) job.progress_at = now.wall;
  if (job.is_true(words::kSuspended) || seen.status.finished()) {
    job.wanted_since.reset();
  } else if (was_suspended && !is_new) {
    job.wanted_since = now.mono;
  } else if (is_new && seen.status.membership_epoch == 0) {
    job.wanted_since = waiting_since(seen, now);
  }
  if (!is_running || !job.wanted_since) return std::nullopt;
  const double took = seconds_of(now.mono - *job.wanted_since);
  job.wanted_since.reset();
  return took;
}

void JobBook::take_status(Job& job, const api::TrainingJob& seen, Now now) {
  const api::TrainingJobStatus& status = seen.status;
  const bool was_pending = job.is_pending();
  if (const std::string_view phase = phase_of(status.phase); phase != job.phase) {
    job.phase_seconds[job.phase] += seconds_of(now.mono - job.phase_since);
    job.phase = phase;
    job.phase_since = now.mono;
    if (job.is_pending() && !was_pending) job.pending_since = now.mono;
  }
  if (!status.finished()) {
    job.ended_at.reset();
  } else if (!job.ended_at) {
    job.ended_at = local_time(status.completion_time, now);
  }
  job.conditions.clear();
  for (const auto& condition : status.conditions) {
    const auto* const type = std::find(kConditions.begin(), kConditions.end(), condition.type);
    if (type == kConditions.end()) continue;
    job.conditions.emplace_back(*type, status_of(condition.status));
  }
  job.is_training = seen.spec.training.has_value();
  job.saves = job.is_training && seen.spec.training->checkpoint.has_value();
  job.batch_size = seen.spec.training ? seen.spec.training->batch_size : 0;
  job.start_attempt = status.start_attempt;
  job.workers = std::atoi(status.workers.c_str());  // "2/3": those that run
  job.target_workers = status.target_workers;
  job.restarts = std::max(job.restarts, status.restarts);
  job.taken_back = status.taken_back;
  job.failure = status.failure ? reason_of(status.failure->reason) : "";
  if (status.progress && !job.step) {
    job.step = status.progress->step;
    job.total_steps = status.progress->total_steps;
  }
  const std::int64_t written = status.checkpoint ? status.checkpoint->step : -1;
  // Reports are ahead of status. Status goes back only where another start has begun below.
  if (written > job.checkpoint_step || written < job.written_checkpoint_step) {
    job.checkpoint_step = written;
    job.checkpoint_at = status.checkpoint ? status.checkpoint->time.value_or(now.wall) : WallTime();
  }
  job.written_checkpoint_step = written;
}

bool JobBook::speaks(const Job& job, const ProgressReport& report) {
  if (report.attempt < job.start_attempt) return false;
  const auto& members = report.members;
  return report.slot == (members.empty() ? 0 : *std::min_element(members.begin(), members.end()));
}

/// A change is reported again and again for a while: up to the newest that is known, all of them
/// count for nothing.
void JobBook::Job::go_back(const ProgressReport& report) {
  const auto& changes = report.changes;
  const auto is_newest_known = [this](const MembershipChange& change) {
    return change.kind == contract::change::kReturned && change.epoch == returned.epoch &&
           change.step == returned.step;
  };
  auto next = std::find_if(changes.rbegin(), changes.rend(), is_newest_known).base();
  for (; next != changes.end(); ++next) {
    const MembershipChange& change = *next;
    if (change.kind != contract::change::kReturned || !step) continue;
    const bool is_old = change.epoch < returned.epoch;
    if (is_old || change.step < 0 || change.step > *step) continue;
    repeated_steps += std::max<std::int64_t>(*step - change.step, 0);
    returned = {change.epoch, change.step, *step};
    step = change.step;
  }
}

/// Another operator has counted what was before the first report that has come here.
void JobBook::Job::skip_returns(const ProgressReport& report) {
  for (const MembershipChange& change : report.changes) {
    if (change.kind == contract::change::kReturned) returned = {change.epoch, change.step, -1};
  }
}

void JobBook::add(const api::ObjectKey& key, const ProgressReport& report, Now now) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end() || !report.has_progress() || !speaks(found->second, report)) return;
  Job& job = found->second;
  // Who was replaced while the others trained on has another attempt, and repeats nothing.
  const int attempt = job.start_attempt >= 0 ? job.start_attempt : report.attempt;
  if (attempt < job.attempt) return;
  const bool is_new_attempt = attempt > job.attempt;
  if (is_new_attempt) {
    const std::int64_t from = std::max<std::int64_t>(report.restored_step, 0);
    // Of what was before the first report, this operator knows nothing.
    const std::int64_t again = job.attempt < 0 ? 0 : job.step.value_or(from) - from;
    job.repeated_steps += std::max<std::int64_t>(again, 0);
    job.reported_at = std::max(job.reported_at, job.phase_since);
    job.returned = {};
    if (job.attempt < 0) job.skip_returns(report);
    job.attempt = attempt;
  } else {
    job.go_back(report);
  }
  const bool is_after_return =
      job.is_behind_return() && report.membership_epoch >= job.returned.epoch;
  if (!is_new_attempt && !is_after_return && job.step && report.step < *job.step) {
    return;  // of another worker, from before
  }
  const bool has_moved = !job.step || report.step != *job.step;
  job.step = report.step;
  job.total_steps = report.total_steps;
  if (has_moved) job.progress_at = now.wall;
  if (report.step > job.most_steps) {
    if (report.samples_per_second > 0) {
      const double each = job.batch_size / report.samples_per_second;
      // No more than the time that has passed: the rate is a smoothed one.
      job.productive_seconds += std::min(each * static_cast<double>(report.step - job.most_steps),
                                         seconds_of(now.mono - job.reported_at));
    }
    job.most_steps = report.step;
  }
  if (report.checkpoint_step > job.checkpoint_step) {
    job.checkpoint_step = report.checkpoint_step;
    job.checkpoint_at = now.wall;
  }
  // Who has nothing new to tell reports nevertheless, in the middle of a long step, too.
  if (has_moved || is_new_attempt) job.reported_at = now.mono;
}

void JobBook::add(const api::ObjectKey& key, const api::JobCost& cost) {
  const auto found = jobs_.find(key);
  if (found == jobs_.end()) return;
  found->second.cost.reset();
  if (cost.amount) {
    found->second.cost = static_cast<double>(*cost.amount) / static_cast<double>(api::kOne);
  }
  // It becomes a label, and status is anybody's.
  found->second.currency = api::is_currency(cost.currency) ? cost.currency : "";
}

template <typename Add>
void JobBook::each(Page& page, const Family& family, Add&& add) const {
  page.begin(family);
  for (const auto& [key, job] : jobs_) {
    if (job.is_past(page.now()) && !family.is_of_past) continue;
    const auto put = [&page, &name = key](double value, const Page::Labels& more = {}) {
      Page::Labels labels{{"namespace", name.namespace_name}, {"training_job", name.name}};
      labels.insert(labels.end(), more.begin(), more.end());
      page.add(std::move(labels), value);
    };
    add(job, put);
  }
}

void JobBook::render_state(Page& page) const {
  std::map<std::string_view, int> by_phase;
  for (const auto& [key, job] : jobs_) ++by_phase[job.phase];
  page.begin({name::kJobs, "Jobs that are there, by phase.", kGauge});
  for (const auto phase : kPhases) page.add({{"phase", std::string(phase)}}, by_phase[phase]);

  each(page, {name::kJobCondition, "1 for the status that the condition has.", kGauge, kAlsoOfPast},
       [&](const Job& job, const auto& put) {
         const bool is_past = job.is_past(page.now());
         for (const auto& [type, status] : job.conditions) {
           for (const auto one : kStatuses) {
             if (is_past && (status != one || status != kTrue)) continue;
             put(status == one ? 1 : 0,
                 {{"type", std::string(type)}, {"status", std::string(one)}});
           }
         }
       });
  each(page, {name::kJobWorkers, "Workers that run.", kGauge},
       [](const Job& job, const auto& put) { put(job.workers); });
  each(page, {name::kJobTargetWorkers, "Workers of the gang as decided.", kGauge},
       [](const Job& job, const auto& put) { put(job.target_workers); });
  each(page, {name::kJobRestarts, "Gang restarts that count against maxRestarts.", kCounter},
       [](const Job& job, const auto& put) { put(job.restarts); });
  each(page, {name::kJobShrinks, "How often it was asked to shrink for another job.", kCounter},
       [](const Job& job, const auto& put) { put(job.taken_back.shrinks); });
  each(page, {name::kJobPreemptions, "How often it was preempted for another job.", kCounter},
       [](const Job& job, const auto& put) { put(job.taken_back.preemptions); });
  each(page,
       {name::kJobLostSeconds, "Processes times time since the checkpoint, of preemptions.",
        kCounter},
       [](const Job& job, const auto& put) {
         put(static_cast<double>(job.taken_back.lost_process_seconds));
       });
  each(page, {name::kJobCost, "What it has cost, as far as that is known.", kGauge, kAlsoOfPast},
       [](const Job& job, const auto& put) {
         if (job.cost) put(*job.cost, {{"currency", job.currency}});
       });
  each(page, {name::kJobStep, "Newest step.", kGauge}, [](const Job& job, const auto& put) {
    if (job.step) put(static_cast<double>(*job.step));
  });
  each(page, {name::kJobTotalSteps, "Steps of the whole training.", kGauge},
       [](const Job& job, const auto& put) {
         if (job.step) put(static_cast<double>(job.total_steps));
       });
}

void JobBook::render_checkpoint(Page& page) const {
  each(page, {name::kJobCheckpointStep, "Step of the newest complete checkpoint.", kGauge},
       [](const Job& job, const auto& put) {
         if (job.saves || job.checkpoint_step >= 0) put(static_cast<double>(job.checkpoint_step));
       });
  each(page, {name::kJobCheckpointTime, "When the newest complete checkpoint was seen.", kGauge},
       [](const Job& job, const auto& put) {
         if (job.checkpoint_step >= 0) put(epoch_seconds(job.checkpoint_at));
       });
  each(page,
       {name::kJobProgressTime, "When a running training was last seen to make a step.", kGauge},
       [](const Job& job, const auto& put) {
         if (job.is_training && job.is_true(words::kRunning)) put(epoch_seconds(job.progress_at));
       });
}

void JobBook::render_times(Page& page) const {
  each(page,
       {name::kJobPendingSeconds, "How long the job has been waiting for its workers.", kGauge},
       [&](const Job& job, const auto& put) {
         if (!job.is_pending()) return put(0);
         put(seconds_of(page.now() - job.pending_since), {{"awaits", std::string(job.awaits)}});
       });
  each(page, {name::kJobPhaseSeconds, "Time spent in each phase.", kCounter},
       [&](const Job& job, const auto& put) {
         for (const auto phase : kPhases) {
           const auto past = job.phase_seconds.find(phase);
           double time = past == job.phase_seconds.end() ? 0 : past->second;
           if (job.phase == phase) time += seconds_of(page.now() - job.phase_since);
           put(time, {{"phase", std::string(phase)}});
         }
       });
  each(page,
       {name::kJobProductiveSeconds, "Time spent in steps made for the first time.", kCounter},
       [](const Job& job, const auto& put) {
         if (job.is_training) put(job.productive_seconds);
       });
  each(page, {name::kJobRepeatedSteps, "Steps that were made again after restarts.", kCounter},
       [](const Job& job, const auto& put) {
         if (job.is_training) put(static_cast<double>(job.repeated_steps));
       });
  each(page, {name::kJobFailure, "1 for the reason of the last failure.", kGauge, kAlsoOfPast},
       [](const Job& job, const auto& put) {
         if (!job.failure.empty()) put(1, {{"reason", job.failure}});
       });
}

std::string JobBook::render(Now now) const {
  Page page(jobs_.size(), now);
  render_state(page);
  render_checkpoint(page);
  render_times(page);
  return page.take();
}

}  // namespace muster::runtime
