#include "cli/simulation_trace.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/contract.h"
#include "operator/runtime/what_if.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMaxColumns = 64;
/// Of UTF-8; spreadsheets begin their files with it.
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr double kMaxSeconds = 10.0 * 365 * 24 * 3600;

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  if (line.ends_with('\r')) line.remove_suffix(1);
  for (std::size_t at = 0; at <= line.size() && cells.size() <= kMaxColumns;) {
    const std::size_t comma = std::min(line.find(',', at), line.size());
    std::string_view cell = line.substr(at, comma - at);
    while (cell.starts_with(' ')) cell.remove_prefix(1);
    while (cell.ends_with(' ')) cell.remove_suffix(1);
    cells.push_back(cell);
    at = comma + 1;
  }
  return cells;
}

/// One row by the names of its columns.
class Row {
 public:
  Row(const std::vector<std::string>& columns, std::string_view line, std::size_t number)
      : number_(number) {
    const auto cells = cells_of(line);
    if (cells.size() != columns.size()) {
      fail("has " + std::to_string(cells.size()) + " columns, the header " +
           std::to_string(columns.size()));
      return;
    }
    for (std::size_t i = 0; i < columns.size(); ++i) cells_[columns[i]] = cells[i];
  }

  std::string text(const std::string& column) const {
    const auto found = cells_.find(column);
    return found == cells_.end() ? "" : std::string(found->second);
  }
  double number(const std::string& column, double otherwise, double most) {
    const std::string cell = text(column);
    if (cell.empty()) return otherwise;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    const bool is_number = error == std::errc() && end == cell.data() + cell.size();
    if (!is_number || !(value >= 0) || value > most) {
      fail(column + " is '" + cell.substr(0, 64) + "', not a number from 0 to " +
           std::to_string(static_cast<std::int64_t>(most)));
      return otherwise;
    }
    return value;
  }
  /// Also as "2.0", which is how many programs write a column that has an empty cell.
  int whole_number(const std::string& column, int otherwise, int most) {
    const double value = number(column, otherwise, most);
    if (value == std::floor(value)) return static_cast<int>(value);
    fail(column + " is '" + text(column).substr(0, 64) + "', not a whole number from 0 to " +
         std::to_string(most));
    return otherwise;
  }
  void fail(const std::string& what) {
    if (status_) {
      status_ = Error(ErrorCode::kInvalid, "row " + std::to_string(number_) + ": " + what);
    }
  }
  const Status& status() const { return status_; }

 private:
  std::size_t number_;
  std::map<std::string, std::string_view, std::less<>> cells_;
  Status status_;
};

/// What an elastic job trains: the least that the engine takes, cut into as many logical ranks as
/// there may be processes. Nobody computes it.
Json training_for(int processes) {
  const auto ranks = std::bit_ceil(static_cast<unsigned>(processes));
  const Json data{{"idx", {{"images", "simulated"}, {"labels", "simulated"}}}};
  return Json{{"seed", 1},
              {"epochs", 1},
              {"batchSize", ranks},
              {"logicalRanks", ranks},
              {"model", {{"mlp", {{"hidden", Json::array({1})}}}}},
              {"data", {{"train", data}, {"test", data}}},
              {"optimizer", {{"sgd", {{"learningRate", "0.1"}}}}}};
}

/// spec.worker and, of an elastic job, spec.training; but resources.
Json gang_of(Row& row, int workers) {
  const int least = row.whole_number("min", workers, 4096);
  if (least < 1 || least > workers) row.fail("min: must be from 1 to workers");
  if (least >= workers) {
    return Json{
        {"worker",
         {{"count", workers}, {"image", "simulated"}, {"command", Json::array({"simulated"})}}}};
  }
  const int gpus = row.whole_number("gpus", 0, 64);  // a process each
  return Json{{"worker", {{"count", workers}, {"min", least}, {"max", workers}}},
              {"training", training_for(workers * std::max(1, gpus))}};
}

milliseconds milliseconds_of(double seconds) {
  return milliseconds(static_cast<std::int64_t>(seconds * 1e3 + 0.5));
}

Result<TraceJob> read_job(Row& row, std::size_t number) {
  TraceJob made;
  made.submit = milliseconds_of(row.number("submit", -1, kMaxSeconds));
  made.duration = milliseconds_of(row.number("duration", -1, kMaxSeconds));
  if (made.submit.count() < 0) row.fail("submit: is required");
  if (made.duration.count() < 0) row.fail("duration: is required");
  const int workers = row.whole_number("workers", 1, 4096);
  if (workers < 1) row.fail("workers: must be at least 1");
  Json spec = gang_of(row, workers);
  MUSTER_RETURN_IF_ERROR(row.status());
  std::string name = row.text("name");
  if (name.empty()) name = "job-" + std::to_string(number);
  Json& resources = spec["worker"]["resources"] = Json::object();
  for (const char* resource : {"cpu", "memory", "gpus"}) {
    const std::string cell = row.text(resource);
    if (cell.empty()) continue;
    if (std::string_view(resource) == "gpus") {
      resources[resource] = row.whole_number(resource, 0, 64);
    } else {
      resources[resource] = cell;
    }
  }
  made.manifest = Json{{"apiVersion", contract::kApiVersion},
                       {"kind", contract::kKindTrainingJob},
                       {"metadata", {{"name", name}, {"namespace", "trace"}}},
                       {"spec", std::move(spec)}};
  if (const double deadline = row.number("deadline", 0, kMaxSeconds); deadline > 0) {
    if (milliseconds_of(deadline) < made.duration) row.fail("deadline: is less than duration");
    made.manifest["spec"]["activeDeadlineSeconds"] = static_cast<std::int64_t>(deadline + 0.999);
  }
  if (const auto queue = row.text("queue"); !queue.empty()) {
    made.manifest["spec"]["queueName"] = queue;
  }
  if (const auto priority = row.text("priority"); !priority.empty()) {
    made.manifest["spec"]["priorityClassName"] = priority;
  }
  MUSTER_RETURN_IF_ERROR(row.status());
  auto [job, verdict] = api::read_training_job(made.manifest);
  if (!verdict) row.fail(verdict.error().message());
  MUSTER_RETURN_IF_ERROR(row.status());
  made.job = std::move(job);
  return made;
}

