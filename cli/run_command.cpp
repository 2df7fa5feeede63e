#include "cli/run_command.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/cost_words.h"
#include "cli/files.h"
#include "cli/job_follower.h"
#include "cli/job_state.h"
#include "cli/local_run.h"
#include "cli/manifest.h"
#include "cli/output_directory.h"
#include "cli/progress_view.h"
#include "cli/report.h"
#include "cli/sample.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"
#include "common/file.h"
#include "operator/embedded/child_process.h"
#include "operator/runtime/price_file.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

/// Longest that workers may take to leave after the job has failed.
constexpr milliseconds kFailedGrace{10'000};
constexpr milliseconds kLongestWait{60'000};

/// One command, from the prepared directory to the report.
class Run {
 public:
  Run(const RunOptions& options, LocalJob local, OutputDirectory directory)
      : options_(options),
        local_(std::move(local)),
        directory_(std::move(directory)),
        tokens_per_sample_(tokens_per_sample(local_.normalised)),
        follower_(local_.job.meta.name),
        view_(stderr, options.view, *options.local.clock) {}

  int run();

 private:
  Status start();
  Ending follow();
  void take_signal();
  void resize();
  void take_news();
  std::optional<Ending> take_job(Json object, bool is_deleted);
  Status suspend();
  int finish(const Ending& ending);
  std::optional<double> start_to_first_step(const RunRecord& record) const;
  std::string report_of(const Ending& ending, bool has_model, const RunRecord& record) const;
  void tell(const Ending& ending, bool has_model, const RunRecord& record) const;
  bool is_training() const { return local_.job.spec.training.has_value(); }

  const RunOptions& options_;
  LocalJob local_;
  OutputDirectory directory_;
  std::int64_t tokens_per_sample_;  ///< 0: the samples are no texts
  JobFollower follower_;
  ProgressView view_;
  LocalRun run_;  ///< its job: as the API server last had it
  api::TrainingJobStatus status_;
  int interrupts_ = 0;
  struct FirstReport {
    std::int64_t step;
    double seconds;  ///< since the command was started
  };
  std::optional<FirstReport> first_report_;  ///< of slot 0: it comes before the first step
  std::optional<Ending> ending_;
};

Status Run::start() {
  LocalClusterOptions wanted = cluster_options(options_.local, local_, directory_);
  wanted.on_progress = [this](const ProgressReport& report) { follower_.post_progress(report); };
  auto started = start_job(std::move(wanted), local_, follower_);
  if (!started) return started.error();
  run_ = std::move(*started);
  return {};
}

int Run::run() {
  for (const std::string& note : local_.notes) view_.say("Note: " + note);
  if (directory_.resumed_from_step() >= 0) {
    view_.say("Resuming from step " + std::to_string(directory_.resumed_from_step()) + " in " +
              directory_.path());
  }
  if (const Status started = start(); !started) {
    const int code = started.error().exit_code();
    return finish({"Failed", started.error().message(), code > 0 ? code : codes::kInternal});
  }
  return finish(follow());
}

Ending Run::follow() {
  while (!ending_) {
    std::array<pollfd, 2> polled{{{follower_.fd(), POLLIN, 0}, {options_.signal_fd, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), static_cast<int>(kLongestWait.count()));
    if (polled[1].revents != 0) take_signal();
    take_news();
  }
  return *ending_;
}

void Run::take_signal() {
  signalfd_siginfo info{};
  if (::read(options_.signal_fd, &info, sizeof info) != sizeof info) return;
  const int number = static_cast<int>(info.ssi_signo);
  if (number == kResizeSignal) return resize();
  // A terminal that closes tells of it twice: its shell does, and then the system.
  if (number == SIGHUP && interrupts_ > 0) return;
  if (++interrupts_ > 1) {
    ending_ = Ending{"Interrupted", "killed by a second interrupt", codes::kInterrupted};
    return;
  }
  view_.say(std::string(is_training() ? "Stopping with a checkpoint" : "Stopping") +
            "; interrupt again to kill the workers at once.");
  if (const Status asked = suspend(); !asked) {
    ending_ = Ending{"Interrupted", "cannot suspend the job: " + asked.error().message(),
                     codes::kInterrupted};
  }
}

/// What else differs in the file is for the next run: only the count may change while one trains.
void Run::resize() {
  if (is_read_once(options_.file)) {
    return view_.say("Not resized: the manifest came from " + name_of_file(options_.file) +
                     ", which cannot be read again");
  }
  const auto wanted = load_job(options_.file, options_.overrides);
  if (!wanted) return view_.say("Not resized: " + wanted.error().message());
  const int count = wanted->job.spec.worker.count;
  const Status resized = run_.cluster->set_workers(local_.job.meta.key().text(), count);
  view_.say(resized ? "spec.worker.count is " + std::to_string(count)
                    : "Not resized: " + resized.error().message());
}

Status Run::suspend() {
  const Json patch = {{"spec", {{"suspend", true}}}};
  auto patched =
      run_.cluster->client().merge_patch(api::Kind::kTrainingJob, local_.job.meta.key(), "", patch);
  if (patched || patched.error().code() == ErrorCode::kNotFound) return {};
  return patched.error();
}

void Run::take_news() {
  JobFollower::News news = follower_.take();
  if (news.progress) {
    if (!first_report_) {
      const auto since = options_.local.clock->mono_now() - options_.started;
      first_report_ = {news.progress->step, std::chrono::duration<double>(since).count()};
    }
    view_.progress(progress_text(*news.progress, {status_.workers, tokens_per_sample_}));
  }
  for (const std::string& warning : news.warnings) view_.say("Warning: " + warning);
  if (!news.job || ending_) return;
  ending_ = take_job(std::move(*news.job), news.is_deleted);
}

std::optional<Ending> Run::take_job(Json object, bool is_deleted) {
  auto [job, verdict] = api::read_training_job(object);
  run_.job = std::move(object);
  for (const std::string& line : changes(status_, job.status)) view_.say(line);
  status_ = job.status;
  auto ending = ending_of(job);
  if (!ending && is_deleted) ending = Ending{"Failed", "the job was deleted", codes::kFailedJob};
  return ending;
}

/// When the first step had ended: its worker reports right before it, and the record has its
/// length.
std::optional<double> Run::start_to_first_step(const RunRecord& record) const {
  if (!first_report_) return std::nullopt;
  for (const RecordedStep& step : record.steps) {
    if (step.step == first_report_->step + 1) return first_report_->seconds + step.seconds;
  }
  return std::nullopt;
}

std::string Run::report_of(const Ending& ending, bool has_model, const RunRecord& record) const {
  RunFacts facts;
  facts.outcome = ending.outcome;
  facts.message = ending.message;
  facts.exit_code = ending.exit_code;
  const auto since = options_.local.clock->mono_now() - options_.started;
  facts.seconds = std::chrono::duration<double>(since).count();
  facts.start_to_first_step_seconds = start_to_first_step(record);
  facts.resumed_from_step = directory_.resumed_from_step();
  facts.checkpoint_step = newest_checkpoint_step(directory_.checkpoints());
  const JobFollower::Totals totals = follower_.totals();
  facts.sent_bytes = totals.sent_bytes;
  facts.logical_rank_computations = totals.logical_rank_computations;
  facts.has_model = has_model;
  return report_text(run_.job, facts, record);
}

/// Ends everything that runs, then moves the model and writes the report, which is last.
int Run::finish(const Ending& reached) {
  Ending ending = reached;
  const bool at_once = interrupts_ > 1;
  run_.stop(at_once ? milliseconds(0) : kFailedGrace);
  bool has_model = false;
  if (ending.exit_code == codes::kComplete && is_training()) {
    auto taken = directory_.take_model();
    if (!taken) ending = {"Failed", taken.error().message(), codes::kDisk};
    has_model = taken && *taken;
  }
  if (!run_.job.is_object()) run_.job = local_.normalised;
  RunRecord record;
  if (is_training()) {
    auto read =
        read_end_of_record(directory_.checkpoints() + "/" + std::string(contract::kRecordFile));
    if (read) record = std::move(*read);  // without it the report lacks the steps, no more
  }
  const Status written =
      write_file_atomically(directory_.report(), report_of(ending, has_model, record));
  view_.end_line();
  tell(ending, has_model, record);
  return written ? ending.exit_code : tell_error(written.error());
}

void Run::tell(const Ending& ending, bool has_model, const RunRecord& record) const {
  std::string text;
  if (ending.outcome == "Complete") {
    const std::int64_t steps = record.steps.empty() ? 0 : record.steps.back().step;
    text = is_training() ? "Complete: " + std::to_string(steps) + " steps\n"
                         : "Complete: every worker ended with 0\n";
    if (!record.evaluations.empty()) {
      char accuracy[64];
      std::snprintf(accuracy, sizeof accuracy, "test accuracy %.4f\n",
                    record.evaluations.back().accuracy);
      text += accuracy;
    }
    if (has_model) text += "model " + directory_.model() + "\n";
  } else if (ending.outcome == "Interrupted") {
    const std::int64_t step = newest_checkpoint_step(directory_.checkpoints());
    text = step >= 0 ? "Interrupted: checkpoint of step " + std::to_string(step) +
                           "; the same command goes on from there\n"
                     : "Interrupted: there is no checkpoint; the same command starts anew\n";
  } else {
    text = "Failed: " + ending.message + "\n";
    // The engine's last words are the reason that the sentence gives already.
    if (status_.failure && ending.message.find(status_.failure->log_tail) == std::string::npos) {
      text += "last words of worker " + std::to_string(status_.failure->slot) + ": " +
              status_.failure->log_tail + "\n";
    }
    text += "logs " + directory_.logs() + "\n";
  }
  if (directory_.has_previous_model()) {
    text += "model of the run before " + directory_.previous_model() + "\n";
  }
  if (options_.local.prices) text += "cost " + final_cost_words(status_.cost) + "\n";
  std::error_code error;
  if (std::filesystem::exists(directory_.report(), error)) {
    text += "report " + directory_.report() + "\n";
  }
  if (has_model) text += sample_lines(directory_.sample());
  std::fputs(printable(text).c_str(), stdout);
  std::fflush(stdout);
}

/// The last worker's metrics come after the operator's and everybody else's.
Status check_ports(const RunOptions& options, const api::TrainingJob& job) {
  constexpr int kLastPort = 65'535;
  const int most = kLastPort - job.spec.worker.max;
  if (options.local.metrics_port <= most) return {};
  return Error(ErrorCode::kInvalid,
               "--metrics-port: must be at most " + std::to_string(most) +
                   ", because spec.worker.max is " + std::to_string(job.spec.worker.max) +
                   " and the worker of slot i serves on the i + 1st port after it")
      .with_exit_code(codes::kUsage);
}

}  // namespace

int run_command(const RunOptions& options) {
  const embedded::MoreDescriptors descriptors;
  const embedded::OrphanGuard orphans;
  auto local = load_job(options.file, options.overrides);
  if (!local) return tell_error(local.error());
  if (const Status ports = check_ports(options, local->job); !ports)
    return tell_error(ports.error());
  if (local->job.spec.training && ::access(options.local.worker_program.c_str(), X_OK) != 0) {
    return tell_error(os_error(options.local.worker_program, "run the built-in worker", errno)
                          .with_exit_code(codes::kUsage));
  }
  const std::string output =
      options.output.empty() ? "muster-out/" + local->job.meta.name : options.output;
  if (const Status paths = check_paths(*local, output); !paths) return tell_error(paths.error());
  RunOptions priced = options;
  if (!options.price_list.empty()) {
    auto prices = runtime::read_price_file(options.price_list);
    if (!prices) return tell_error(prices.error());
    priced.local.prices = std::move(*prices);
  }
  auto directory = OutputDirectory::open(output, local->normalised);
  if (!directory) return tell_error(directory.error());
  Run run(priced, std::move(*local), std::move(*directory));
  return run.run();
}

}  // namespace muster::cli
