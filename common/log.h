// Structured log: one JSON object a line on stderr, a constant message and key/value pairs.
// Hidden behind this file: spdlog (asynchronous sinks are not used; a line is written when log()
// returns).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace muster {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// What a line does where the reader of stderr takes nothing more.
enum class OnStillReader {
  kWaits,
  /// It is left out after a second, and then at once until the reader goes on; of one that a pipe
  /// might take in parts only, the fields are.
  kDrops,
};

/// A value of a log line. Strings are escaped and cut at 1 KiB: they may come from anywhere.
class LogValue {
 public:
  LogValue(std::string_view text) : text_(text), quoted_(true) {}
  LogValue(const char* text) : text_(text), quoted_(true) {}
  LogValue(const std::string& text) : text_(text), quoted_(true) {}
  LogValue(bool value) : text_(value ? "true" : "false") {}
  template <typename T>
    requires std::is_arithmetic_v<T>
  LogValue(T value) : text_(std::to_string(value)) {}

  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }

 private:
  std::string text_;
  bool quoted_ = false;
};

using LogField = std::pair<std::string_view, LogValue>;

/// Sets the least level written (default kInfo) and the fields put on every line (component, job,
/// slot). Call once from main before other threads start.
void configure_log(LogLevel least, std::initializer_list<LogField> always,
                   OnStillReader on_still_reader = OnStillReader::kWaits);

/// Writes {"time":..., "level":..., "message":..., fields...}. Threads: any. Blocks: on stderr,
/// where OnStillReader::kWaits.
void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

inline void log_debug(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kDebug, message, fields);
}
inline void log_info(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kInfo, message, fields);
}
inline void log_warning(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kWarning, message, fields);
}
inline void log_error(std::string_view message, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kError, message, fields);
}

}  // namespace muster
