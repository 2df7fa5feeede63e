#include "operator/kube/watcher.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace muster::kube {
namespace {

/// Bad lines in a row after which the place in the history is given up: the server would send the
/// same line again for ever.
constexpr int kMaxBadLinesInARow = 3;
/// Silent watches in a row after which it is given up, too: a server whose history was set back has
/// nothing to tell from there until it comes to that place again.
constexpr int kMaxSilencesInARow = 2;
/// Of the bookmark that ends a list; "true".
constexpr const char* kInitialEventsEnd = "k8s.io/initial-events-end";

std::string resource_version_of(const Json& object) {
  return text_at(object, {"metadata", "resourceVersion"});
}

/// Kubernetes 1.35 declares resource versions comparable as integers (KEP-5504); a version that is
/// no integer is taken as it comes.
std::optional<std::uint64_t> number_of(const std::string& resource_version) {
  std::uint64_t number = 0;
  const char* end = resource_version.data() + resource_version.size();
  const auto [stop, error] = std::from_chars(resource_version.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

bool is_older(const std::string& left, const std::string& right) {
  const auto a = number_of(left), b = number_of(right);
  return a && b && *a < *b;
}

bool ends_list(const Json& bookmark) {
  return text_at(bookmark, {"metadata", "annotations", kInitialEventsEnd}) == "true";
}

std::string_view strip(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

}  // namespace

Watcher::Watcher(std::uint64_t seed, WatcherOptions options)
    : options_(options),
      rng_(seed),
      page_size_(options.page_most),
      may_stream_(options.streams_lists) {
  MUSTER_CHECK(options_.page_most > 0);
  MUSTER_CHECK(options_.backoff_least.count() > 0);
  MUSTER_CHECK(options_.backoff_most >= options_.backoff_least);
}

WatcherRequest Watcher::next(MonoTime now) const {
  if (wait_until_ && now < *wait_until_) return WaitRequest{*wait_until_};
  if (state_ == State::kWatching) return WatchRequest{resource_version_};
  if (state_ == State::kEmpty && streams_list()) return WatchRequest{"", true};
  return ListRequest{continue_token_, page_size_};
}

/// Uniform between the least wait and one that doubles with every failure: many watchers that lost
/// the same server must not come back together.
void Watcher::back_off(MonoTime now, seconds asked) {
  give_up_stream();
  streaming_ = false;
  failures_ = std::min(failures_ + 1, 16);
  const auto least = options_.backoff_least.count();
  const auto most = std::min(options_.backoff_most.count(), least << failures_);
  const auto spread = static_cast<double>(most - least) * rng_.unit();
  const milliseconds wait(least + static_cast<milliseconds::rep>(spread));
  wait_until_ = now + std::max<milliseconds>(wait, asked);
}

void Watcher::give_up_stream() {
  if (state_ != State::kInitStream) return;
  state_ = State::kEmpty;
  resource_version_.clear();
  pages_next_ = true;
}

void Watcher::give_up_list() {
  give_up_stream();
  state_ = State::kEmpty;
  continue_token_.clear();
  resource_version_.clear();
}

void Watcher::relist(MonoTime now) {
  give_up_list();
  back_off(now);
}

WatchEvent Watcher::begin_list() {
  if (listed_) ++relists_;
  listed_ = true;
  return {WatchEvent::Type::kInitStart, nullptr};
}

std::vector<WatchEvent> Watcher::on_list(MonoTime now, Result<ListPage> page) {
  if (state_ == State::kWatching || state_ == State::kInitStream) return {};
  wait_until_.reset();
  if (!page) {
    // An expired continue token loses the snapshot; after any other failure the list goes on where
    // it was, with less at a time where that was too much.
    const ErrorCode code = page.error().code();
    if (code == ErrorCode::kGone || code == ErrorCode::kInvalid) {
      relist(now);
    } else if (code == ErrorCode::kTooLarge && page_size_ > 1) {
      page_size_ /= 2;
    } else {
      if (code == ErrorCode::kDeadlineExceeded) page_size_ = std::max(page_size_ / 2, 1);
      back_off(now, seconds(page.error().retry_after_seconds()));
    }
    return {};
  }
  page_size_ = std::min(2 * page_size_, options_.page_most);
  const bool is_last = page->continue_token.empty();
  const bool repeats = !is_last && page->continue_token == continue_token_;
  if (repeats || (is_last && page->resource_version.empty())) {
    relist(now);
    return {};
  }
  std::vector<WatchEvent> events;
  if (state_ == State::kEmpty) {
    events.push_back(begin_list());
    state_ = State::kInitPages;
  }
  for (Json& item : page->items) {
    events.push_back({WatchEvent::Type::kInitApply, std::move(item)});
  }
  continue_token_ = std::move(page->continue_token);
  if (!is_last) return events;
  events.push_back({WatchEvent::Type::kInitDone, nullptr});
  resource_version_ = std::move(page->resource_version);
  state_ = State::kWatching;
  synced_ = true;
  pages_next_ = false;
  // failures_ stays: a server that lists well and refuses every watch with 410 must be asked ever
  // more slowly.
  return events;
}

std::vector<WatchEvent> Watcher::on_watch_opened(MonoTime now, const Status& opened) {
  const bool is_list = state_ == State::kEmpty && streams_list();
  if (state_ != State::kWatching && !is_list) return {};
  wait_until_.reset();
  if (opened) {
    streaming_ = true;
    progressed_ = false;
    opened_at_ = listed_at_ = last_line_ = now;
    if (!is_list) return {};
    state_ = State::kInitStream;
    std::vector<WatchEvent> events;
    events.push_back(begin_list());
    return events;
  }
  if (is_list && opened.error().code() == ErrorCode::kInvalid) {
    may_stream_ = false;  // a server that cannot, or is told not to
  } else if (opened.error().code() == ErrorCode::kGone ||
             opened.error().code() == ErrorCode::kInvalid) {
    relist(now);
  } else {
    back_off(now, seconds(opened.error().retry_after_seconds()));
  }
  return {};
}

std::vector<WatchEvent> Watcher::bad_line(MonoTime now) {
  ++bad_lines_;
  if (++bad_lines_in_a_row_ >= kMaxBadLinesInARow) {
    bad_lines_in_a_row_ = 0;
    relist(now);
  } else {
    back_off(now);
  }
  return {};
}

std::vector<WatchEvent> Watcher::on_error_event(MonoTime now, const Json& status) {
  const std::string reason = text_at(status, {"reason"});
  const bool gone = member(status, {"code"}) == 410 || reason == "Expired" || reason == "Gone";
  if (gone) {
    relist(now);
  } else {
    back_off(now);
  }
  return {};
}

bool Watcher::advance(MonoTime now, const std::string& resource_version) {
  if (is_older(resource_version, resource_version_)) {
    // A watch only goes forward. Either the line was repeated, or the server's history was set
    // back; what is true now only a list can tell.
    relist(now);
    return false;
  }
  resource_version_ = resource_version;
  progressed_ = true;
  failures_ = 0;
  bad_lines_in_a_row_ = 0;
  silences_in_a_row_ = 0;
  return true;
}

/// Bookmarks are a courtesy: one that says nothing is passed over. But one ends the list that a
/// watch began with.
std::vector<WatchEvent> Watcher::on_bookmark(MonoTime now, const Json& object) {
  const std::string resource_version = resource_version_of(object);
  if (resource_version.empty()) {
    ++bad_lines_;
    return {};
  }
  if (state_ == State::kInitStream) {
    if (!ends_list(object)) return {};
    if (is_older(resource_version, resource_version_)) {
      relist(now);
      return {};
    }
    state_ = State::kWatching;
    synced_ = true;
    resource_version_ = resource_version;
    progressed_ = true;
    bad_lines_in_a_row_ = 0;
    std::vector<WatchEvent> events;
    events.push_back({WatchEvent::Type::kInitDone, nullptr});
    return events;
  }
  advance(now, resource_version);
  return {};
}

bool Watcher::is_late(MonoTime now) const {
  return streaming_ && state_ == State::kInitStream &&
         (now - listed_at_ >= options_.list_pause || now - opened_at_ >= options_.list_most);
}

void Watcher::give_up_late_list(MonoTime now) {
  // Not asked again: every list of a server that never says the end would take as long.
  may_stream_ = false;
  back_off(now);
}

void Watcher::on_quiet(MonoTime now) {
  if (!streaming_) return;
  if (is_late(now)) return give_up_late_list(now);
  if (now - last_line_ < options_.silence) return;
  if (++silences_in_a_row_ >= kMaxSilencesInARow) {
    silences_in_a_row_ = 0;
    relist(now);
  } else {
    back_off(now);
  }
}

std::vector<WatchEvent> Watcher::on_line(MonoTime now, const std::string& line) {
  if (!streaming_) return {};
  last_line_ = now;
  std::vector<WatchEvent> events = take_line(now, line);
  if (is_late(now)) give_up_late_list(now);
  return events;
}

std::vector<WatchEvent> Watcher::take_line(MonoTime now, const std::string& line) {
  const std::string_view text = strip(line);
  if (text.empty()) return {};
  auto event = parse_told_json(text, options_.left_out);
  if (!event || !event->is_object()) return bad_line(now);
  const std::string type = text_at(*event, {"type"});
  const auto found = event->find("object");
  if (found == event->end() || !found->is_object()) return bad_line(now);
  Json& object = *found;
  if (type == "ERROR") return on_error_event(now, object);
  const std::string resource_version = resource_version_of(object);
  if (type == "BOOKMARK") return on_bookmark(now, object);
  const bool applies = type == "ADDED" || type == "MODIFIED";
  if (!(applies || type == "DELETED") || resource_version.empty()) return bad_line(now);
  const bool is_listed = state_ == State::kInitStream;
  // A list has its objects in no order of their versions, but changes may follow before its end.
  if (is_listed && type == "ADDED" && resource_version_.empty()) {
    progressed_ = true;
    listed_at_ = now;
  } else if (!advance(now, resource_version)) {
    return {};
  }
  const auto applied = is_listed ? WatchEvent::Type::kInitApply : WatchEvent::Type::kApply;
  std::vector<WatchEvent> events;
  events.push_back({applies ? applied : WatchEvent::Type::kDelete, Json()});
  events.back().object = std::move(object);
  return events;
}

std::vector<WatchEvent> Watcher::on_end(MonoTime now, const Status& end) {
  if (!streaming_) return {};
  streaming_ = false;
  if (!end) {
    const ErrorCode code = end.error().code();
    if (code == ErrorCode::kGone || code == ErrorCode::kTooLarge) {
      relist(now);
      // As a stream the list would have that line, too.
      if (code == ErrorCode::kTooLarge) pages_next_ = true;
    } else {
      back_off(now);
    }
    return {};
  }
  give_up_stream();
  // A server that opens and ends streams at once without a line must not be asked in a tight loop.
  if (!progressed_ && now - opened_at_ < options_.backoff_least) back_off(now);
  return {};
}

}  // namespace muster::kube
