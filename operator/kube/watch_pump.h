// Drives the Watcher of one kind over a client: one request or one line at a time, so that a thread
// and a simulation run the same code.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "common/clock.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watcher.h"

namespace muster::kube {

/// What a watch saw, in order.
struct WatchBatch {
  api::Kind kind = api::Kind::kTrainingJob;
  std::vector<WatchEvent> events;
  std::size_t bytes = 0;  ///< of the text that they came in
};

/// For an operator: of large clusters, and without what its parsers pass over (api::unread_of).
WatcherOptions lean_watcher(api::Kind kind);

struct WatchPumpOptions {
  ApiClient* client = nullptr;
  const Clock* clock = nullptr;
  api::Kind kind = api::Kind::kTrainingJob;
  std::string namespace_name;  ///< ignored for kinds without namespaces
  std::uint64_t seed = 1;
  WatcherOptions watcher;
  /// The kind need not be there, nor may it have to be read: until it can be, its list is empty.
  bool is_optional = false;
  std::function<void(WatchBatch)> sink;
  /// Called when its relists or bad lines have become more; empty: nobody is told.
  std::function<void(const Watcher&)> on_trouble;
};

/// Threads: one, and close() from any.
class WatchPump {
 public:
  explicit WatchPump(WatchPumpOptions options);
  ~WatchPump();

  enum class Did { kWork, kNothing };
  /// One list page, one watch opened, or the lines that are there, waiting for the first at most
  /// `idle`. kNothing: none came, or the watcher waits (until wake()).
  Did step(milliseconds idle);
  /// When a watcher that waits goes on.
  std::optional<MonoTime> wake() const;
  /// Ends a step() under way, and every later one at once.
  void close();

 private:
  Did read_lines(milliseconds idle);
  Did ask();
  void deliver(std::vector<WatchEvent> events, std::size_t bytes = 0);
  void warn(const char* what, const Error& error) const;
  bool is_missing(const Status& asked, bool was_there);
  void do_without(ErrorCode why);
  void tell_trouble();
  void set_stream(std::unique_ptr<HttpStream> stream);

  WatchPumpOptions options_;
  Watcher watcher_;
  std::optional<MonoTime> look_again_;     ///< of a kind that is not there
  std::optional<MonoTime> missing_since_;  ///< as the API server has said since then
  std::size_t forbidden_ = 0;              ///< so often in a row it was not to be read, at most
  bool was_told_ = false;                  ///< that it is not
  std::int64_t told_relists_ = 0, told_bad_lines_ = 0;
  std::mutex mutex_;
  std::shared_ptr<HttpStream> stream_;  // replaced under mutex_, read by the one thread
  bool closed_ = false;                 // guarded by mutex_
};

}  // namespace muster::kube
