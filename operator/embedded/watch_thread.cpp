#include "operator/embedded/watch_thread.h"

#include <utility>

namespace muster::embedded {
namespace {
/// Longest silence of a stream before it is taken for dead; bookmarks come more often.
constexpr milliseconds kSilence{90'000};
}  // namespace

WatchThread::WatchThread(WatchThreadOptions options, std::function<void(kube::WatchEvent)> on_event)
    : options_(std::move(options)),
      on_event_(std::move(on_event)),
      watcher_(options_.seed),
      thread_([this] { run(); }) {}

WatchThread::~WatchThread() { stop(); }

void WatchThread::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    if (stream_) stream_->close();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool WatchThread::stopping() {
  const std::scoped_lock lock(mutex_);
  return stopping_;
}

void WatchThread::deliver(std::vector<kube::WatchEvent> events) {
  for (kube::WatchEvent& event : events) on_event_(std::move(event));
}

void WatchThread::run() {
  while (!stopping()) {
    const kube::WatcherRequest request = watcher_.next(options_.clock->mono_now());
    if (const auto* wanted = std::get_if<kube::ListRequest>(&request)) {
      list(*wanted);
    } else if (const auto* followed = std::get_if<kube::WatchRequest>(&request)) {
      watch(*followed);
    } else {
      wait_until(std::get<kube::WaitRequest>(request).until);
    }
  }
}

void WatchThread::wait_until(MonoTime until) {
  const auto left = until - options_.clock->mono_now();
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, left, [this] { return stopping_; });
}

void WatchThread::list(const kube::ListRequest& request) {
  kube::ListOptions options;
  options.namespace_name = options_.namespace_name;
  options.continue_token = request.continue_token;
  options.limit = request.limit;
  auto page = options_.client->list(options_.kind, options);
  deliver(watcher_.on_list(options_.clock->mono_now(), std::move(page)));
}

void WatchThread::watch(const kube::WatchRequest& request) {
  kube::WatchOptions options;
  options.namespace_name = options_.namespace_name;
  options.resource_version = request.resource_version;
  auto opened = options_.client->watch(options_.kind, options);
  if (!opened) {
    deliver(watcher_.on_watch_opened(options_.clock->mono_now(), opened.error()));
    return;
  }
  const std::shared_ptr<kube::HttpStream> stream = std::move(*opened);
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
    stream_ = stream;
  }
  deliver(watcher_.on_watch_opened(options_.clock->mono_now(), {}));
  while (watcher_.streaming() && !stopping()) {
    auto line = stream->next_line(kSilence);
    const MonoTime now = options_.clock->mono_now();
    if (!line) {
      deliver(watcher_.on_end(now, line.error()));
    } else if (!*line) {
      deliver(watcher_.on_end(now, {}));
    } else {
      deliver(watcher_.on_line(now, **line));
    }
  }
  const std::scoped_lock lock(mutex_);
  stream_.reset();
}

}  // namespace muster::embedded
