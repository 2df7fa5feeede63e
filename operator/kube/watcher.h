// List and watch of one kind as a state machine without IO: the caller performs the request it asks
// for and feeds in what came back. Missed deletions show at InitDone, which swaps the store
// atomically.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "common/rng.h"
#include "operator/kube/api_client.h"

namespace muster::kube {

/// What the store must do.
struct WatchEvent {
  enum class Type {
    kInitStart,  ///< a full list begins; keep serving the old content
    kInitApply,  ///< one object of the list
    kInitDone,   ///< the list is whole: everything not in it is gone
    kApply,      ///< added or modified
    kDelete,     ///< deleted; `object` is its last state
  };
  Type type;
  Json object;  ///< null for kInitStart and kInitDone
};

/// What the caller does next.
struct ListRequest {
  std::string continue_token;
};
struct WatchRequest {
  std::string resource_version;
};
struct WaitRequest {
  MonoTime until;
};  ///< back-off; ask again afterwards
using WatcherRequest = std::variant<ListRequest, WatchRequest, WaitRequest>;

struct WatcherOptions {
  milliseconds backoff_least{800};
  milliseconds backoff_most{30'000};
  milliseconds silence{90'000};  ///< no line for so long: the watch is taken for dead
};

/// Threads: one. States: Empty -> InitPages -> Watching; 410 -> Empty.
class Watcher {
 public:
  explicit Watcher(std::uint64_t seed, WatcherOptions options = {});

  WatcherRequest next(MonoTime now) const;

  /// Results of the request that next() asked for; the returned events go to the store in order.
  std::vector<WatchEvent> on_list(MonoTime now, Result<ListPage> page);
  std::vector<WatchEvent> on_watch_opened(MonoTime now, const Status& opened);
  /// One line of the stream. A line that is no event ends the watch (counted, re-opened).
  std::vector<WatchEvent> on_line(MonoTime now, const std::string& line);
  /// The stream ended (ok) or broke. 410 inside the stream arrives as a line.
  std::vector<WatchEvent> on_end(MonoTime now, const Status& end);

  bool synced() const { return synced_; }
  std::int64_t relists() const { return relists_; }

 private:
  enum class State { kEmpty, kInitPages, kWatching };
  void back_off(MonoTime now);

  State state_ = State::kEmpty;
  WatcherOptions options_;
  Rng rng_;
  std::string continue_token_;
  std::string resource_version_;
  std::optional<MonoTime> wait_until_;
  int failures_ = 0;
  bool synced_ = false;
  std::int64_t relists_ = 0;
};

}  // namespace muster::kube
