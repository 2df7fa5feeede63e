// List and watch of one kind as a state machine without IO: the caller performs the request it asks
// for and feeds in what came back. Missed deletions show at InitDone, which swaps the store
// atomically. A list comes in pages, or as the beginning of a watch (KEP-3157), which neither side
// has to hold at once.
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
    kDelete,     ///< deleted, maybe while a list comes; `object` is its last state
  };
  Type type;
  Json object;  ///< null for kInitStart and kInitDone
};

/// What the caller does next.
struct ListRequest {
  std::string continue_token;
  int limit = 0;  ///< of objects in the page
};
struct WatchRequest {
  std::string resource_version;
  bool begins_with_list = false;  ///< everything that is there comes first
};
struct WaitRequest {
  MonoTime until;
};  ///< back-off; ask again afterwards
using WatcherRequest = std::variant<ListRequest, WatchRequest, WaitRequest>;

struct WatcherOptions {
  milliseconds backoff_least{800};
  milliseconds backoff_most{30'000};
  milliseconds silence{90'000};  ///< no line for so long: the watch is taken for dead
  /// A list that comes as a stream: from one object to the next or to its end, and in all, for
  /// where objects come for ever, as changes, it is never at its end.
  milliseconds list_pause{60'000}, list_most{600'000};
  int page_most = 100;  ///< objects of a page; fewer where a page would be too large
  std::span<const LeftOut> left_out = api::kUnreadOfAny;  ///< of the objects; outlives the watcher
  bool streams_lists = false;  ///< asks for lists as the beginning of a watch, until one is refused
};

/// Threads: one. States: Empty -> InitPages or InitStream -> Watching; 410 -> Empty.
class Watcher {
 public:
  explicit Watcher(std::uint64_t seed, WatcherOptions options = {});

  WatcherRequest next(MonoTime now) const;

  /// Results of the request that next() asked for; the returned events go to the store in order.
  std::vector<WatchEvent> on_list(MonoTime now, Result<ListPage> page);
  std::vector<WatchEvent> on_watch_opened(MonoTime now, const Status& opened);
  /// One line of the stream. A line that is no event ends the watch (counted, re-opened): look at
  /// streaming() after every line.
  std::vector<WatchEvent> on_line(MonoTime now, const std::string& line);
  /// No line has come for a moment. Ends a watch that has been silent for too long: after the
  /// second such watch in a row what is true now only a list can tell. Ends a list whose end does
  /// not come, too: the server is asked for pages then.
  void on_quiet(MonoTime now);
  /// The stream ended (ok) or broke. 410 inside the stream arrives as a line. After a line that is
  /// too large (kTooLarge) the watch would begin with the same one again: what there is is listed.
  std::vector<WatchEvent> on_end(MonoTime now, const Status& end);

  /// The list that has begun will not come to its end: the next one asks for everything anew.
  void give_up_list();

  /// Whether the open stream is worth reading. When it turns false, close the stream (on_end is
  /// then not needed) and ask next().
  bool streaming() const { return streaming_; }
  bool synced() const { return synced_; }
  /// Full lists begun after the first.
  std::int64_t relists() const { return relists_; }
  /// Lines that were no usable event.
  std::int64_t bad_lines() const { return bad_lines_; }

 private:
  enum class State { kEmpty, kInitPages, kInitStream, kWatching };
  bool streams_list() const { return may_stream_ && !pages_next_; }
  bool is_late(MonoTime now) const;
  void give_up_late_list(MonoTime now);
  std::vector<WatchEvent> take_line(MonoTime now, const std::string& line);
  WatchEvent begin_list();
  /// At least `asked`, which the server wants.
  void back_off(MonoTime now, seconds asked = seconds(0));
  void relist(MonoTime now);
  /// A list that came as a stream and broke off is begun anew, in pages.
  void give_up_stream();
  std::vector<WatchEvent> on_bookmark(MonoTime now, const Json& object);
  std::vector<WatchEvent> bad_line(MonoTime now);
  std::vector<WatchEvent> on_error_event(MonoTime now, const Json& status);
  /// Whether the stream may go on after an event with this resourceVersion.
  bool advance(MonoTime now, const std::string& resource_version);

  State state_ = State::kEmpty;
  WatcherOptions options_;
  Rng rng_;
  std::string continue_token_;
  int page_size_;
  std::string resource_version_;
  std::optional<MonoTime> wait_until_;
  MonoTime opened_at_{}, listed_at_{}, last_line_{};
  int failures_ = 0;
  int bad_lines_in_a_row_ = 0;
  int silences_in_a_row_ = 0;
  bool streaming_ = false;
  bool progressed_ = false;  ///< a good line since the stream was opened
  bool may_stream_ = false;
  bool pages_next_ = false;
  bool listed_ = false;
  bool synced_ = false;
  std::int64_t relists_ = 0;
  std::int64_t bad_lines_ = 0;
};

}  // namespace muster::kube
