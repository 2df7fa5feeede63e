#include "operator/embedded/api_stream.h"

#include <algorithm>
#include <utility>

namespace muster::embedded {
namespace {

std::string line_of(const char* type, const std::string& object) {
  return std::string("{\"type\":\"") + type + "\",\"object\":" + object + "}";
}

}  // namespace

ApiStream::ApiStream(std::shared_ptr<ApiState> state, Table& table, StreamOptions options)
    : state_(std::move(state)),
      table_(table),
      options_(std::move(options)),
      generation_(state_->stream_generation),
      ends_at_(state_->clock().mono_now() + options_.timeout),
      next_bookmark_(state_->clock().mono_now() + state_->options().bookmark_interval),
      position_(options_.from) {
  ++state_->open_streams;
}

ApiStream::~ApiStream() {
  const std::lock_guard lock(state_->mutex);
  --state_->open_streams;
}

void ApiStream::close() {
  const std::lock_guard lock(state_->mutex);
  closed_ = true;
  state_->changed.notify_all();
}

std::optional<std::string> ApiStream::event_of(const LogEntry& entry) const {
  if (!options_.namespace_name.empty() &&
      entry.now->key.namespace_name != options_.namespace_name) {
    return std::nullopt;
  }
  // A selector turns a change into an appearance or a disappearance.
  const bool was = entry.before != nullptr && options_.selector.matches(*entry.before);
  const bool is =
      entry.change != LogEntry::Change::kDeleted && options_.selector.matches(*entry.now);
  if (is) return line_of(was ? "MODIFIED" : "ADDED", entry.now->text);
  if (!was) return std::nullopt;
  if (entry.change == LogEntry::Change::kDeleted) return line_of("DELETED", entry.now->text);
  // The last state that matched, with the revision of the change.
  Json last = entry.before->object;
  last["metadata"]["resourceVersion"] = std::to_string(entry.revision);
  return line_of("DELETED", dump_json(last));
}

std::optional<std::string> ApiStream::next_event() {
  if (!options_.initial.empty()) {
    const VersionPtr version = std::move(options_.initial.front());
    options_.initial.pop_front();
    return line_of("ADDED", version->text);
  }
  const auto& log = table_.log;
  auto entry = std::upper_bound(
      log.begin(), log.end(), position_,
      [](std::uint64_t revision, const LogEntry& e) { return revision < e.revision; });
  for (; entry != log.end(); ++entry) {
    position_ = entry->revision;
    if (auto line = event_of(*entry)) return line;
  }
  position_ = std::max(position_, state_->revision());
  return std::nullopt;
}

std::string ApiStream::bookmark(bool ends_initial) {
  next_bookmark_ = state_->clock().mono_now() + state_->options().bookmark_interval;
  bookmarked_ = position_;
  Json object = {
      {"kind", table_.type->kind_name},
      {"apiVersion", table_.type->group_version},
      {"metadata",
       {{"resourceVersion", std::to_string(position_)}, {"creationTimestamp", nullptr}}}};
  if (ends_initial) object["metadata"]["annotations"] = {{"k8s.io/initial-events-end", "true"}};
  return line_of("BOOKMARK", dump_json(object));
}

Result<std::optional<std::string>> ApiStream::next_line(milliseconds idle) {
  using Line = std::optional<std::string>;
  std::unique_lock lock(state_->mutex);
  nanoseconds left = std::max(idle, milliseconds(0));
  while (true) {
    if (closed_) return Error(ErrorCode::kAborted, "the watch was closed");
    if (generation_ != state_->stream_generation) {
      return Error(ErrorCode::kUnavailable, "the watch was cut by the server");
    }
    if (ended_) return Line();
    if (options_.error_at_once) {
      ended_ = true;
      return Line(line_of("ERROR", dump_json(status_body(*options_.error_at_once))));
    }
    if (position_ < table_.dropped) {
      ended_ = true;  // Too slow: what comes next is gone. A new watch from here is told so.
      return Line();
    }
    if (options_.initial.empty() && std::exchange(options_.tells_initial_end, false)) {
      return Line(bookmark(true));
    }
    if (auto line = next_event()) return Line(std::move(line));
    const MonoTime now = state_->clock().mono_now();
    if (now >= ends_at_) {
      ended_ = true;
      if (options_.bookmarks && bookmarked_ < position_) return Line(bookmark());
      return Line();
    }
    if (options_.bookmarks && now >= next_bookmark_) return Line(bookmark());
    if (left <= nanoseconds(0)) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "no line for " + std::to_string(idle.count()) + " ms");
    }
    const nanoseconds until_next = std::min<nanoseconds>(
        ends_at_ - now, options_.bookmarks ? next_bookmark_ - now : ends_at_ - now);
    const nanoseconds wait = std::min(left, until_next);
    const bool timed_out = state_->changed.wait_for(lock, wait) == std::cv_status::timeout;
    // A clock that stands still (tests) must not turn the wait into an endless one.
    left -= timed_out ? wait : std::min<nanoseconds>(left, state_->clock().mono_now() - now);
  }
}

}  // namespace muster::embedded
