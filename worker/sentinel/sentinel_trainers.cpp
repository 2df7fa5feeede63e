// The trainers of a worker: started, listened to, started again when they die, ended when they
// hang.
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/log.h"
#include "worker/sentinel/memory.h"
#include "worker/sentinel/part_pace.h"
#include "worker/sentinel/sentinel_worker.h"

namespace muster::sentinel {
namespace {

namespace exit_code = contract::exit_code;

/// Whether another try in the same pod can help: what was wrong is not the spec, the data or the
/// machine.
bool may_be_respawned(int code) {
  switch (code) {
    case exit_code::kInternal:
    case exit_code::kPeerLost:
    case exit_code::kOutOfMemory:
    case exit_code::kHung:
    case exit_code::kMemory:
      return true;
    default:
      return false;
  }
}

/// Of steps that took as long nothing is learnt.
constexpr double kOldSignSeconds = 10;
/// After a verdict the next one waits so many times as long as it took, if not longer than is good
/// for those who wait for it.
constexpr int kJudgePauses = 20;
constexpr milliseconds kJudgePauseMost{1'000};
constexpr std::string_view kWaitsForFilesText = "waiting for worker 0, which keeps the files";

/// Of a hexadecimal digest.
std::uint64_t shorten(const std::string& digest) {
  std::uint64_t value = 0;
  (void)std::from_chars(digest.data(), digest.data() + std::min<std::size_t>(16, digest.size()),
                        value, 16);
  return value;
}

std::uint64_t digest_of(const ReadyMessage& ready) {
  std::optional<std::uint64_t> contents;
  if (!ready.contents.empty()) contents = shorten(ready.contents);
  return make_digest(shorten(ready.outline), contents);
}

/// Of its trainers, by rank: those under one address are on one host.
std::vector<int> hosts_of(const View& view) {
  std::map<std::string_view, int> numbers;
  std::vector<int> hosts;
  for (const Seat& seat : view.seats) {
    const int host = numbers.emplace(seat.host, static_cast<int>(numbers.size())).first->second;
    hosts.insert(hosts.end(), seat.trainers.size(), host);
  }
  return hosts;
}

}  // namespace

Status SentinelWorker::start(TrainerProcess& process) {
  process.watch.reset();
  MUSTER_ASSIGN_OR_RETURN(process.pulse, PulseMonitor::make());
  const auto index = static_cast<std::size_t>(process.launch.local_rank);
  MUSTER_ASSIGN_OR_RETURN(process.trainer, start_trainer(options_.trainer, process.launch,
                                                         {listeners_[index], process.pulse->fd()}));
  process.watch = std::make_unique<DeathWatch>(*process.pulse, death_fd_.get());
  process.views.emplace(process.trainer.channel_fd);
  process.is_running = true;
  process.is_ready = process.is_finished = process.has_stepped = false;
  process.killed_for = KilledFor::kNothing;
  process.last_word.reset();
  process.told_epoch = 0;
  process.beats = 0;
  process.beaten_at = now();
  process.steps.clear();
  process.evaluate_seconds.clear();
  process.busy = {};
  process.pace.reset();
  process.slow = SlowWatch();
  process.waits_for = {};
  process.lacks_state = false;
  process.respawn_at.reset();
  log_debug("trainer started", {{"pid", process.trainer.pid},
                                {"rank", process.launch.rank},
                                {"incarnation", process.launch.incarnation}});
  return {};
}

void SentinelWorker::respawn_due() {
  for (TrainerProcess& process : processes_) {
    const bool is_ending = is_killed_ || (is_stopping_ && !spares_untold_);
    if (!process.respawn_at || now() < *process.respawn_at || is_ending) continue;
    ++process.launch.incarnation;
    process.launch.joining = true;
    book_.restart(process.launch.local_rank);
    metrics_.restart(process.launch.local_rank);
    if (const Status started = start(process); !started) {
      end_with(outcome_of(started.error().with("start a trainer")));
    }
  }
}

bool SentinelWorker::is_any_left() const {
  return std::any_of(processes_.begin(), processes_.end(), [this](const TrainerProcess& process) {
    return process.is_running || (process.respawn_at && !is_killed_);
  });
}

void SentinelWorker::take_messages(std::size_t index) {
  TrainerProcess& process = processes_[index];
  bool has_news = false;
  while (process.trainer.channel_fd >= 0) {
    auto message = receive(process.trainer.channel_fd);
    if (!message) {
      log_error("a trainer's message was dropped", {{"error", message.error().message()}});
      continue;
    }
    if (!*message) break;
    has_news = true;
    take(process, static_cast<int>(index), **message);
  }
  if (has_news && book_.has_news()) report();
  pollfd state{process.trainer.channel_fd, POLLIN, 0};
  if (!has_news && poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0) {
    close_channel(process);  // it would keep poll awake
  }
}

void SentinelWorker::close_channel(TrainerProcess& process) {
  process.views.reset();
  if (process.trainer.channel_fd >= 0) close(std::exchange(process.trainer.channel_fd, -1));
}

void SentinelWorker::take(TrainerProcess& process, int local_rank, TrainerMessage& message) {
  if (auto* steps = std::get_if<StepsMessage>(&message)) {
    book_.add(local_rank, *steps);
    metrics_.add(local_rank, *steps);
    process.take_steps(*steps);
    for (const StepRecord& step : steps->steps) take_change_delay(local_rank, step);
    if (!steps->steps.empty()) take_sign_of_life(steps->steps.back());
  } else if (auto* summary = std::get_if<SummaryMessage>(&message)) {
    book_.add(local_rank, *summary);
    if (!summary->is_final) {
      metrics_.set_start(local_rank, "load", seconds_between(joined_at_, now()));
    } else if (summary->complete) {
      process.is_finished = true;
      finish();
    }
  } else if (auto* failure = std::get_if<FailureMessage>(&message)) {
    process.last_word = std::move(*failure);
  } else if (auto* ready = std::get_if<ReadyMessage>(&message)) {
    process.is_ready = true;
    const std::uint64_t digest = digest_of(*ready);
    // Its other trainers may know more: all have the same files.
    if (has_contents(digest) || outline_of(digest) != outline_of(digest_)) digest_ = digest;
    update_ready();
  } else if (auto* broken = std::get_if<BrokenMessage>(&message)) {
    if (broken->epoch != told_view_.epoch || !membership_) return;
    membership_->broken(now(), broken->epoch);
    act();
  } else if (auto* entered = std::get_if<EnteredMessage>(&message)) {
    take_entered(process, local_rank, *entered);
  } else if (auto* pace = std::get_if<PaceMessage>(&message)) {
    take_pace(process, pace->pace);
  } else if (auto* spared = std::get_if<SparedMessage>(&message)) {
    if (!membership_) return;
    membership_->spares(now(), spared->epoch, std::move(spared->slots));
    act();
  } else if (auto* files = std::get_if<FilesMessage>(&message)) {
    process.busy[files->is_checkpoint ? 1 : 0] = *files;
    report();
  }
}

/// All that is left to the trainers is to end: who does not is killed in the end. Who is still to
/// come in would wait in vain, as nobody makes a membership for it any more.
void SentinelWorker::finish() {
  kill_at_ = std::min(kill_at_.value_or(MonoTime::max()), now() + options_.stop_grace);
  for (TrainerProcess& one : processes_) {
    one.respawn_at.reset();
    const bool is_late = one.is_running && one.launch.joining && one.told_epoch == 0;
    if (is_late) (void)kill(one.trainer.pid, SIGTERM);
  }
  if (membership_) membership_->done(now());
}

void SentinelWorker::take_entered(TrainerProcess& process, int local_rank,
                                  const EnteredMessage& entered) {
  metrics_.add(local_rank, entered);
  if (membership_) membership_->entered(entered.epoch);
  process.lacks_state = entered.step == kWaitsForState;
  const bool waits_for_files = entered.step == kWaitsForFiles || process.lacks_state;
  const std::string_view before =
      std::exchange(process.waits_for, waits_for_files ? kWaitsForFilesText : "");
  if (before != process.waits_for) report();
  if (entered.step < 0) {
    log_info(entered.step == kWaits ? "waits for those that have one copy of the model with it"
                                    : process.waits_for,
             {{"epoch", entered.epoch}});
    return;
  }
  if (!entered.returned.empty() && local_rank == 0 && membership_) {
    changes_.add_return(membership_->view(), entered, membership_->self());
  }
  changes_.add(entered);
  log_info("trains in a membership", {{"epoch", entered.epoch},
                                      {"step", entered.step},
                                      {"stall_ms", entered.stall_seconds * 1000},
                                      {"recomputed", entered.recomputed_logical_ranks},
                                      {"state_bytes", entered.state_bytes}});
}

void SentinelWorker::take_sign_of_life(const StepRecord& step) {
  const double seconds =
      step.step_seconds + step.record_seconds + step.evaluate_seconds + step.checkpoint_seconds;
  const bool is_new = seconds >= 0 && seconds < kOldSignSeconds;
  if (!is_new || !membership_) return;
  const auto took = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
  membership_->stepped(now() - took, step.membership_epoch);
}

void SentinelWorker::take_change_delay(int local_rank, const StepRecord& step) {
  changes_.add(step);
  if (step.change_delay_seconds < 0) return;
  metrics_.set_change_delay(local_rank, step.change_delay_seconds);
  log_info("made the step of a change", {{"epoch", step.membership_epoch},
                                         {"step", step.step},
                                         {"delay_ms", step.change_delay_seconds * 1000}});
}

/// What a trainer tells goes to the others with the next beats.
void SentinelWorker::take_pace(TrainerProcess& process, const Pace& pace) {
  process.pace = pace;
  if (!membership_) return;
  std::vector<Pace> own;
  for (const TrainerProcess& one : processes_) {
    if (one.pace) own.push_back(*one.pace);
  }
  membership_->set_paces(std::move(own));
  if (now() >= judges_at_) judge_own_paces();
}

/// What the others have told so far says how this worker's trainers compare. With many processes
/// that takes a while, in which nobody is heard and no beat is sent: a small part of all time, for
/// all trainers at once.
void SentinelWorker::judge_own_paces() {
  const MonoTime began = now();
  const View& view = membership_->view();
  const Split split = split_of(processes_.front().launch.training);
  const std::vector<Slowness> verdicts =
      split.processes() > 1 ? judge_parts(membership_->paces(), parts_of(view, split))
                            : judge_paces(membership_->paces(), hosts_of(view));
  for (TrainerProcess& process : processes_) {
    const bool is_in = process.is_running && process.pace && process.pace->epoch == view.epoch;
    const auto rank = static_cast<std::size_t>(is_in ? process.pace->rank : -1);
    if (rank >= verdicts.size()) continue;
    metrics_.set_step_delay(process.launch.local_rank, verdicts[rank].delay);
    process.judged_epoch = view.epoch;
    if (process.slow.take(verdicts[rank])) tell_slow(process);
  }
  judges_at_ = now() + std::min<nanoseconds>(kJudgePauses * (now() - began), kJudgePauseMost);
}

void SentinelWorker::tell_slow(const TrainerProcess& process) {
  const Slowness& slowness = process.slow.newest();
  const std::string_view cause = name_of(slowness.cause);
  log_warning("this worker holds the others up",
              {{"rank", process.launch.rank},
               {"cause", cause},
               {"percent", slowness.percent},
               {"delay_ms", static_cast<double>(slowness.delay.count()) / 1000},
               {"step", process.pace->step}});
  const std::string which = processes_.size() == 1
                                ? ""
                                : " (process " + std::to_string(process.launch.local_rank) +
                                      ", rank " + std::to_string(process.launch.rank) + ")";
  changes_.add_slow(membership_->view(), config_.slot, process.pace->step,
                    "by " + std::to_string(slowness.percent) + " %: " + std::string(cause) + which);
  if (book_.has_news()) report();
}

void SentinelWorker::take_deaths() {
  eventfd_t count = 0;
  if (eventfd_read(death_fd_.get(), &count) != 0) return;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    TrainerProcess& process = processes_[i];
    const bool is_dead = process.is_running && process.pulse &&
                         process.pulse->wait(milliseconds(0)) == PulseMonitor::Life::kDead;
    if (!is_dead) continue;
    take_messages(i);  // its last may be that it has finished
    process.is_ready = false;
  }
  update_ready();
}

void SentinelWorker::reap() {
  siginfo_t ended{};
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid > 0) {
    const pid_t pid = std::exchange(ended, {}).si_pid;
    const auto process = std::find_if(processes_.begin(), processes_.end(), [pid](const auto& one) {
      return one.is_running && one.trainer.pid == pid;
    });
    const bool is_trainer = process != processes_.end();
    // What it has started and left behind. Before it is reaped: the dead leader still holds its
    // process group's number, so that the group cannot be another's.
    if (is_trainer) (void)kill(-pid, SIGKILL);
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) != pid) return;
    if (!is_trainer) continue;
    process->trainer.pid = -1;
    on_end(static_cast<std::size_t>(process - processes_.begin()), status);
  }
}

