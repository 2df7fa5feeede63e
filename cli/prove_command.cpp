#include "cli/prove_command.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "cli/percentile.h"
#include "cli/progress_view.h"
#include "cli/prove_side.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "common/contract.h"
#include "operator/embedded/child_process.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr milliseconds kTick{50};
/// Without any new step for this long, something hangs, and that is a verdict, too. Where it took
/// longer to come to the first step, starting again may take as long.
constexpr seconds kLongestStandstill{60}, kLongestStart{900};
/// A worker takes some time until it may be met again.
constexpr milliseconds kLeastGap{100};

std::string side_text(const ProveSide& side) {
  const ProgressReport& report = side.progress();
  if (side.is_over()) return side.ending().outcome;
  return "step " + std::to_string(report.step) + "/" + std::to_string(report.total_steps) +
         "  workers " + side.workers();
}

bool has_failed(const ProveSide& side) {
  return side.is_over() && side.ending().exit_code != codes::kComplete;
}

class Proof {
 public:
  explicit Proof(const ProveOptions& options)
      : options_(options), view_(stderr, options.view, *options.local.clock) {}

  int run();

 private:
  /// With what both runs have, and what one of them has.
  Result<LocalJob> load(int workers, int least, const std::vector<std::string>& own) const;
  Result<int> least_workers();
  Status start();
  void follow();
  void strike(MonoTime now);
  void show();
  /// For how long nobody may make a step.
  nanoseconds patience(MonoTime now);
  std::string summary() const;
  int judge();
  const Clock& clock() const { return *options_.local.clock; }

  const ProveOptions& options_;
  ProgressView view_;
  std::unique_ptr<ProveSide> calm_, disturbed_;
  std::vector<Disturbance> plan_;
  std::size_t struck_ = 0;
  MonoTime struck_at_{};  ///< the last of them
  int kills_ = 0;         ///< that met somebody
  MonoTime started_at_{};
  std::optional<MonoTime> began_;       ///< both runs have made a step
  MonoTime newest_at_{};                ///< when a step was last told of
  const ProveSide* stopped_ = nullptr;  ///< because the other had failed
  bool is_interrupted_ = false;
  bool leaves_split_open_ = false;  ///< spec.training.parallelism.mode is Auto
  std::optional<seconds> hung_for_;
};

Result<LocalJob> Proof::load(int workers, int least, const std::vector<std::string>& own) const {
  const int most = *std::max_element(options_.sizes.begin(), options_.sizes.end());
  std::vector<std::string> overrides = options_.overrides;
  overrides.insert(overrides.end(), own.begin(), own.end());
  overrides.push_back("spec.worker.count=" + std::to_string(workers));
  overrides.push_back("spec.worker.min=" + std::to_string(least));
  overrides.push_back("spec.worker.max=" + std::to_string(most));
  overrides.emplace_back("spec.worker.shape=Fixed");  // sizes are what is tried
  overrides.push_back("spec.restart={policy: OnFailure, maxRestarts: " +
                      std::to_string(kRestartsOfProof) + ", backoffSeconds: 0}");
  return load_job(options_.file, overrides);
}

/// Those that have one copy of the model together.
Result<int> Proof::least_workers() {
  MUSTER_ASSIGN_OR_RETURN(const LocalJob wished, load_job(options_.file, options_.overrides));
  const api::TrainingJobSpec& spec = wished.job.spec;
  if (!spec.training) {
    return Error(ErrorCode::kInvalid,
                 wished.file +
                     ": spec.training: is missing; only the built-in engine makes the "
                     "promise that is proved here")
        .with_exit_code(codes::kInvalidSpec);
  }
  leaves_split_open_ = spec.training->parallelism_mode == "Auto";
  const int of_copy = spec.training->split.processes();
  const int least = api::workers_together(of_copy, spec.worker.processes);
  for (const int size : options_.sizes) {
    if (size % least == 0) continue;
    return Error(ErrorCode::kInvalid, "--workers: " + std::to_string(size) +
                                          " must be a multiple of " + std::to_string(least) +
                                          ", as many as have one copy of the model "
                                          "(spec.training.parallelism)")
        .with_exit_code(codes::kUsage);
  }
  return least;
}

