#include "worker/files_watch.h"

#include <utility>

namespace muster::worker {
namespace {

/// Others wait 30 s in a step for one that stands.
constexpr seconds kLongStanding{10};
/// Nobody waits for a checkpoint that is written beside the steps, and a large one takes its time.
constexpr seconds kLongSaving{30};

}  // namespace

void FilesWatch::set(Thread thread, std::string_view path, MonoTime now) {
  const std::lock_guard lock(mutex_);
  Work& work = work_[static_cast<std::size_t>(thread)];
  work.is_end_due = work.is_end_due || work.told > seconds(0);
  work.path = path;
  work.since = now;
  work.told = seconds(0);
}

bool FilesWatch::is_busy(Thread thread) const {
  const std::lock_guard lock(mutex_);
  return !work_[static_cast<std::size_t>(thread)].path.empty();
}

std::optional<sentinel::FilesMessage> FilesWatch::take(MonoTime now) {
  const std::lock_guard lock(mutex_);
  for (const Thread thread : {Thread::kTraining, Thread::kSaving}) {
    Work& work = work_[static_cast<std::size_t>(thread)];
    const bool is_saving = thread == Thread::kSaving;
    if (std::exchange(work.is_end_due, false)) return sentinel::FilesMessage{0, is_saving};
    const seconds due = work.told > seconds(0) ? 2 * work.told
                        : is_saving            ? kLongSaving
                                               : kLongStanding;
    if (work.path.empty() || now - work.since < due) continue;
    work.told = due;
    return sentinel::FilesMessage{due.count(), is_saving, work.path};
  }
  return std::nullopt;
}

}  // namespace muster::worker
