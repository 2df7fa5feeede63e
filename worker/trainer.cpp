#include "worker/trainer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "common/caught.h"
#include "common/contract.h"
#include "common/descriptor_limit.h"
#include "common/file.h"
#include "common/log.h"
#include "kernels/ops.h"
#include "worker/change_delay.h"
#include "worker/descriptor_limit.h"
#include "worker/device.h"
#include "worker/engine/speeds.h"
#include "worker/engine/training.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/cpu.h"
#include "worker/sentinel/launch.h"
#include "worker/sentinel/memory.h"
#include "worker/sentinel/pace.h"
#include "worker/sentinel/part_pace.h"
#include "worker/sentinel/pulse.h"
#include "worker/step_times.h"
#include "worker/trainer_membership.h"

namespace muster::worker {
namespace {

namespace exit_code = contract::exit_code;

std::atomic<bool> g_stop = false;
/// Before the first step nothing can be saved and nobody looks at g_stop.
std::atomic<bool> g_is_training = false;

void on_stop_signal(int) {
  g_stop = true;
  if (!g_is_training) _exit(exit_code::kPlannedLeave);
}

void watch_stop_signals() {
  struct sigaction action{};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  (void)sigaction(SIGTERM, &action, nullptr);
  (void)sigaction(SIGINT, &action, nullptr);
}

/// Under want of memory the kernel ends the trainer rather than its sentinel, so that somebody is
/// left to tell. Where this is not allowed it stays as it is.
void offer_to_memory_killer() { std::ofstream("/proc/self/oom_score_adj") << "1000"; }

Status force_target(const std::string& name) {
  if (name.empty()) return {};
  std::string available;
  for (const kernels::cpu::Target target :
       {kernels::cpu::Target::kScalar, kernels::cpu::Target::kAvx2, kernels::cpu::Target::kAvx512,
        kernels::cpu::Target::kNeon}) {
    if (!kernels::cpu::has_target(target)) continue;
    if (name == kernels::cpu::name_of(target)) {
      kernels::cpu::force_target(target);
      return {};
    }
    available += (available.empty() ? "" : ", ") + std::string(kernels::cpu::name_of(target));
  }
  return Error(ErrorCode::kInvalid, std::string(contract::kEnvForceTarget) + ": \"" +
                                        name.substr(0, 64) + "\" is none of " + available)
      .with_exit_code(exit_code::kUsage);
}

int exit_code_of(const Error& error) {
  if (error.exit_code() != 0) return error.exit_code();
  switch (error.code()) {
    case ErrorCode::kInvalid:
      return exit_code::kInvalidSpec;
    case ErrorCode::kAborted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
      return exit_code::kPeerLost;
    default:
      return exit_code::kInternal;
  }
}

/// Processes of the job at this one's address. Pods have one each, the workers of a laptop one
/// together.
int processes_together(const sentinel::TrainerLaunch& launch) {
  const std::string& host = launch.peers[static_cast<std::size_t>(launch.rank)].host;
  return static_cast<int>(std::count_if(launch.peers.begin(), launch.peers.end(),
                                        [&](const auto& peer) { return peer.host == host; }));
}

Result<engine::TrainingConfig> configure(const sentinel::TrainerLaunch& launch) {
  MUSTER_RETURN_IF_ERROR(force_target(launch.force_target));
  MUSTER_ASSIGN_OR_RETURN(engine::TrainingConfig config, engine::parse_training(launch.training));
  config.job_uid = launch.job_uid;
  config.look_steps = engine::kSpeedSteps;
  config.threads = launch.threads;
  config.is_joining = launch.joining && !launch.checks_data;
  if (!launch.data_root.empty()) config.data_root = launch.data_root;
  if (!launch.checkpoint_path.empty()) config.checkpoint_path = launch.checkpoint_path;
  if (launch.hash_every) config.hash_every_steps = *launch.hash_every;
  config.processes = static_cast<int>(launch.peers.size());
  config.place = (launch.slot * launch.processes + launch.local_rank) % config.group_size();
  config.together = processes_together(launch);
  const std::int64_t limit = sentinel::memory_limit();
  if (limit > 0 && config.together > 0) {
    config.memory_bytes =
        static_cast<std::size_t>(limit) / static_cast<std::size_t>(config.together);
    config.most_data_held = config.memory_bytes / 4;  // the model wants its part
  }
  return config;
}

sentinel::StepRecord to_record(const engine::StepReport& report) {
  sentinel::StepRecord record;
  record.step = report.step;
  record.total_steps = report.total_steps;
  record.epoch = report.epoch;
  record.samples = report.samples;
  record.checkpoint_step = report.checkpoint_step;
  record.sent_bytes = report.sent_bytes;
  record.logical_rank_computations = report.logical_rank_computations;
  record.loss = static_cast<double>(report.loss);
  record.accuracy = report.accuracy;
  record.step_seconds = report.step_seconds;
  record.data_seconds = report.data_seconds;
  record.compute_seconds = report.compute_seconds;
  record.communicate_seconds = report.communicate_seconds;
  record.update_seconds = report.update_seconds;
  record.record_seconds = report.record_seconds;
  record.evaluate_seconds = report.evaluate_seconds;
  record.checkpoint_seconds = report.checkpoint_seconds;
  record.membership_epoch = report.membership_epoch;
  record.copied_bytes = report.copied_bytes;
  record.blocks_short = report.blocks_short;
  record.part = report.part;
  record.turn_seconds = report.turn_seconds;
  return record;
}

sentinel::SummaryMessage to_message(const engine::TrainingSummary& summary,
                                    const engine::TrainingConfig& config) {
  sentinel::SummaryMessage message;
  message.complete = summary.complete;
  message.step = summary.step;
  message.total_steps = summary.total_steps;
  message.restored_step = summary.restored_step;
  message.checkpoint_step = summary.checkpoint_step;
  message.model_parameters = summary.model_parameters;
  message.loss = static_cast<double>(summary.loss);
  message.accuracy = summary.accuracy;
  message.sent_bytes = summary.sent_bytes;
  message.logical_rank_computations = summary.logical_rank_computations;
  message.checkpoint_durable = config.checkpoint_durable;
  message.model_sha256 = summary.model_sha256;
  message.data_sha256 = summary.data_sha256;
  message.checkpoint_path = config.checkpoint_path;
  return message;
}

/// How long the calling thread has waited for a processor, as the kernel counts it.
class Starvation {
 public:
  Starvation()
      : fd_(open(("/proc/self/task/" + std::to_string(gettid()) + "/schedstat").c_str(),
                 O_RDONLY | O_CLOEXEC)) {}
  /// Seconds since the thread began; 0 where the kernel does not count it.
  double seconds() const {
    std::array<char, 128> text{};
    unsigned long long on_processor = 0, waiting = 0;
    if (!fd_ || pread(fd_.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
    if (std::sscanf(text.data(), "%llu %llu", &on_processor, &waiting) != 2) return 0;
    return static_cast<double>(waiting) * 1e-9;
  }

 private:
  UniqueFd fd_;
};

/// Tells the sentinel how fast this process is, about as often as the sentinels tell each other.
class PaceTeller {
 public:
  /// `has_part`: not the whole model.
  PaceTeller(const Clock& clock, const sentinel::ChannelWriter& channel, bool has_part)
      : clock_(clock), channel_(channel), has_part_(has_part) {}

  void add(const engine::StepReport& report) {
    const MonoTime now = clock_.mono_now();
    const auto seconds_since = [now](MonoTime then) {
      return std::chrono::duration<double>(now - then).count();
    };
    sentinel::StepSample sample;
    sample.epoch = report.membership_epoch;
    sample.step = report.step;
    sample.rank = report.rank;
    sample.is_of_part = has_part_;
    sample.logical_ranks =
        has_part_ ? std::llround(report.part_ranks * sentinel::kRankUnits)
                  : static_cast<std::int64_t>(report.logical_rank_computations - computed_);
    sample.whole_seconds = seconds_since(last_step_);
    sample.data_seconds = report.data_seconds;
    sample.communicate_seconds = report.communicate_seconds;
    sample.files_seconds = report.record_seconds + report.checkpoint_seconds;
    const double starved = starvation_.seconds();
    sample.starved_seconds = starved - std::exchange(starved_, starved);
    sample.waited_seconds = report.waited_seconds;
    for (const comm::Arrivals& one : report.arrivals) {
      sample.arrivals.push_back({static_cast<double>(one.bytes), one.bytes_per_second});
    }
    last_step_ = now;
    computed_ = report.logical_rank_computations;
    book_.add(sample);
    if (report.members < 2 || now - told_ < kPause) return;
    if (auto pace = book_.pace()) channel_.send_pace({*std::move(pace)});
    told_ = now;
  }

 private:
  static constexpr milliseconds kPause{50};
  const Clock& clock_;
  const sentinel::ChannelWriter& channel_;
  const bool has_part_;
  sentinel::PaceBook book_;
  MonoTime last_step_{}, told_{};
  std::uint64_t computed_ = 0;
  Starvation starvation_;  ///< of the training thread, which makes and tells the steps
  double starved_ = 0;
};

void log_times(const StepTimes& times) {
  const StepTimes::Times usual = times.medians();
  log_info("times of steps", {{"steps", times.steps()},
                              {"stepSeconds", usual.step},
                              {"dataSeconds", usual.data},
                              {"computeSeconds", usual.compute},
                              {"communicateSeconds", usual.communicate},
                              {"updateSeconds", usual.update}});
}

/// Of a usual step, beside the device's peak where that is known: the MFU of llm.c. Of a process
/// that shares a device it is the own part of it.
void log_use(const StepTimes::Times& usual, const engine::TrainingConfig& config,
             std::int64_t parameters, const kernels::DeviceFacts& device) {
  const double rows_of_rank = static_cast<double>(config.batch_size) / config.logical_ranks;
  const double flops = usual.ranks * rows_of_rank * flops_of_sample(config, parameters);
  if (flops <= 0 || usual.step <= 0) return;
  const double teraflops = 1e-12 * flops / usual.step;
  if (device.flops_most <= 0) {
    return log_info("use of the GPU", {{"device", device.name}, {"teraflops", teraflops}});
  }
  log_info("use of the GPU", {{"device", device.name},
                              {"teraflops", teraflops},
                              {"mfu", 1e12 * teraflops / device.flops_most}});
}

void wait_until(const Clock& clock, MonoTime due) {
  const auto left = std::chrono::ceil<milliseconds>(due - clock.mono_now());
  if (left > milliseconds{0}) (void)poll(nullptr, 0, static_cast<int>(left.count()));
}

Result<engine::TrainingSummary> train(const sentinel::TrainerLaunch& launch, const Clock& clock,
                                      sentinel::ChannelWriter& channel, sentinel::Pulse& pulse,
                                      const StepPace& pace, const PlaceWatch& places,
                                      int instances) {
  MUSTER_ASSIGN_OR_RETURN(const engine::TrainingConfig config, configure(launch));
  TrainerMembership membership(launch, channel, pulse, clock);
  std::unique_ptr<kernels::Context> device;
  if (launch.gpus > 0) {
    const GpuWish wish{launch.rank, launch.gpus, launch.processes, processes_together(launch),
                       instances};
    MUSTER_ASSIGN_OR_RETURN(device, open_device(config, wish));
  }
  engine::TrainingHooks hooks;
  hooks.device = device.get();
  hooks.stop = &g_stop;
  hooks.on_start = [&](const engine::TrainingSummary& summary) {
    g_is_training = true;
    channel.send_summary(to_message(summary, config));
  };
  PaceTeller pace_teller(clock, channel, config.group_size() > 1);
  ChangeDelay change_delay;
  StepTimes times;
  hooks.on_step = [&](const engine::StepReport& report) {
    sentinel::StepRecord record = to_record(report);
    const double between =
        report.record_seconds + report.evaluate_seconds + report.checkpoint_seconds;
    record.change_delay_seconds =
        change_delay.add({clock.mono_now(), report.step, report.membership_epoch, between})
            .value_or(-1);
    channel.add_step(record);
    pace_teller.add(report);
    times.add(report);
  };
  hooks.on_alive = [&] { pulse.beat(); };
  hooks.on_division = [](const engine::DivisionChange& change) {
    log_info("logical ranks are divided by how fast processes are",
             {{"step", change.step},
              {"before", std::int64_t{change.ranks_before}},
              {"now", std::int64_t{change.ranks_now}}});
  };
  MonoTime due{};
  hooks.at = [&](std::string_view point, std::int64_t step) -> Status {
    pulse.set_evaluating(point == engine::point::kEvaluate);
    if (places) places(point, step);
    if (!pace || point != engine::point::kIdle) return {};
    wait_until(clock, due);
    due = clock.mono_now() + pace();
    return {};
  };
  const auto watch_files = [&](FilesWatch::Thread thread, std::string_view path) {
    membership.files().set(thread, path, clock.mono_now());
  };
  hooks.on_files = [&](std::string_view path) { watch_files(FilesWatch::Thread::kTraining, path); };
  hooks.on_save = [&](std::int64_t) {
    watch_files(FilesWatch::Thread::kSaving, config.checkpoint_path);
  };
  hooks.on_saved = [&](std::int64_t) { watch_files(FilesWatch::Thread::kSaving, {}); };
  hooks.on_record = [&] { watch_files(FilesWatch::Thread::kRecording, config.checkpoint_path); };
  hooks.on_recorded = [&] { watch_files(FilesWatch::Thread::kRecording, {}); };
  MUSTER_ASSIGN_OR_RETURN(engine::TrainingSummary summary,
                          engine::run_training(config, membership, clock, hooks));
  log_times(times);
  if (device) log_use(times.medians(), config, summary.model_parameters, device->facts());
  sentinel::SummaryMessage last = to_message(summary, config);
  last.is_final = true;
  channel.send_summary(last);
  return summary;
}

int fail(sentinel::ChannelWriter& channel, int code, std::string_view sentence) {
  log_error(
      "training failed",
      {{"exit_code", code}, {"reason", contract::reason_of_exit_code(code)}, {"error", sentence}});
  channel.send_failure(code, sentence);
  return code;
}

}  // namespace

int run_trainer(const Clock& clock, const Result<StepPace>& pace, const std::string& gpus_listed,
                const PlaceWatch& places) {
  (void)prctl(PR_SET_NAME, "muster-trainer");  // it was executed as /proc/self/exe
  watch_stop_signals();
  auto launch = sentinel::receive_launch();
  if (!launch) {
    log_error("a trainer is started by its sentinel alone", {{"error", launch.error().message()}});
    return exit_code::kUsage;
  }
  configure_log(launch->log_level, {{"component", "trainer"},
                                    {"job", launch->job},
                                    {"slot", launch->slot},
                                    {"rank", launch->rank}});
  const std::string few = describe_few_descriptors(raise_descriptor_limit(), launch->peers.size());
  if (!few.empty()) log_warning("descriptors may run out", {{"why", few}});
  const std::string throttled = sentinel::describe_few_processors(
      sentinel::processor_limit(), launch->threads * launch->processes);
  if (!throttled.empty() && launch->local_rank == 0) {
    log_warning("too few processors for the threads", {{"why", throttled}});
  }
  const int instances = launch->gpus > 0 ? take_instance(gpus_listed, launch->rank) : 0;
  offer_to_memory_killer();
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  auto pulse = sentinel::Pulse::open(sentinel::kPulseFd);
  if (!pulse) return fail(channel, exit_code::kInternal, pulse.error().message());
  if (!pace) return fail(channel, pace.error().exit_code(), pace.error().message());
  try {
    const auto summary = train(*launch, clock, channel, *pulse, *pace, places, instances);
    if (!summary) return fail(channel, exit_code_of(summary.error()), summary.error().message());
    return summary->complete ? exit_code::kComplete : exit_code::kPlannedLeave;
  } catch (...) {
    const Error thrown = caught_error();
    return fail(channel, thrown.exit_code(), thrown.message());
  }
}

}  // namespace muster::worker
