#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/patient_stream.h"

namespace muster {
namespace {

constexpr std::size_t kMaxTextBytes = 1024;

void append_escaped(std::string& out, std::string_view text) {
  const bool cut = text.size() > kMaxTextBytes;
  out += '"';
  for (const char c : text.substr(0, kMaxTextBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      // Bytes above ASCII are escaped one by one: a line stays valid JSON whatever a peer sent.
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  if (cut) out += "...";
  out += '"';
}

void append_fields(std::string& out, std::initializer_list<LogField> fields) {
  for (const auto& [key, value] : fields) {
    out += ',';
    append_escaped(out, key);
    out += ':';
    if (value.quoted()) {
      append_escaped(out, value.text());
    } else {
      out += value.text();
    }
  }
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

struct LogState {
  std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("muster",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  std::string always;
  std::optional<PatientStream> patient;  // stderr, where lines may be left out
};

LogState& state() {
  static LogState instance;
  return instance;
}

}  // namespace

void configure_log(LogLevel least, std::initializer_list<LogField> always,
                   OnStillReader on_still_reader) {
  state().logger->set_level(to_spdlog(least));
  state().patient.reset();
  if (on_still_reader == OnStillReader::kDrops) state().patient.emplace(stderr);
  state().always.clear();
  append_fields(state().always, always);
}

void log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  static constexpr std::string_view kNames[] = {"debug", "info", "warning", "error"};
  if (!state().logger->should_log(to_spdlog(level))) return;
  std::string line =
      "{\"time\":\"" + format_micro_time(SystemClock().wall_now()) + "\",\"level\":\"";
  line += kNames[static_cast<int>(level)];
  line += "\",\"message\":";
  append_escaped(line, message);
  line += state().always;
  const std::size_t front = line.size();
  append_fields(line, fields);
  auto& patient = state().patient;
  // With "}" and the line's end.
  if (patient && line.size() + 2 > PatientStream::kPieceBytes) line.resize(front);
  line += '}';
  if (patient) {
    (void)patient->write(line + '\n');
    return;
  }
  state().logger->log(to_spdlog(level), line);
}

}  // namespace muster
