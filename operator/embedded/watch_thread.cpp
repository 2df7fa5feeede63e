#include "operator/embedded/watch_thread.h"

#include <algorithm>
#include <utility>

namespace muster::embedded {
namespace {

/// For a line; close() ends it, too.
constexpr milliseconds kLineMost{90'000};
constexpr seconds kWaitMost{60};

kube::WatchPumpOptions pump_options(const WatchThreadOptions& options,
                                    std::function<void(kube::WatchEvent)> on_event) {
  kube::WatchPumpOptions pump;
  pump.client = options.client;
  pump.clock = options.clock;
  pump.kind = options.kind;
  pump.namespace_name = options.namespace_name;
  pump.seed = options.seed;
  pump.sink = [on_event = std::move(on_event)](kube::WatchBatch batch) {
    for (kube::WatchEvent& event : batch.events) on_event(std::move(event));
  };
  return pump;
}

}  // namespace

WatchThread::WatchThread(const WatchThreadOptions& options,
                         std::function<void(kube::WatchEvent)> on_event)
    : clock_(*options.clock),
      pump_(pump_options(options, std::move(on_event))),
      thread_([this] { run(); }) {}

WatchThread::~WatchThread() { stop(); }

void WatchThread::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  pump_.close();
  if (thread_.joinable()) thread_.join();
}

void WatchThread::run() {
  for (;;) {
    const bool has_worked = pump_.step(kLineMost) == kube::WatchPump::Did::kWork;
    const auto wake = has_worked ? std::nullopt : pump_.wake();
    const nanoseconds wait = wake ? *wake - clock_.mono_now() : nanoseconds(0);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::clamp<nanoseconds>(wait, nanoseconds(0), kWaitMost),
                   [this] { return stopping_; });
    if (stopping_) return;
  }
}

}  // namespace muster::embedded