Status Proof::start() {
  MUSTER_ASSIGN_OR_RETURN(const int least, least_workers());
  const std::string whole = "spec.training.parallelism={}";
  MUSTER_ASSIGN_OR_RETURN(LocalJob calm, load(1, 1, {whole, "spec.worker.processes=1"}));
  const std::vector<std::string> own =
      leaves_split_open_ ? std::vector{whole} : std::vector<std::string>{};
  MUSTER_ASSIGN_OR_RETURN(LocalJob disturbed, load(options_.sizes.front(), least, own));
  const std::string output =
      options_.output.empty() ? "muster-out/prove-" + calm.job.meta.name : options_.output;
  MUSTER_RETURN_IF_ERROR(check_paths(calm, output));
  LocalRunOptions local = options_.local;
  local.hash_every = 1;
  MUSTER_ASSIGN_OR_RETURN(
      calm_, ProveSide::start(local, std::move(calm), output + "/undisturbed", options_.pace_ms));
  MUSTER_ASSIGN_OR_RETURN(disturbed_, ProveSide::start(local, std::move(disturbed),
                                                       output + "/disturbed", options_.pace_ms));
  plan_ = plan_disturbances(options_.seed, options_.sizes, options_.kills);
  return {};
}

int Proof::run() {
  if (const Status started = start(); !started) return tell_error(started.error());
  if (leaves_split_open_) {
    view_.say(
        "Note: spec.training.parallelism.mode is Auto: both runs have whole copies of the model, "
        "as the undisturbed one must; a split is proved with pipeline or tensor in place of mode");
  }
  view_.say("seed " + std::to_string(options_.seed) + ": " + std::to_string(plan_.size()) +
            " disturbances, " + std::to_string(options_.kills) + " of them kills");
  follow();
  calm_->stop();
  disturbed_->stop();
  disturbed_->take_news();
  view_.end_line();
  if (is_interrupted_) {
    std::fputs("Interrupted: nothing is proved\n", stdout);
    return codes::kInterrupted;
  }
  return judge();
}

