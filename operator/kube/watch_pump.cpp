#include "operator/kube/watch_pump.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "common/log.h"
#include "operator/api/unread.h"

namespace muster::kube {
namespace {
/// What has come already is handed on together.
constexpr int kLinesAtOnce = 50;
constexpr std::size_t kBytesAtOnce = std::size_t{256} << 10;
/// How often it is looked whether a kind that is not there has come.
constexpr seconds kLookForMissing{60};
/// The same of one that may not be read, one pause after the other, and then the last: an API
/// server that has just started forbids everything for a moment, and what it has is not to be taken
/// for missing much longer than that.
constexpr std::array kLookForForbidden{seconds(1),  seconds(2),  seconds(4), seconds(8),
                                       seconds(15), seconds(30), seconds(60)};
/// So long it is said of one that was there.
constexpr seconds kMissingLeast{15};

}  // namespace

WatcherOptions lean_watcher(api::Kind kind) {
  WatcherOptions options;
  options.left_out = api::unread_of(kind);
  options.streams_lists = true;
  return options;
}

WatchPump::WatchPump(WatchPumpOptions options)
    : options_(std::move(options)), watcher_(options_.seed, options_.watcher) {
  if (!api::info_of(options_.kind).namespaced) options_.namespace_name.clear();
}

WatchPump::~WatchPump() { close(); }

void WatchPump::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (stream_) stream_->close();
}

void WatchPump::set_stream(std::unique_ptr<HttpStream> stream) {
  const std::lock_guard lock(mutex_);
  if (stream_) stream_->close();
  stream_ = std::move(stream);
  if (closed_ && stream_) stream_->close();
}

void WatchPump::deliver(std::vector<WatchEvent> events, std::size_t bytes) {
  if (!events.empty()) options_.sink(WatchBatch{options_.kind, std::move(events), bytes});
}

void WatchPump::warn(const char* what, const Error& error) const {
  log_warning(what, {{"kind", api::info_of(options_.kind).kind}, {"error", error.message()}});
}

/// Nobody has installed the kind, or the operator may not read it. What was there is gone only once
/// that was said for a while: an API server that has just started may say it for a moment.
bool WatchPump::is_missing(const Status& asked, bool was_there) {
  const auto failed_with = [&](ErrorCode code) { return !asked && asked.error().code() == code; };
  if (!options_.is_optional ||
      (!failed_with(ErrorCode::kNotFound) && !failed_with(ErrorCode::kForbidden))) {
    missing_since_.reset();
    forbidden_ = 0;
    return false;
  }
  const MonoTime now = options_.clock->mono_now();
  missing_since_ = missing_since_.value_or(now);
  return !was_there || now - *missing_since_ >= kMissingLeast;
}

void WatchPump::do_without(ErrorCode why) {
  using Type = WatchEvent::Type;
  seconds pause = kLookForMissing;
  if (why == ErrorCode::kForbidden) {
    pause = kLookForForbidden.at(forbidden_);
    forbidden_ = std::min(forbidden_ + 1, kLookForForbidden.size() - 1);
  } else {
    forbidden_ = 0;
  }
  look_again_ = options_.clock->mono_now() + pause;
  // The pages that have come are not there any more either.
  watcher_.give_up_list();
  if (was_told_) return;
  was_told_ = true;
  std::vector<WatchEvent> none;
  none.push_back({Type::kInitStart, nullptr});
  none.push_back({Type::kInitDone, nullptr});
  deliver(std::move(none));
}

std::optional<MonoTime> WatchPump::wake() const {
  if (look_again_) return look_again_;
  const auto request = watcher_.next(options_.clock->mono_now());
  if (const auto* wait = std::get_if<WaitRequest>(&request)) return wait->until;
  return std::nullopt;
}

WatchPump::Did WatchPump::step(milliseconds idle) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Did::kNothing;
  }
  const Did did = stream_ && watcher_.streaming() ? read_lines(idle) : ask();
  tell_trouble();
  return did;
}