Result<std::vector<std::string>> read_columns(std::string_view line, std::size_t number) {
  const std::string row = "row " + std::to_string(number) + ": ";
  std::vector<std::string> columns;
  std::set<std::string_view> names;
  for (const std::string_view cell : cells_of(line)) {
    if (!cell.empty() && !names.insert(cell).second) {
      return Error(ErrorCode::kInvalid,
                   row + "has the column " + std::string(cell.substr(0, 64)) + " twice");
    }
    columns.emplace_back(cell);
  }
  if (columns.size() > kMaxColumns) {
    return Error(ErrorCode::kInvalid, row + "has more than 64 columns");
  }
  return columns;
}

/// By time of submission.
void put_in_order(std::vector<TraceJob>& trace) {
  std::stable_sort(trace.begin(), trace.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit < b.submit; });
}

}  // namespace

Result<std::vector<TraceJob>> read_trace(const std::string& text) {
  std::vector<TraceJob> trace;
  std::vector<std::string> columns;
  std::map<std::string, std::size_t> names;
  std::size_t number = 0;
  const bool is_marked = text.starts_with(kByteOrderMark);
  for (std::size_t at = is_marked ? kByteOrderMark.size() : 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \r") == std::string_view::npos) continue;
    if (columns.empty()) {
      MUSTER_ASSIGN_OR_RETURN(columns, read_columns(line, number));
      continue;
    }
    if (trace.size() >= kMaxTraceJobs) {
      return Error(ErrorCode::kTooLarge,
                   "has more than " + std::to_string(kMaxTraceJobs) + " jobs");
    }
    Row row(columns, line, number);
    MUSTER_RETURN_IF_ERROR(row.status());
    MUSTER_ASSIGN_OR_RETURN(TraceJob job, read_job(row, trace.size()));
    const auto [same, is_new] = names.emplace(job.job.meta.name, number);
    if (!is_new) {
      return Error(ErrorCode::kInvalid, "row " + std::to_string(number) + ": name is " +
                                            job.job.meta.name + ", as in row " +
                                            std::to_string(same->second));
    }
    trace.push_back(std::move(job));
  }
  if (trace.empty()) return Error(ErrorCode::kInvalid, "has no job");
  put_in_order(trace);
  return trace;
}

Result<std::vector<TraceJob>> recorded_trace(const std::vector<Json>& objects) {
  std::vector<TraceJob> trace;
  std::set<api::ObjectKey> keys;
  for (const Json& object : objects) {
    if (!runtime::is_of_kind(object, contract::kKindTrainingJob)) continue;
    auto [job, verdict] = api::read_training_job(object);
    const auto& began = job.status.start_time;
    const auto& ended = job.status.completion_time;
    const bool is_ours = verdict && job.spec.managed_by == contract::kManagedBy;
    if (!is_ours || !job.meta.creation_time || !began || !ended || *ended < *began) continue;
    if (trace.size() >= kMaxTraceJobs) {
      return Error(ErrorCode::kTooLarge,
                   "has more than " + std::to_string(kMaxTraceJobs) + " jobs that have ended");
    }
    if (!keys.insert(job.meta.key()).second) {
      return Error(ErrorCode::kInvalid, "has " + job.meta.key().text() + " twice");
    }
    TraceJob made;
    made.submit =
        std::chrono::duration_cast<milliseconds>(job.meta.creation_time->time_since_epoch());
    made.duration = std::chrono::duration_cast<milliseconds>(*ended - *began);
    // It is another job now: who owned it and what became of it stays behind.
    made.manifest =
        Json{{"apiVersion", contract::kApiVersion},
             {"kind", contract::kKindTrainingJob},
             {"metadata", {{"name", job.meta.name}, {"namespace", job.meta.namespace_name}}},
             {"spec", object["spec"]}};
    made.manifest["spec"].erase("suspend");
    // The nodes are those of the recording: nobody is there to bind a pod that is placed nowhere,
    // and it would take no room.
    made.manifest["spec"].erase("scheduling");
    if (const auto deadline = job.spec.active_deadline_seconds) {
      // One that its deadline ended ran until then, and is to run as long again.
      const auto least = std::chrono::ceil<seconds>(made.duration) + seconds(1);
      made.manifest["spec"]["activeDeadlineSeconds"] =
          std::max<std::int64_t>(*deadline, least.count());
    }
    std::tie(made.job, verdict) = api::read_training_job(made.manifest);
    trace.push_back(std::move(made));
  }
  if (trace.empty()) return Error(ErrorCode::kInvalid, "has no TrainingJob that has ended");
  put_in_order(trace);
  const milliseconds first = trace.front().submit;
  for (TraceJob& one : trace) one.submit -= first;
  return trace;
}

}  // namespace muster::cli
