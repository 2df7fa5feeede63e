#include "cli/output_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "cli/files.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/model_files.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxJobBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxReportBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxDifferences = 8;
/// Its steps may be millions, and nothing here asks for them.
constexpr LeftOut kStepsOfReport[]{{.parent = "byStep", .name = "", .most = 0}};
/// What the name of a checkpoint's directory begins with.
constexpr std::string_view kCheckpointPrefix = "step-";
constexpr std::string_view kReportFile = "report.json";

/// Whether a person may change it between two runs of one job. Of a spec, what is trained and a
/// worker's program make a job; all else says where, when and by how many, or is for pods alone.
/// Of spec.training nothing that a checkpoint is compared by (identity_of in
/// worker/engine/identity.h) may be free.
bool is_free(const std::string& path) {
  static const std::set<std::string> kOfJob = {
      "spec.training", "spec.worker", "spec.worker.command", "spec.worker.args", "spec.worker.env"};
  static const std::set<std::string> kFreeOfTraining = {
      "spec.training.microBatchSize", "spec.training.activations", "spec.training.optimizerState",
      "spec.training.buddies",        "spec.training.onNonFinite", "spec.training.parallelism",
      "spec.training.checkpoint",     "spec.training.evaluation"};
  const std::size_t dot = path.rfind('.');
  const std::string above = dot == std::string::npos ? "" : path.substr(0, dot);
  if (above == "spec" || above == "spec.worker") return !kOfJob.contains(path);
  return kFreeOfTraining.contains(path);
}

bool is_length(const std::string& path) {
  return path == "spec.training.epochs" || path == "spec.training.steps";
}

/// A schedule is stretched over all steps: with one their number is of the bits.
bool has_schedule(const Json& job) {
  static const Json::json_pointer kSchedule("/spec/training/optimizer/schedule");
  return job.contains(kSchedule);
}

void compare(const std::string& path, const Json& before, const Json& now, Length length,
             std::vector<std::string>& out) {
  if (out.size() >= kMaxDifferences || before == now || is_free(path)) return;
  if (length == Length::kFree && is_length(path)) return;
  if (!before.is_object() || !now.is_object()) {
    out.push_back(path.empty() ? "(whole)" : path);
    return;
  }
  std::set<std::string> names;
  for (const auto& [name, value] : before.items()) names.insert(name);
  for (const auto& [name, value] : now.items()) names.insert(name);
  for (const std::string& name : names) {
    const Json left = before.value(name, Json()), right = now.value(name, Json());
    compare(path.empty() ? name : path + "." + name, left, right, length, out);
  }
}

Error bad_directory(const std::string& path, const std::string& sentence) {
  return Error(ErrorCode::kInvalid, path + ": " + sentence)
      .with_exit_code(contract::exit_code::kUsage);
}

Error from(const std::string& path, const char* doing, const std::error_code& error) {
  return place_error(path, doing, error.value());
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Whether there is nothing but what a run leaves that could not write its job.json.
Result<bool> is_empty(const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const auto name = entry.path().filename();
    if (name != "lock" && name != "job.json.tmp") return false;
  }
  if (error) return from(path, "list", error);
  return true;
}

Result<Json> read_json(const std::string& path, std::size_t max_bytes,
                       std::span<const LeftOut> left_out = {}) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, read_file(path, max_bytes));
  auto json = parse_json(text, left_out);
  if (!json) return json.error().with(path);
  return json;
}

/// What a finished run is kept for. The model comes first and the report, by which it is known to
/// be finished, last: where they are moved or removed, all that stops half-way can be told from
/// what is whole.
std::vector<std::string> results() {
  std::vector<std::string> names{std::string(contract::kModelFile)};
  for (const std::string_view name : contract::kFilesBesideModel) names.emplace_back(name);
  names.emplace_back(kReportFile);
  return names;
}

}  // namespace