void WatchPump::tell_trouble() {
  if (!options_.on_trouble) return;
  if (watcher_.relists() == told_relists_ && watcher_.bad_lines() == told_bad_lines_) return;
  told_relists_ = watcher_.relists();
  told_bad_lines_ = watcher_.bad_lines();
  options_.on_trouble(watcher_);
}

WatchPump::Did WatchPump::read_lines(milliseconds idle) {
  std::vector<WatchEvent> events;
  const auto take = [&events](std::vector<WatchEvent> more) {
    std::move(more.begin(), more.end(), std::back_inserter(events));
  };
  int lines = 0;
  std::size_t bytes = 0;
  for (; lines < kLinesAtOnce && bytes < kBytesAtOnce && watcher_.streaming(); ++lines) {
    auto line = stream_->next_line(lines == 0 ? idle : milliseconds(0));
    const MonoTime now = options_.clock->mono_now();
    if (line && *line) {
      bytes += (*line)->size();
      take(watcher_.on_line(now, **line));
      continue;
    }
    if (!line && line.error().code() == ErrorCode::kDeadlineExceeded) {
      watcher_.on_quiet(now);
      break;
    }
    const bool broke = !line && line.error().code() != ErrorCode::kAborted;
    if (broke) warn("a watch broke", line.error());
    take(watcher_.on_end(now, line ? Status() : Status(line.error())));
  }
  if (!watcher_.streaming()) set_stream(nullptr);
  deliver(std::move(events), bytes);
  return lines > 0 ? Did::kWork : Did::kNothing;
}

WatchPump::Did WatchPump::ask() {
  const MonoTime now = options_.clock->mono_now();
  if (look_again_ && now < *look_again_) return Did::kNothing;
  look_again_.reset();
  const auto request = watcher_.next(now);
  if (std::holds_alternative<WaitRequest>(request)) return Did::kNothing;
  if (const auto* list = std::get_if<ListRequest>(&request)) {
    ListOptions options;
    options.namespace_name = options_.namespace_name;
    options.limit = list->limit;
    options.continue_token = list->continue_token;
    options.left_out = options_.watcher.left_out;
    auto page = options_.client->list(options_.kind, options);
    const Status listed = page ? Status() : Status(page.error());
    if (is_missing(listed, false)) {
      do_without(listed.error().code());
      return Did::kWork;
    }
    was_told_ = false;
    // Where one page is too large, many are; the watcher then asks for smaller ones.
    const bool is_told = !page && page.error().code() == ErrorCode::kTooLarge && list->limit > 1 &&
                         list->limit < options_.watcher.page_most;
    if (!page && !is_told) warn("listing failed", page.error());
    const std::size_t bytes = page ? page->bytes : 0;
    deliver(watcher_.on_list(options_.clock->mono_now(), std::move(page)), bytes);
    return Did::kWork;
  }
  const auto& wanted = std::get<WatchRequest>(request);
  WatchOptions options;
  options.namespace_name = options_.namespace_name;
  options.resource_version = wanted.resource_version;
  options.begins_with_list = wanted.begins_with_list;
  auto stream = options_.client->watch(options_.kind, options);
  const Status status = stream ? Status() : Status(stream.error());
  if (is_missing(status, !wanted.begins_with_list)) {
    do_without(status.error().code());
    return Did::kWork;
  }
  if (wanted.begins_with_list) was_told_ = false;
  const MonoTime opened = options_.clock->mono_now();
  if (!status) {
    // Gone is the ordinary end of an old watch, and a server that streams no lists gives pages;
    // anything else is what an administrator looks for.
    const bool is_usual = status.error().code() == ErrorCode::kGone ||
                          (wanted.begins_with_list && status.error().code() == ErrorCode::kInvalid);
    if (!is_usual) warn("watching failed", status.error());
  }
  if (stream) set_stream(std::move(*stream));
  deliver(watcher_.on_watch_opened(opened, status));
  return Did::kWork;
}

}  // namespace muster::kube
