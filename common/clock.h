// Time comes in through this seam; nothing else in the project reads a clock.
#pragma once

#include <chrono>
#include <string>

#include "common/result.h"

namespace muster {

/// Time since an arbitrary start that never goes back: deadlines, durations, back-off.
using MonoTime = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;
/// UTC since the Unix epoch: what is written into objects. Never compared across machines.
using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

inline double seconds_of(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonoTime mono_now() const = 0;
  virtual WallTime wall_now() const = 0;
};

/// The operating system's clocks. Threads: any.
class SystemClock final : public Clock {
 public:
  MonoTime mono_now() const override;
  WallTime wall_now() const override;
};

/// A clock that moves only when told to. Threads: one, or the caller's lock.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(WallTime wall = WallTime(std::chrono::seconds(1'700'000'000)))
      : wall_(wall) {}
  MonoTime mono_now() const override { return mono_; }
  WallTime wall_now() const override { return wall_; }
  void advance(nanoseconds by) {
    mono_ += by;
    wall_ += std::chrono::duration_cast<microseconds>(by);
  }

 private:
  MonoTime mono_{seconds(1)};
  WallTime wall_;
};

/// RFC 3339 with seconds, as metav1.Time: "2026-11-21T12:00:00Z".
std::string format_time(WallTime time);
/// RFC 3339 with six digits, as metav1.MicroTime: "2026-11-21T12:00:00.000000Z".
std::string format_micro_time(WallTime time);
/// Parses both forms (and any number of fraction digits, UTC only). Errors: kInvalid.
Result<WallTime> parse_time(const std::string& text);

}  // namespace muster
