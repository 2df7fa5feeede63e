#include "worker/files_watch.h"

#include <utility>

namespace muster::worker {
namespace {

/// Others wait 30 s in a step for one that stands.
constexpr seconds kLongStanding{10};
/// Nobody waits for what is written beside the steps, and a large checkpoint takes its time.
constexpr seconds kLongSaving{30};

}  // namespace

void FilesWatch::set(Thread thread, std::string_view path, MonoTime now) {
  const std::lock_guard lock(mutex_);
  Work& one = work(thread);
  one.is_end_due = one.is_end_due || one.told > seconds(0);
  one.path = path;
  one.since = now;
  one.told = seconds(0);
}

bool FilesWatch::is_busy(Thread thread) const {
  const std::lock_guard lock(mutex_);
  return !work_[static_cast<std::size_t>(thread)].path.empty();
}

std::optional<sentinel::FilesMessage> FilesWatch::take(MonoTime now) {
  const std::lock_guard lock(mutex_);
  for (const Thread thread : {Thread::kTraining, Thread::kSaving, Thread::kRecording}) {
    Work& one = work(thread);
    const bool is_beside = thread != Thread::kTraining;
    if (std::exchange(one.is_end_due, false)) {
      const Work& other = work(thread == Thread::kSaving ? Thread::kRecording : Thread::kSaving);
      if (!is_beside || other.told == seconds(0)) return sentinel::FilesMessage{0, is_beside};
    }
    const seconds due = one.told > seconds(0) ? 2 * one.told
                        : is_beside           ? kLongSaving
                                              : kLongStanding;
    if (one.path.empty() || now - one.since < due) continue;
    one.told = due;
    return sentinel::FilesMessage{due.count(), is_beside, one.path};
  }
  return std::nullopt;
}

}  // namespace muster::worker