void SentinelWorker::on_end(std::size_t index, int status) {
  take_messages(index);
  TrainerProcess& process = processes_[index];
  process.is_running = process.is_ready = false;
  close_channel(process);
  Outcome ended = explain(process, status);
  log_info("trainer ended", {{"rank", process.launch.rank},
                             {"exit_code", ended.code},
                             {"reason", contract::reason_of_exit_code(ended.code)}});
  if (is_killed_ || ended.code == exit_code::kComplete) return;
  if (is_finished()) {
    log_warning("a trainer ended badly when the job was complete",
                {{"rank", process.launch.rank}, {"error", ended.sentence}});
    return;
  }
  if (is_stopping_ && process.killed_for == KilledFor::kFence) {
    is_cut_off_ = true;  // asked to leave meanwhile, so that nothing starts anew
    return;
  }
  update_ready();
  // It was in no membership since it was started: nothing ends with it, and none is started
  // in its place.
  if (is_stopping_ && process.told_epoch == 0) {
    log_info("a trainer ended before it had begun, as its worker stops",
             {{"rank", process.launch.rank}, {"error", ended.sentence}});
    return;
  }
  ended.sentence = "trainer process " + std::to_string(index) + " (rank " +
                   std::to_string(process.launch.rank) + "): " + ended.sentence;
  if (respawns(process, ended, WIFSIGNALED(status))) return;
  ends_.push_back(std::move(ended));
  if (ends_.back().code == exit_code::kPlannedLeave) return;
  // The others may be the only ones who can save. They are to end anyway, and kill_at_ is set.
  if (is_stopping_) return;
  // The others of this worker cannot stay without it: one typed end is the worker's. One that lost
  // its peers waits for the cause: a sibling's sockets may close before its death is known here.
  const bool is_peer_lost = ends_.back().code == exit_code::kPeerLost;
  kill_at_ = std::min(kill_at_.value_or(MonoTime::max()),
                      is_peer_lost ? now() + options_.peer_lost_grace : now());
}

