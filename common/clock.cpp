#include "common/clock.h"

#include <cstdio>

namespace muster {
namespace {

struct CivilTime {
  int year;
  unsigned month, day, hour, minute, second, micros;
};

CivilTime to_civil(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const auto since = std::chrono::floor<microseconds>(time - day).count();
  const auto unsigned_of = [](long long value) { return static_cast<unsigned>(value); };
  return CivilTime{int(date.year()),
                   unsigned(date.month()),
                   unsigned(date.day()),
                   unsigned_of(since / 3'600'000'000),
                   unsigned_of(since / 60'000'000 % 60),
                   unsigned_of(since / 1'000'000 % 60),
                   unsigned_of(since % 1'000'000)};
}

}  // namespace

MonoTime SystemClock::mono_now() const {
  return std::chrono::time_point_cast<nanoseconds>(std::chrono::steady_clock::now());
}

WallTime SystemClock::wall_now() const {
  return std::chrono::time_point_cast<microseconds>(std::chrono::system_clock::now());
}

std::string format_time(WallTime time) {
  const CivilTime t = to_civil(time);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02u:%02u:%02uZ", t.year, t.month, t.day, t.hour,
                t.minute, t.second);
  return text;
}

std::string format_micro_time(WallTime time) {
  const CivilTime t = to_civil(time);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02u:%02u:%02u.%06uZ", t.year, t.month, t.day,
                t.hour, t.minute, t.second, t.micros);
  return text;
}

Result<WallTime> parse_time(const std::string& text) {
  const Error bad(ErrorCode::kInvalid,
                  "\"" + text.substr(0, 64) + "\" is not a UTC time like 2026-11-21T12:00:00Z");
  int year = 0;
  unsigned month = 0, day = 0, hour = 0, minute = 0, second = 0;
  int used = 0;
  if (text.size() > 64 || std::sscanf(text.c_str(), "%4d-%2u-%2uT%2u:%2u:%2u%n", &year, &month,
                                      &day, &hour, &minute, &second, &used) != 6) {
    return bad;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return bad;
  std::size_t at = static_cast<std::size_t>(used);
  long micros = 0;
  if (at < text.size() && text[at] == '.') {
    long unit = 100'000;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, unit /= 10) {
      micros += unit * (text[at] - '0');
    }
  }
  if (text.substr(at) != "Z" && text.substr(at) != "+00:00") return bad;
  return WallTime(std::chrono::sys_days(date) + std::chrono::hours(hour) +
                  std::chrono::minutes(minute) + seconds(second) + microseconds(micros));
}

}  // namespace muster
