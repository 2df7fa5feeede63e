// The logs of a set of pods, each through a kubectl of its own, as lines in the order of time.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/kube_objects.h"
#include "cli/kubectl.h"
#include "cli/log_merge.h"

namespace muster::cli {

/// `tail` and `since` are of the logs that are there at the beginning, which are those added before
/// the first turn(): of one that comes later everything is new.
struct LogReaderOptions {
  bool follows = false;
  std::int64_t tail = -1;
  std::string since;
};

/// What tells a pod's log from those of other pods, and of its other containers.
std::string log_name(const PodView& pod);

/// Threads: one. A slow reader of the lines slows the kubectls down; nothing piles up. A log that
/// is not followed and of which nothing comes for a minute ends there: the others' lines wait for
/// it.
class LogReader {
 public:
  /// A line with the pod it is of. False: nobody reads any more.
  using Emit = std::function<bool(const PodView&, const LogLine&)>;

  LogReader(Kubectl& kubectl, const LogReaderOptions& options, Emit emit);

  /// Starts to read a pod's log; once more when a reader that followed has lost it: then from its
  /// last line on. Whoever adds bounds how many are read at once. Errors: kIo.
  Status add(const PodView& pod);
  /// Whether this pod's log is being read now.
  bool is_reading(const PodView& pod) const;
  bool is_reading() const { return !sources_.empty(); }
  /// How many logs are being read now, each through a kubectl of its own.
  std::size_t count() const { return sources_.size(); }
  /// Whether the last attempt to read this pod's log ended early.
  bool has_failed(const PodView& pod) const { return failed_.contains(log_name(pod)); }

  /// Waits for lines until `until`, or less when something happened, and hands them on.
  /// Errors: kAborted on a signal or when nobody reads any more.
  Status turn(MonoTime until);
  /// Hands on what is left.
  Status finish();

  /// What went wrong with single logs since the last call, a sentence each; of a log that goes on
  /// failing in the same way once.
  std::vector<std::string> take_complaints() { return std::exchange(complaints_, {}); }

 private:
  struct Source {
    PodView pod;
    KubeProcess process;
    nanoseconds silence{0};  ///< how long it was listened to in vain
  };
  struct Moment {
    MonoTime now;
    nanoseconds waited;
  };
  void hear(int id, Source& source, const Moment& moment);
  void end(int id, const Source& source, const Status& read);
  Status hand_on();

  Kubectl& kubectl_;
  LogReaderOptions options_;
  Emit emit_;
  LogMerger merger_;
  int next_id_ = 0;
  std::map<int, Source> sources_;
  std::map<int, PodView> pods_;  ///< of every stream that may still have lines
  /// The time of the last line of each log that was followed, for going on after it.
  std::map<std::string, LogLine> last_lines_;
  std::map<std::string, std::int64_t> skip_until_;
  std::set<std::string> first_;  ///< the logs that were there at the beginning
  bool has_begun_ = false;
  std::map<std::string, std::string> failed_;  ///< by log what was said of it
  std::vector<std::string> complaints_;
  std::array<char, 65536> buffer_;
};

}  // namespace muster::cli
