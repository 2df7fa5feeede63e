#include "cli/log_merge.h"

#include <algorithm>
#include <charconv>

#include "common/check.h"

namespace muster::cli {
namespace {

constexpr std::size_t kLongestStamp = 40;
constexpr std::int64_t kNanos = 1'000'000'000;

bool two_digits(std::string_view text, int& out) {
  if (text.size() < 2) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 2, out);
  return error == std::errc() && end == text.data() + 2 && out >= 0;
}

/// "Z", "+02:00", "-05:30" in seconds.
std::optional<std::int64_t> parse_offset(std::string_view text) {
  if (text == "Z") return 0;
  int hours = 0, minutes = 0;
  const bool is_offset = text.size() == 6 && (text[0] == '+' || text[0] == '-') && text[3] == ':' &&
                         two_digits(text.substr(1), hours) && two_digits(text.substr(4), minutes);
  if (!is_offset || hours > 23 || minutes > 59) return std::nullopt;
  const std::int64_t offset = hours * 3600 + minutes * 60;
  return text[0] == '-' ? -offset : offset;
}

}  // namespace

std::optional<std::int64_t> parse_stamp(std::string_view text) {
  constexpr std::size_t kSeconds = 19;  // "2026-11-21T12:00:00"
  if (text.size() <= kSeconds || text.size() > kLongestStamp) return std::nullopt;
  const auto whole = parse_time(std::string(text.substr(0, kSeconds)) + "Z");
  if (!whole) return std::nullopt;
  std::string_view rest = text.substr(kSeconds);
  std::int64_t nanos = 0;
  if (rest[0] == '.') {
    std::int64_t unit = kNanos / 10;
    rest.remove_prefix(1);
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      nanos += (rest[0] - '0') * unit;
      unit /= 10;
      rest.remove_prefix(1);
    }
  }
  const auto offset = parse_offset(rest);
  if (!offset) return std::nullopt;
  const std::int64_t since = std::chrono::duration_cast<seconds>(whole->time_since_epoch()).count();
  constexpr std::int64_t kMost = 9'000'000'000;  // nanoseconds of it fit into 64 bits
  if (since < -kMost || since > kMost) return std::nullopt;
  return (since - *offset) * kNanos + nanos;
}

void LogMerger::open(int id) {
  const bool is_new = streams_.emplace(id, Stream{}).second;
  MUSTER_CHECK_MSG(is_new, "this stream is open");
}

void LogMerger::add_line(int id, Stream& stream, std::string_view line, MonoTime now) {
  LogLine entry;
  entry.stream = id;
  const std::size_t space = std::min(line.find(' '), line.size());
  const auto time = parse_stamp(line.substr(0, space));
  if (time) {
    // A clock that was set back must not let lines of one worker change places.
    stream.last_time_ns = std::max(stream.last_time_ns, *time);
    entry.stamp = line.substr(0, space);
    stream.last_stamp = entry.stamp;
    line.remove_prefix(std::min(line.size(), space + 1));
  }
  entry.time_ns = stream.last_time_ns;
  entry.text = line;
  stream.bytes += entry.text.size() + sizeof(Waiting);
  stream.lines.push_back({std::move(entry), now});
}

void LogMerger::feed(int id, std::string_view bytes, MonoTime now) {
  const auto found = streams_.find(id);
  MUSTER_CHECK_MSG(found != streams_.end() && !found->second.is_closed, "no such stream");
  Stream& stream = found->second;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLongestLine - stream.partial.size();
    const std::size_t length = std::min({end, bytes.size(), room});
    stream.partial += bytes.substr(0, length);
    bytes.remove_prefix(length);
    const bool at_end = !bytes.empty() && bytes[0] == '\n';
    if (at_end) bytes.remove_prefix(1);
    if (!at_end && stream.partial.size() < kLongestLine) return;
    add_line(id, stream, stream.partial, now);
    stream.partial.clear();
  }
}

void LogMerger::close(int id, MonoTime now) {
  const auto found = streams_.find(id);
  if (found == streams_.end() || found->second.is_closed) return;
  if (!found->second.partial.empty()) add_line(id, found->second, found->second.partial, now);
  found->second.partial.clear();
  found->second.is_closed = true;
}

bool LogMerger::is_full(int id) const {
  const auto found = streams_.find(id);
  return found != streams_.end() && found->second.bytes >= kMostWaiting;
}

/// Whether no stream can still bring an earlier line, or some line has waited long enough for it.
bool LogMerger::may_go(MonoTime now) const {
  const auto first_due = due();
  if (first_due && *first_due <= now) return true;
  return std::all_of(streams_.begin(), streams_.end(), [](const auto& entry) {
    return entry.second.is_closed || !entry.second.lines.empty();
  });
}

void LogMerger::take(MonoTime now, const std::function<void(const LogLine&)>& emit) {
  for (;;) {
    std::erase_if(streams_, [](const auto& entry) {
      return entry.second.is_closed && entry.second.lines.empty();
    });
    Stream* earliest = nullptr;
    for (auto& [id, stream] : streams_) {
      if (stream.lines.empty()) continue;
      const bool is_earlier = earliest == nullptr || stream.lines.front().line.time_ns <
                                                         earliest->lines.front().line.time_ns;
      if (is_earlier) earliest = &stream;
    }
    if (earliest == nullptr) return;
    if (!may_go(now)) return;
    emit(earliest->lines.front().line);
    earliest->bytes -= earliest->lines.front().line.text.size() + sizeof(Waiting);
    earliest->lines.pop_front();
  }
}

std::optional<MonoTime> LogMerger::due() const {
  if (!patience_) return std::nullopt;
  std::optional<MonoTime> first;
  for (const auto& [id, stream] : streams_) {
    if (stream.lines.empty()) continue;
    const MonoTime due = stream.lines.front().since + *patience_;
    if (!first || due < *first) first = due;
  }
  return first;
}

}  // namespace muster::cli
