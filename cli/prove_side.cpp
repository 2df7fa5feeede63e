#include "cli/prove_side.h"

#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "common/contract.h"

namespace muster::cli {
namespace {

constexpr milliseconds kGrace{10'000};
/// Reports wait for one thread that takes them many times a second.
constexpr std::size_t kReportsMax = 4096;

/// Processes that `pid` has started.
std::vector<int> children_of(int pid) {
  const std::string text = std::to_string(pid);
  std::ifstream file("/proc/" + text + "/task/" + text + "/children");
  return {std::istream_iterator<int>(file), std::istream_iterator<int>()};
}

/// Empty when there is no such file.
std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// "digits-1a2b3-<slot>-<attempt>"; -1 for another name.
int slot_of_pod(const std::string& name) {
  const std::size_t last = name.rfind('-');
  const std::size_t before = last == std::string::npos ? last : name.rfind('-', last - 1);
  if (before == std::string::npos) return -1;
  return std::atoi(name.substr(before + 1, last - before - 1).c_str());
}

}  // namespace

ProveSide::ProveSide(const LocalRunOptions& options, LocalJob job, OutputDirectory directory)
    : options_(options),
      job_(std::move(job)),
      directory_(std::move(directory)),
      follower_(job_.job.meta.name) {}

Result<std::unique_ptr<ProveSide>> ProveSide::start(const LocalRunOptions& options, LocalJob job,
                                                    const std::string& directory, int pace_ms) {
  MUSTER_ASSIGN_OR_RETURN(OutputDirectory made,
                          OutputDirectory::open(directory, job.normalised, Earlier::kRemoved));
  std::unique_ptr<ProveSide> side(new ProveSide(options, std::move(job), std::move(made)));
  MUSTER_RETURN_IF_ERROR(side->create(pace_ms));
  return side;
}

Status ProveSide::create(int pace_ms) {
  LocalClusterOptions wanted = cluster_options(options_, job_, directory_);
  wanted.extra_env.emplace_back(contract::kEnvPaceMs, std::to_string(pace_ms));
  wanted.on_progress = [this](const ProgressReport& report) { post_progress(report); };
  MUSTER_ASSIGN_OR_RETURN(run_, start_job(std::move(wanted), job_, follower_));
  return {};
}

void ProveSide::post_progress(const ProgressReport& report) {
  {
    const std::lock_guard lock(mutex_);
    if (reports_.size() < kReportsMax) reports_.push_back(report);
  }
  follower_.post_progress(report);
}

bool ProveSide::take_news() {
  JobFollower::News news = follower_.take();
  std::vector<ProgressReport> reports;
  {
    const std::lock_guard lock(mutex_);
    reports.swap(reports_);
  }
  bool has_stepped = false;
  for (ProgressReport& report : reports) {
    has_stepped = signs_.take(report) || has_stepped;
    // Every survivor tells of a change; it is counted once, with the longest stall.
    for (const MembershipChange& change : report.changes) {
      const auto same = std::find_if(changes_.begin(), changes_.end(), [&](const auto& known) {
        return known.epoch == change.epoch && known.slot == change.slot &&
               known.kind == change.kind;
      });
      if (same == changes_.end()) {
        changes_.push_back(change);
      } else {
        same->stall_ms = std::max(same->stall_ms, change.stall_ms);
      }
    }
    if (report.step >= progress_.step) progress_ = std::move(report);
  }
  if (!news.job || ending_) return has_stepped;
  auto [job, verdict] = api::read_training_job(*news.job);
  status_ = job.status;
  ending_ = ending_of(job);
  if (!ending_ && news.is_deleted) {
    ending_ = Ending{"Failed", "the job was deleted", contract::exit_code::kFailedJob};
  }
  return has_stepped;
}

std::int64_t ProveSide::newest_step() const {
  return std::max(progress_.step, newest_recorded_step(record_path()));
}

std::string ProveSide::record_path() const {
  return directory_.checkpoints() + "/" + std::string(contract::kRecordFile);
}

std::optional<std::string> ProveSide::strike(const Disturbance& disturbance) {
  if (disturbance.blow == Blow::kResize) {
    const Status resized = run_.cluster->set_workers(job_.job.meta.key().text(), disturbance.size);
    if (!resized) {
      return "resize to " + std::to_string(disturbance.size) + ": " + resized.error().message();
    }
    return describe(disturbance, -1);
  }
  const std::map<std::string, int> running = run_.cluster->running();
  if (running.empty()) return std::nullopt;
  const auto victim =
      std::next(running.begin(), static_cast<std::ptrdiff_t>(disturbance.choice % running.size()));
  const int slot = slot_of_pod(victim->first);
  if (disturbance.blow == Blow::kKillWorker || disturbance.blow == Blow::kLeave) {
    const int sent = disturbance.blow == Blow::kLeave ? SIGTERM : SIGKILL;
    if (::kill(victim->second, sent) != 0) return std::nullopt;
    return describe(disturbance, slot);
  }
  const std::vector<int> trainers = children_of(victim->second);
  if (trainers.empty()) return std::nullopt;
  const MonoTime until = options_.clock->mono_now() + disturbance.lasts;
  if (disturbance.blow == Blow::kFreezeTrainer) {
    freeze(trainers[0], until);
  } else if (disturbance.blow == Blow::kFreezeWorker) {
    // The sentinel first: it must not take its trainer's stillness for a hang.
    freeze(victim->second, until);
    for (const int trainer : trainers) freeze(trainer, until);
  } else if (disturbance.blow == Blow::kFreezeSentinel) {
    freeze(victim->second, until);
  } else if (::kill(trainers[0], SIGKILL) != 0) {
    return std::nullopt;
  }
  return describe(disturbance, slot);
}

void ProveSide::freeze(int pid, MonoTime until) {
  (void)::kill(pid, SIGSTOP);
  frozen_[pid] = until;
}

void ProveSide::thaw(MonoTime now) {
  std::erase_if(frozen_, [&](const auto& one) {
    if (one.second > now) return false;
    (void)::kill(one.first, SIGCONT);
    return true;
  });
}

void ProveSide::stop() {
  thaw(MonoTime::max());
  run_.stop(is_over() ? kGrace : milliseconds(0));
}

Result<RunRecord> ProveSide::record() const { return read_run_record(record_path()); }

std::string ProveSide::model_bytes() const {
  return bytes_of(directory_.checkpoints() + "/model.safetensors");
}

std::string ProveSide::optimizer_bytes() const {
  const std::string checkpoints = directory_.checkpoints();
  return bytes_of(checkpoints + "/" + checkpoint_name(newest_checkpoint_step(checkpoints)) +
                  "/optimizer.safetensors");
}

}  // namespace muster::cli
