#include "operator/core/progress.h"

#include <algorithm>

#include "operator/core/members.h"
#include "operator/core/status_edit.h"
#include "operator/core/step_forecast.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

constexpr std::int64_t kMaxEtaSeconds = 10LL * 365 * 24 * 3600;
/// The schema's bound of counts: a number beyond it would have every write of the status refused.
constexpr std::int64_t kMaxCount = (std::int64_t{1} << 53) - 1;

std::int64_t count_of(std::int64_t said) { return std::clamp<std::int64_t>(said, 0, kMaxCount); }

void take_checkpoint(api::TrainingJobStatus& status, const ProgressReport& report,
                     const JobSnapshot& snapshot) {
  auto& known = status.checkpoint;
  // Before a first step of its own a worker names only what training has begun from.
  const std::int64_t step = std::max(report.checkpoint_step, report.restored_step);
  if (step > kMaxCount) return;
  // A lower one is late, or of a worker that has not heard of the newest. What an earlier start
  // has saved is another thing: it is gone, damaged or elsewhere where training begins below it.
  const bool is_of_earlier_start =
      known && known->start_attempt != status.start_attempt && report.has_progress();
  if (known && step <= known->step && !is_of_earlier_start) return;
  if (step < 0) {
    known.reset();
    return;
  }
  const bool is_same = known && known->step == step;
  api::CheckpointStatus checkpoint;
  checkpoint.step = step;
  checkpoint.time = is_same ? known->time : whole_seconds(snapshot.now);
  checkpoint.durable = report.checkpoint_durable;
  checkpoint.path = head_of(report.checkpoint_path, words::kMaxPathBytes);
  checkpoint.start_attempt = status.start_attempt;
  known = std::move(checkpoint);
}

void take_progress(api::TrainingJobStatus& status, const ProgressReport& report,
                   const JobSnapshot& snapshot) {
  api::Progress progress;
  progress.step = count_of(report.step);
  progress.total_steps = count_of(report.total_steps);
  progress.epoch = count_of(report.epoch);
  // Who goes on from a checkpoint knows neither before its first step and its first evaluation.
  const bool goes_on = status.progress && report.restored_step >= 0;
  const api::Progress before = goes_on ? *status.progress : api::Progress();
  progress.loss = is_decimal(report.loss) ? report.loss : before.loss;
  progress.accuracy = is_decimal(report.accuracy) ? report.accuracy : before.accuracy;
  progress.samples_per_second = decimal(report.samples_per_second, 1);
  if (report.step_seconds > 0) {
    progress.step_milliseconds = decimal(report.step_seconds * 1e3, 3);
    progress.exchange_milliseconds = decimal(std::max(0.0, report.exchange_seconds) * 1e3, 3);
    const auto& written = snapshot.job.status.progress;
    if (written && (is_recent(snapshot) || !snapshot.topology)) {
      progress.predicted_step_milliseconds = written->predicted_step_milliseconds;
    } else if (snapshot.topology) {
      const auto predicted =
          forecast_seconds(snapshot.job, report, snapshot.reports, *snapshot.topology);
      if (predicted) progress.predicted_step_milliseconds = decimal(*predicted * 1e3, 3);
    }
  }
  const bool known = report.eta_seconds >= 0 && report.eta_seconds < kMaxEtaSeconds;
  progress.eta_seconds = known ? static_cast<std::int64_t>(report.eta_seconds) : -1;
  if (status.progress) progress.updated_at = status.progress->updated_at;
  if (!status.progress || !(progress == *status.progress)) {
    progress.updated_at = whole_seconds(snapshot.now);
    status.progress = std::move(progress);
  }
}

}  // namespace

const ProgressReport* newest_report(const JobSnapshot& snapshot, const GangView& gang) {
  const ProgressReport* first = nullptr;
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr) continue;
    // A worker that is still to be let in knows nothing of how far training is.
    if (is_member(snapshot, member)) return report;
    if (first == nullptr) first = report;
  }
  return first;
}

std::optional<ProgressReport> last_word(const GangView& gang) {
  if (gang.members.empty()) return std::nullopt;
  const Member& first = gang.members.front();
  if (first.pod == nullptr || !first.pod->termination) return std::nullopt;
  const std::string& message = first.pod->termination->message;
  if (message.size() > words::kMaxTerminationBytes) return std::nullopt;
  const auto json = parse_json(message);
  if (!json || !json->is_object()) return std::nullopt;
  auto report = parse_progress_report(*json);
  if (!report || report->slot != first.placement.slot) return std::nullopt;
  return std::move(*report);
}

bool is_recent(const JobSnapshot& snapshot) {
  const auto& last = snapshot.job.status.progress;
  return last && last->updated_at && snapshot.now - *last->updated_at < words::kProgressInterval &&
         snapshot.now >= *last->updated_at;
}

void take_report(api::TrainingJobStatus& status, const ProgressReport& report,
                 const JobSnapshot& snapshot) {
  if (report.has_progress()) take_progress(status, report, snapshot);
  take_checkpoint(status, report, snapshot);
  if (report.model_parameters > 0) status.model_parameters = count_of(report.model_parameters);
  if (is_sha256(report.model_sha256)) status.model_sha256 = report.model_sha256;
  if (is_sha256(report.data_sha256)) status.data_sha256 = report.data_sha256;
}

}  // namespace muster::core