/// Nobody has finished before all of the gang have agreed on the model, and it is written: whatever
/// becomes of this worker's trainers then, nothing is left for them to do.
bool SentinelWorker::is_finished() const {
  return std::ranges::any_of(processes_, &TrainerProcess::is_finished);
}

bool SentinelWorker::respawns(TrainerProcess& process, const Outcome& ended, bool is_signaled) {
  if (is_stopping_ || kill_at_ || !membership_) return false;
  if (process.killed_for == KilledFor::kFence) {
    process.respawn_at = now();
    return true;
  }
  // One that ended itself before it was ever ready will do so again.
  if (!is_signaled && (process.told_epoch == 0 || !may_be_respawned(ended.code))) return false;
  if (!process.plan_respawn(now())) return false;
  metrics_.add_respawn(process.launch.local_rank);
  log_warning("a trainer died and is started again",
              {{"rank", process.launch.rank}, {"error", ended.sentence}});
  return true;
}

Outcome SentinelWorker::explain(const TrainerProcess& process, int status) {
  if (WIFSIGNALED(status)) {
    const int signal_number = WTERMSIG(status);
    if (process.killed_for == KilledFor::kHang) {
      return {exit_code::kHung, "did not move for too long and was killed"};
    }
    if (is_stopping_ && (signal_number == SIGTERM || signal_number == SIGINT)) {
      return {exit_code::kPlannedLeave, "stopped on request before it had begun"};
    }
    if (signal_number == SIGKILL && memory_kills_ >= 0 &&
        count_memory_kills(options_.system_root) > memory_kills_) {
      ++memory_kills_;  // it explains one death; others may have died with it
      return {exit_code::kOutOfMemory,
              "ended by the kernel for want of memory; raise spec.worker.resources.memory"};
    }
    return {exit_code::kInternal, "ended by signal " + std::to_string(signal_number) + " (" +
                                      strsignal(signal_number) + ")"};
  }
  const int code = WEXITSTATUS(status);
  if (process.last_word) return {code, process.last_word->sentence};
  if (code == kExecFailed) {
    return {exit_code::kInternal, "cannot execute " + options_.trainer.program};
  }
  if (code == exit_code::kPlannedLeave) return {code, "stopped on request"};
  return {code, "ended with exit code " + std::to_string(code) + " (" +
                    std::string(contract::reason_of_exit_code(code)) + ") without a word"};
}

void SentinelWorker::kill_hung() {
  bool is_any_killed = false;
  for (TrainerProcess& process : processes_) {
    if (is_killed_ || !process.is_hung(now())) continue;
    log_error("a trainer does not move and is killed", {{"rank", process.launch.rank}});
    process.killed_for = KilledFor::kHang;
    is_any_killed = true;
    (void)kill(-process.trainer.pid, SIGKILL);
  }
  // In the middle of a system call it may not end for long, and the others need not wait for it.
  if (is_any_killed) update_ready();
}

void SentinelWorker::kill_running() {
  kill_at_.reset();
  is_killed_ = true;
  for (const TrainerProcess& process : processes_) {
    if (process.is_running) (void)kill(-process.trainer.pid, SIGKILL);
  }
}

}  // namespace muster::sentinel
