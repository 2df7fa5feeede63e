#include "cli/run_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/files.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::cli {
namespace {

/// Some twenty lines.
constexpr std::size_t kTailBytes = 4096;

std::int64_t integer(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : -1;
}

double number(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// False when the line is none of the record's.
bool take_line(std::string_view line, RunRecord& record) {
  const auto json = parse_json(line);
  if (!json || !json->is_object()) return false;
  const auto evaluation = json->find("evaluation");
  if (evaluation != json->end()) {
    if (!evaluation->is_object() || integer(*evaluation, "step") < 0) return false;
    record.evaluations.push_back(
        {integer(*evaluation, "step"), number(*evaluation, "accuracy"), text(*evaluation, "loss")});
    return true;
  }
  if (integer(*json, "step") < 1) return false;
  record.steps.push_back({integer(*json, "step"), integer(*json, "epoch"),
                          integer(*json, "samples"), integer(*json, "workers"), text(*json, "loss"),
                          text(*json, "sha256"), number(*json, "seconds")});
  return true;
}

/// The last whole lines of a file, in `bytes` of it.
Result<std::string> last_lines(const std::string& path, std::size_t bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return os_error(path, "open", errno);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return os_error(path, "read", errno);
  const off_t from = std::max<off_t>(0, status.st_size - static_cast<off_t>(bytes));
  std::string text(static_cast<std::size_t>(status.st_size - from), '\0');
  std::size_t had = 0;
  while (had < text.size()) {
    const ssize_t got =
        ::pread(fd.get(), text.data() + had, text.size() - had, from + static_cast<off_t>(had));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path, "read", errno);
    if (got == 0) break;  // it was cut meanwhile
    had += static_cast<std::size_t>(got);
  }
  text.resize(had);
  if (from > 0) text.erase(0, text.find('\n') + 1);
  return text;
}

}  // namespace

RunRecord parse_run_record(std::string_view text) {
  RunRecord record;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos || !take_line(text.substr(0, end), record)) break;
    text.remove_prefix(end + 1);
  }
  return record;
}

std::int64_t newest_recorded_step(const std::string& path) {
  const auto record = read_end_of_record(path, kTailBytes);
  return !record || record->steps.empty() ? 0 : record->steps.back().step;
}

Result<RunRecord> read_run_record(const std::string& path) {
  auto content = read_file(path, kMaxRecordBytes);
  if (content) return parse_run_record(*content);
  if (content.error().code() == ErrorCode::kNotFound) return RunRecord{};
  return content.error();
}

Result<RunRecord> read_end_of_record(const std::string& path, std::size_t bytes) {
  auto lines = last_lines(path, bytes);
  if (lines) return parse_run_record(*lines);
  if (lines.error().code() == ErrorCode::kNotFound) return RunRecord{};
  return lines.error();
}

}  // namespace muster::cli