std::vector<std::string> differences(const Json& before, const Json& now, Length length) {
  std::vector<std::string> out;
  if (has_schedule(before) || has_schedule(now)) length = Length::kFixed;
  compare("", before, now, length, out);
  return out;
}

std::string checkpoint_name(std::int64_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%012lld", static_cast<long long>(step));
  return std::string(kCheckpointPrefix) + digits;
}

std::int64_t newest_checkpoint_step(const std::string& checkpoints) {
  std::int64_t newest = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kCheckpointPrefix)) continue;
    std::int64_t step = -1;
    const char* end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data() + kCheckpointPrefix.size(), end, step);
    // The manifest is written last: without it the checkpoint is not whole.
    if (failed != std::errc() || stop != end ||
        !fs::exists(entry.path() / "manifest.json", error)) {
      continue;
    }
    newest = std::max(newest, step);
  }
  return newest;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      lock_fd_(other.lock_fd_),
      resumed_from_step_(other.resumed_from_step_) {
  other.lock_fd_ = -1;
}

OutputDirectory::~OutputDirectory() {
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

std::string OutputDirectory::model() const {
  return path_ + "/" + std::string(contract::kModelFile);
}

std::string OutputDirectory::sample() const {
  return path_ + "/" + std::string(contract::kSampleFile);
}

std::string OutputDirectory::report() const { return path_ + "/" + std::string(kReportFile); }

std::string OutputDirectory::previous_model() const {
  return previous() + "/" + std::string(contract::kModelFile);
}

bool OutputDirectory::has_previous_model() const {
  std::error_code error;
  return fs::exists(previous_model(), error);
}

Result<OutputDirectory> OutputDirectory::open(const std::string& path, const Json& job,
                                              Earlier earlier) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return from(path, "create directory", error);
  // A directory of something else must not be written into, not even with a lock.
  MUSTER_ASSIGN_OR_RETURN(const bool has_nothing, is_empty(path));
  if (!has_nothing && !fs::exists(path + "/job.json", error)) {
    return bad_directory(path, "holds files that are not of a `muster run`; give another --output");
  }
  const std::string lock = path + "/lock";
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return from(lock, "open", {errno, std::generic_category()});
  OutputDirectory directory(fs::absolute(path, error), fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return os_error(lock, "lock", errno);
    return bad_directory(
        path, "another `muster run` is writing here; wait for it or give another --output");
  }
  if (earlier == Earlier::kRemoved) MUSTER_RETURN_IF_ERROR(directory.remove_earlier());
  MUSTER_RETURN_IF_ERROR(directory.prepare(job));
  return directory;
}

Status OutputDirectory::check_spec(const Json& job, Length length) const {
  auto before = read_json(path_ + "/job.json", kMaxJobBytes);
  if (!before) {
    if (before.error().code() == ErrorCode::kNotFound) return {};
    return bad_directory(path_, "its job.json cannot be read (" + before.error().message() +
                                    "); give another --output or remove the directory");
  }
  const std::vector<std::string> changed = differences(*before, job, length);
  if (changed.empty()) return {};
  return bad_directory(path_, "belongs to another job: " + joined(changed) + " differ" +
                                  (changed.size() == 1 ? "s" : "") +
                                  "; give another --output, or remove the directory, with which " +
                                  "its checkpoints are lost");
}

bool OutputDirectory::is_finished() const {
  const auto before = read_json(report(), kMaxReportBytes, kStepsOfReport);
  return before && before->is_object() && before->value("status", Json()) == Json("Complete");
}

/// Others' files in previous/ stay.
Status OutputDirectory::remove_previous() const {
  std::error_code error;
  for (const std::string& name : results()) {
    const std::string file = previous() + "/" + name;
    fs::remove(file, error);
    if (error) return from(file, "remove", error);
  }
  fs::remove(previous(), error);
  return {};
}

