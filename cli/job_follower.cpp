#include "cli/job_follower.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/kube_objects.h"
#include "common/check.h"
#include "common/contract.h"

namespace muster::cli {
namespace {
/// Attempts of workers remembered for the totals: far over what restarts allow in one command.
constexpr std::size_t kMaxWorkersRemembered = 100'000;
}  // namespace

JobFollower::JobFollower(std::string job_name)
    : job_name_(std::move(job_name)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(static_cast<bool>(wake_));
}

void JobFollower::wake() const {
  const std::uint64_t one = 1;
  // A full counter means that the reader is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void JobFollower::post_event(const kube::WatchEvent& event) {
  if (!event.object.is_object()) return;
  const auto metadata = event.object.find("metadata");
  if (metadata == event.object.end() || metadata->value("name", "") != job_name_) return;
  {
    const std::scoped_lock lock(mutex_);
    news_.job = event.object;
    news_.is_deleted = event.type == kube::WatchEvent::Type::kDelete;
  }
  wake();
}

void JobFollower::post_note(const kube::WatchEvent& event) {
  if (event.type == kube::WatchEvent::Type::kDelete) return;
  if (text_at(event.object, {"involvedObject", "name"}) != job_name_) return;
  if (text_at(event.object, {"type"}) != "Warning") return;
  if (text_at(event.object, {"reason"}) == contract::reason::kFailed) return;
  std::string note = text_at(event.object, {"message"});
  {
    const std::scoped_lock lock(mutex_);
    if (note.empty() || note == last_warning_) return;
    if (news_.warnings.size() == kWarningsMost) news_.warnings.erase(news_.warnings.begin());
    last_warning_ = note;
    news_.warnings.push_back(std::move(note));
  }
  wake();
}

void JobFollower::post_progress(const ProgressReport& report) {
  {
    const std::scoped_lock lock(mutex_);
    const auto worker = std::make_pair(report.slot, report.attempt);
    if (last_of_worker_.size() < kMaxWorkersRemembered || last_of_worker_.contains(worker)) {
      last_of_worker_[worker] = report;
    }
    if (report.slot == 0 && report.has_progress()) news_.progress = report;
  }
  wake();
}

JobFollower::News JobFollower::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  const std::scoped_lock lock(mutex_);
  News news = std::move(news_);
  news_ = {};
  return news;
}

JobFollower::Totals JobFollower::totals() const {
  const std::scoped_lock lock(mutex_);
  Totals totals;
  for (const auto& [worker, report] : last_of_worker_) {
    totals.sent_bytes += report.sent_bytes;
    totals.logical_rank_computations += report.logical_rank_computations;
  }
  return totals;
}

}  // namespace muster::cli
