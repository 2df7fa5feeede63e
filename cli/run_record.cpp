#include "cli/run_record.h"

#include <utility>

#include "cli/files.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::cli {
namespace {

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

Result<RunRecord> read_run_record(const std::string& path) {
  auto content = read_file(path, kMaxRecordBytes);
  if (content) return parse_run_record(*content);
  if (content.error().code() == ErrorCode::kNotFound) return RunRecord{};
  return content.error();
}

}  // namespace muster::cli