/// The results of a finished run stay until the next has a model: it may never come to one. There
/// is always one that is whole. As long as the model has not been moved, what previous/ holds is
/// older; where it was and the report was not, an interrupt came between, and the rest follows.
Status OutputDirectory::keep_results() const {
  std::error_code error;
  const bool has_model = fs::exists(model(), error);
  if (error) return from(model(), "look at", error);
  const bool was_cut_off =
      has_previous_model() && !fs::exists(previous() + "/" + std::string(kReportFile), error);
  const bool is_kept = has_model || was_cut_off;
  if (has_model) MUSTER_RETURN_IF_ERROR(remove_previous());
  if (is_kept) fs::create_directory(previous(), error);
  if (error) return from(previous(), "create directory", error);
  for (const std::string& name : results()) {
    const std::string file = path_ + "/" + name;
    if (is_kept && fs::exists(file, error)) {
      MUSTER_RETURN_IF_ERROR(move_file(file, previous() + "/" + name));
    } else if (!error) {
      fs::remove(file, error);
    }
    if (error) return from(file, "remove", error);
  }
  return {};
}

/// A finished run is trained anew. report.json goes after all that could be gone on from, so that
/// an interrupt at any point leaves a run that is either still finished or has nothing of that.
/// checkpoints/ itself stays, for it may be a link or a mount, and with others' files in it.
Status OutputDirectory::forget_finished() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(checkpoints(), error)) {
    if (!entry.path().filename().string().starts_with(kCheckpointPrefix)) continue;
    fs::remove_all(entry.path(), error);
    if (error) return from(entry.path(), "remove", error);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return from(checkpoints(), "list", error);
  }
  const std::string record = checkpoints() + "/" + std::string(contract::kRecordFile);
  fs::remove(record, error);
  if (error) return from(record, "remove", error);
  MUSTER_RETURN_IF_ERROR(keep_results());
  fs::remove_all(logs(), error);
  return {};
}

/// The lock stays, for it is held. job.json goes last: without it the rest is taken for a
/// stranger's.
Status OutputDirectory::remove_earlier() const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const auto name = entry.path().filename();
    if (name != "lock" && name != "job.json") fs::remove_all(entry.path(), error);
    if (error) return from(entry.path(), "remove", error);
  }
  if (error) return from(path_, "list", error);
  fs::remove(path_ + "/job.json", error);
  if (error) return from(path_ + "/job.json", "remove", error);
  return {};
}

Status OutputDirectory::prepare(const Json& job) {
  const bool was_finished = is_finished();
  // A finished run is trained anew, which is not what is meant where it was to be trained on.
  MUSTER_RETURN_IF_ERROR(check_spec(job, was_finished ? Length::kFixed : Length::kFree));
  if (was_finished) MUSTER_RETURN_IF_ERROR(forget_finished());
  // First of all: a directory with anything else in it, but without this, is taken for a
  // stranger's.
  MUSTER_RETURN_IF_ERROR(write_file_atomically(path_ + "/job.json", dump_pretty(job)));
  std::error_code error;
  fs::remove(report(), error);  // it tells of the run before; this one's comes at its end
  if (error) return from(report(), "remove", error);
  for (const std::string& directory : {checkpoints(), logs()}) {
    fs::create_directories(directory, error);
    if (error) return from(directory, "create directory", error);
  }
  resumed_from_step_ = newest_checkpoint_step(checkpoints());
  return {};
}

Result<bool> OutputDirectory::take_model() const {
  std::error_code error;
  const std::string made = checkpoints() + "/" + std::string(contract::kModelFile);
  if (!fs::exists(made, error)) return false;
  for (const std::string_view name : contract::kFilesBesideModel) {
    const std::string written = checkpoints() + "/" + std::string(name);
    if (!fs::exists(written, error) && !error) continue;
    MUSTER_RETURN_IF_ERROR(move_file(written, path_ + "/" + std::string(name)));
  }
  MUSTER_RETURN_IF_ERROR(move_file(made, model()));
  (void)remove_previous();  // what stays is in nobody's way
  return true;
}

}  // namespace muster::cli