void Proof::follow() {
  newest_at_ = started_at_ = clock().mono_now();
  while (!calm_->is_over() || !disturbed_->is_over()) {
    std::array<pollfd, 3> polled{
        {{calm_->fd(), POLLIN, 0}, {disturbed_->fd(), POLLIN, 0}, {options_.signal_fd, POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), static_cast<int>(kTick.count()));
    signalfd_siginfo info{};
    if (polled[2].revents != 0 && ::read(options_.signal_fd, &info, sizeof info) > 0) {
      is_interrupted_ = true;
      return;
    }
    const bool has_calm_stepped = calm_->take_news();
    const bool has_disturbed_stepped = disturbed_->take_news();
    // Nothing can be proved any more; the other might train for hours yet.
    if (has_failed(*calm_) || has_failed(*disturbed_)) {
      if (!calm_->is_over()) stopped_ = calm_.get();
      if (!disturbed_->is_over()) stopped_ = disturbed_.get();
      return;
    }
    const MonoTime now = clock().mono_now();
    if (has_calm_stepped || has_disturbed_stepped) newest_at_ = now;
    if (now - newest_at_ > patience(now)) {
      hung_for_ = std::chrono::duration_cast<seconds>(now - newest_at_);
      return;
    }
    strike(now);
    show();
  }
}

nanoseconds Proof::patience(MonoTime now) {
  const bool have_begun = calm_->progress().step > 0 && disturbed_->progress().step > 0;
  if (!began_ && have_begun) began_ = now;
  if (!began_) return kLongestStart;
  return std::max<nanoseconds>(kLongestStandstill, 2 * (*began_ - started_at_));
}

void Proof::strike(MonoTime now) {
  disturbed_->thaw(now);
  const std::int64_t steps = disturbed_->progress().total_steps;
  if (steps <= 0 || struck_ >= plan_.size() || disturbed_->is_over()) return;
  const Disturbance& next = plan_[struck_];
  const auto after = static_cast<std::int64_t>(next.share * static_cast<double>(steps));
  if (now - struck_at_ < kLeastGap || disturbed_->newest_step() <= after) return;
  const auto done = disturbed_->strike(next);
  if (!done) return;  // it waits for somebody to meet
  view_.say(*done);
  struck_at_ = now;
  kills_ += is_kill(next) ? 1 : 0;
  ++struck_;
}

void Proof::show() {
  const std::vector<std::int64_t> stalls = stalls_of(disturbed_->changes());
  const auto longest = std::max_element(stalls.begin(), stalls.end());
  view_.progress("undisturbed: " + side_text(*calm_) + "  |  disturbed: " + side_text(*disturbed_) +
                 "  membership " + std::to_string(disturbed_->progress().membership_epoch) +
                 "  changes " + std::to_string(stalls.size()) + ", longest stall " +
                 std::to_string(longest == stalls.end() ? 0 : *longest) + " ms");
}

std::string Proof::summary() const {
  const std::vector<std::int64_t> stalls = stalls_of(disturbed_->changes());
  return std::to_string(struck_) + " of " + std::to_string(plan_.size()) + " disturbances, " +
         std::to_string(kills_) + " of " + std::to_string(options_.kills) + " kills, " +
         std::to_string(stalls.size()) + " changes of membership, stall p50 " +
         std::to_string(percentile(stalls, 50)) + " ms, p99 " +
         std::to_string(percentile(stalls, 99)) + " ms\n";
}

int Proof::judge() {
  std::string text = summary();
  int code = codes::kComplete;
  for (const ProveSide* side : {calm_.get(), disturbed_.get()}) {
    const char* name = side == calm_.get() ? "undisturbed" : "disturbed";
    if (side->is_over() && side->ending().exit_code == codes::kComplete) continue;
    code = codes::kFailedJob;
    text += std::string("the ") + name + " run did not complete: " +
            (side == stopped_  ? "stopped, because the other had failed"
             : side->is_over() ? side->ending().message
             : hung_for_       ? "no step for " + std::to_string(hung_for_->count()) + " s"
                               : "ended early") +
            "; logs " + side->directory().logs() + "\n";
  }
  if (code == codes::kComplete) {
    const auto calm = calm_->record();
    const auto disturbed = disturbed_->record();
    if (!calm) return tell_error(calm.error());
    if (!disturbed) return tell_error(disturbed.error());
    const std::string model = calm_->model_bytes(), state = calm_->optimizer_bytes();
    const SameFiles same{!model.empty() && model == disturbed_->model_bytes(),
                         !state.empty() && state == disturbed_->optimizer_bytes()};
    const Verdict verdict = compare(*calm, *disturbed, same);
    text += verdict.sentence + "\n";
    if (!verdict.is_equal) code = codes::kFailedJob;
    if (verdict.is_equal && kills_ < options_.kills) {
      code = codes::kFailedJob;
      text +=
          "Nothing is proved of the other kills: training was over before; more steps or a "
          "larger --pace leave room for them\n";
    }
  }
  std::fputs(printable(text).c_str(), stdout);
  std::fflush(stdout);
  return code;
}

}  // namespace

int prove_command(const ProveOptions& options) {
  const embedded::MoreDescriptors descriptors;
  const embedded::OrphanGuard orphans;
  if (::access(options.local.worker_program.c_str(), X_OK) != 0) {
    return tell_error(os_error(options.local.worker_program, "run the built-in worker", errno)
                          .with_exit_code(codes::kUsage));
  }
  return Proof(options).run();
}

}  // namespace muster::cli
