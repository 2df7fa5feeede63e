#include "cli/job_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/kube_objects.h"
#include "cli/report.h"

namespace muster::cli {
namespace {

constexpr int kBarCells = 10;

std::string bar(int percent) {
  const int full = percent * kBarCells / 100;
  return std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(kBarCells - full), '.');
}

std::string progress_cell(const api::TrainingJob& job, bool has_bar) {
  const int percent = percent_done(job);
  if (percent < 0) return "";
  const std::string number = std::to_string(percent) + "%";
  return has_bar ? bar(percent) + " " +
                       std::string(4 - std::min<std::size_t>(4, number.size()), ' ') + number
                 : number;
}

std::string step_cell(const api::TrainingJob& job) {
  if (!job.status.progress) return "";
  const api::Progress& progress = *job.status.progress;
  std::string text = std::to_string(progress.step);
  if (progress.total_steps > 0) text += "/" + std::to_string(progress.total_steps);
  return text;
}

/// Decimal text, times something, as a whole number; as it is when it cannot be read.
std::string whole(const std::string& decimal, std::int64_t times = 1) {
  char* end = nullptr;
  const double value = std::strtod(decimal.c_str(), &end) * static_cast<double>(times);
  if (decimal.empty() || end == decimal.c_str() || !(value >= 0 && value < 1e15)) return decimal;
  return grouped(std::llround(value));
}

void add_wide(std::vector<Cell>& row, const api::TrainingJob& job, WallTime now) {
  const api::TrainingJobStatus& status = job.status;
  row.push_back({status.progress ? status.progress->accuracy : ""});
  const bool has_checkpoint = status.checkpoint && status.checkpoint->step >= 0;
  row.push_back({has_checkpoint ? std::to_string(status.checkpoint->step) : ""});
  row.push_back({has_checkpoint ? age_text(status.checkpoint->time, now) : ""});
  row.push_back({job.spec.queue_name});
  row.push_back({status.placement.empty() ? "" : status.placement.front().domain});
  row.push_back({job.spec.worker.image});
}

}  // namespace

int percent_done(const api::TrainingJob& job) {
  if (!job.status.progress || job.status.progress->total_steps <= 0) return -1;
  const double share = static_cast<double>(job.status.progress->step) /
                       static_cast<double>(job.status.progress->total_steps);
  return static_cast<int>(std::clamp(share, 0.0, 1.0) * 100);
}

std::string status_word(const api::TrainingJob& job, WallTime now) {
  if (job.meta.deletion_time) return "Deleting";
  const api::TrainingJobStatus& status = job.status;
  if (!status.finished() && job.spec.suspend && !status.is_true("Suspended")) return "Suspending";
  if (!status.phase.empty()) return status.phase;
  const bool is_old = job.meta.creation_time && now - *job.meta.creation_time > kUnattendedAfter;
  return is_old ? "Unattended" : "Pending";
}

std::string speed_text(const api::TrainingJob& job) {
  if (!job.status.progress || job.status.progress->samples_per_second.empty()) return "";
  const std::string& samples = job.status.progress->samples_per_second;
  const std::int64_t tokens =
      job.spec.training ? tokens_per_sample_of(job.spec.training->model) : 0;
  return tokens > 0 ? whole(samples, tokens) + " tokens/s" : whole(samples) + " samples/s";
}

std::vector<std::string> job_columns(const JobTableOptions& options) {
  std::vector<std::string> columns;
  if (options.has_namespace) columns.emplace_back("NAMESPACE");
  for (const char* name : {"NAME", "STATUS", "WORKERS", ">STEP", ">PROGRESS", ">LOSS", ">SPEED",
                           ">ETA", ">RESTARTS", ">AGE"}) {
    columns.emplace_back(name);
  }
  if (!options.is_wide) return columns;
  for (const char* name : {">ACCURACY", ">CKPT-STEP", ">CKPT-AGE", "QUEUE", "DOMAIN", "IMAGE"}) {
    columns.emplace_back(name);
  }
  return columns;
}

std::vector<Cell> job_row(const api::TrainingJob& job, const JobTableOptions& options,
                          WallTime now) {
  const api::TrainingJobStatus& status = job.status;
  std::vector<Cell> row;
  if (options.has_namespace) row.push_back({job.meta.namespace_name});
  row.push_back({job.meta.name});
  const std::string word = status_word(job, now);
  row.push_back({word, colour_of_phase(word)});
  row.push_back({status.workers});
  row.push_back({step_cell(job)});
  row.push_back({progress_cell(job, options.has_bar)});
  row.push_back({status.progress ? status.progress->loss : ""});
  // Speed and end are of what runs; afterwards they would be the last words of a while ago.
  const bool runs = status.is_true("Running") && status.progress.has_value();
  row.push_back({runs ? speed_text(job) : ""});
  row.push_back({runs && status.progress->eta_seconds >= 0
                     ? short_duration(std::chrono::seconds(status.progress->eta_seconds))
                     : ""});
  row.push_back(
      {std::to_string(status.restarts), status.restarts > 0 ? Colour::kBusy : Colour::kNone});
  row.push_back({age_text(job.meta.creation_time, now)});
  if (options.is_wide) add_wide(row, job, now);
  return row;
}

}  // namespace muster::cli
