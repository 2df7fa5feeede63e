// Drives the Watcher of one kind over a client: one request or one line at a time, so that a thread
// and a simulation run the same code.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "common/clock.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watcher.h"
#include "operator/runtime/mailbox.h"
#include "operator/runtime/metrics.h"

namespace muster::runtime {

struct WatchPumpOptions {
  kube::ApiClient* client = nullptr;
  const Clock* clock = nullptr;
  api::Kind kind = api::Kind::kTrainingJob;
  std::string namespace_name;  ///< ignored for kinds without namespaces
  std::uint64_t seed = 1;
  kube::WatcherOptions watcher;
  /// The kind need not be there, nor may it have to be read: until it can be, its list is empty.
  bool is_optional = false;
  Metrics* metrics = nullptr;  ///< nullptr: nobody is told
  std::function<void(WatchBatch)> sink;
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
  void deliver(std::vector<kube::WatchEvent> events, std::size_t bytes = 0);
  void warn(const char* what, const Error& error) const;
  bool is_missing(const Error& error) const;
  void do_without();
  void tell_metrics();
  void set_stream(std::unique_ptr<kube::HttpStream> stream);

  WatchPumpOptions options_;
  kube::Watcher watcher_;
  std::optional<MonoTime> look_again_;  ///< of a kind that is not there
  bool was_told_ = false;               ///< that it is not
  std::int64_t told_relists_ = 0, told_bad_lines_ = 0;
  std::mutex mutex_;
  std::shared_ptr<kube::HttpStream> stream_;  // replaced under mutex_, read by the one thread
  bool closed_ = false;                       // guarded by mutex_
};

}  // namespace muster::runtime
