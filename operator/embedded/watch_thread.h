// A thread that lists and watches one kind and hands every event to a callback, for users of the
// API server that have no loop of their own: the kubelet and the command line.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "common/clock.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watch_pump.h"

namespace muster::embedded {

struct WatchThreadOptions {
  kube::ApiClient* client = nullptr;  ///< outlives the thread
  const Clock* clock = nullptr;       ///< outlives the thread
  api::Kind kind = api::Kind::kPod;
  std::string namespace_name;  ///< empty = all
  std::uint64_t seed = 1;
};

class WatchThread {
 public:
  /// `on_event` is called on the thread, in order; it must not block for long.
  WatchThread(const WatchThreadOptions& options, std::function<void(kube::WatchEvent)> on_event);
  ~WatchThread();
  /// Ends the thread. Blocks: until it has ended. Idempotent.
  void stop();

 private:
  void run();

  const Clock& clock_;
  kube::WatchPump pump_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace muster::embedded
