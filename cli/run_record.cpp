#include "cli/run_record.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "cli/files.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::cli {
namespace {

/// Some twenty lines.
constexpr std::streamoff kTailBytes = 4096;

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
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= 0) return 0;
  const std::streamoff from = std::max<std::streamoff>(0, size - kTailBytes);
  file.seekg(from);
  std::string tail{std::istreambuf_iterator<char>(file), {}};
  if (from > 0) tail.erase(0, tail.find('\n') + 1);
  const RunRecord record = parse_run_record(tail);
  return record.steps.empty() ? 0 : record.steps.back().step;
}

Result<RunRecord> read_run_record(const std::string& path) {
  auto content = read_file(path, kMaxRecordBytes);
  if (content) return parse_run_record(*content);
  if (content.error().code() == ErrorCode::kNotFound) return RunRecord{};
  return content.error();
}

}  // namespace muster::cli
