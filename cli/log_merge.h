// Lines of many workers in the order of their times, with bounded memory. Input is what `kubectl
// logs --timestamps` writes: an RFC 3339 time, a space, the line. No IO, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"

namespace muster::cli {

struct LogLine {
  int stream = 0;
  std::int64_t time_ns =
      0;              ///< since the Unix epoch; of a line without one, that of the line before
  std::string stamp;  ///< as written; empty: none
  std::string text;   ///< without newline
};

/// Nanoseconds since the Unix epoch of an RFC 3339 time in any time zone; nothing when it is none.
std::optional<std::int64_t> parse_stamp(std::string_view text);

/// Threads: one. Memory: per stream at most kMostWaiting bytes of lines and one unfinished line.
class LogMerger {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{128} << 10;  ///< bytes
  static constexpr std::size_t kLongestLine = std::size_t{64} << 10;   ///< longer ones are cut up

  /// A line waits at most `patience` for one with an earlier time from a stream that says nothing;
  /// nothing: as long as it takes, which is right for logs that end.
  explicit LogMerger(std::optional<milliseconds> patience) : patience_(patience) {}

  /// `id` is not in use.
  void open(int id);
  void feed(int id, std::string_view bytes, MonoTime now);
  /// Nothing more comes; an unfinished line becomes a line.
  void close(int id, MonoTime now);
  /// Do not feed now: enough of this stream waits for others.
  bool is_full(int id) const;
  bool is_empty() const { return streams_.empty(); }
  /// Whether `id` was opened and is not forgotten: lines of it may still come.
  bool has(int id) const { return streams_.contains(id); }

  /// Hands out, in order, every line that need not wait any longer; closed streams without lines
  /// are forgotten.
  void take(MonoTime now, const std::function<void(const LogLine&)>& emit);
  /// When take() has something to do although nothing is fed.
  std::optional<MonoTime> due() const;

 private:
  struct Waiting {
    LogLine line;
    MonoTime since;
  };
  struct Stream {
    std::deque<Waiting> lines;
    std::size_t bytes = 0;
    std::string partial;
    std::int64_t last_time_ns = 0;
    std::string last_stamp;
    bool is_closed = false;
  };
  void add_line(int id, Stream& stream, std::string_view line, MonoTime now);
  bool may_go(MonoTime now) const;

  std::optional<milliseconds> patience_;
  std::map<int, Stream> streams_;
};

}  // namespace muster::cli
