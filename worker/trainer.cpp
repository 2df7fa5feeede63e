#include "worker/trainer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <new>
#include <optional>

#include "common/contract.h"
#include "common/log.h"
#include "kernels/ops.h"
#include "worker/comm/communicator.h"
#include "worker/engine/training.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/launch.h"

namespace muster::worker {
namespace {

namespace exit_code = contract::exit_code;

/// The trainers of a gang start within milliseconds of each other; half a minute is for machines
/// that are busy with something else.
constexpr seconds kConnectTimeout{30};

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

Result<engine::TrainingConfig> configure(const sentinel::TrainerLaunch& launch) {
  MUSTER_RETURN_IF_ERROR(force_target(launch.force_target));
  MUSTER_ASSIGN_OR_RETURN(engine::TrainingConfig config, engine::parse_training(launch.training));
  config.job_uid = launch.job_uid;
  config.threads = launch.threads;
  if (!launch.data_root.empty()) config.data_root = launch.data_root;
  if (!launch.checkpoint_path.empty()) config.checkpoint_path = launch.checkpoint_path;
  if (launch.hash_every) config.hash_every_steps = *launch.hash_every;
  return config;
}

Result<std::unique_ptr<comm::Communicator>> connect(const sentinel::TrainerLaunch& launch,
                                                    const Clock& clock) {
  comm::TcpOptions options;
  options.rank = launch.rank;
  options.listen_fd = sentinel::kListenFd;
  for (const auto& peer : launch.peers) options.peers.push_back({peer.host, peer.port});
  options.job_key = launch.job_key;
  options.job_uid = launch.job_uid;
  options.epoch = launch.epoch;
  options.connect_deadline = clock.mono_now() + kConnectTimeout;
  options.clock = &clock;
  return comm::make_tcp_communicator(options);
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
  return record;
}

sentinel::SummaryMessage to_message(const engine::TrainingSummary& summary,
                                    const engine::TrainingConfig& config) {
  sentinel::SummaryMessage message;
  message.complete = summary.complete;
  message.step = summary.step;
  message.total_steps = summary.total_steps;
  message.restored_step = summary.restored_step;
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

Result<engine::TrainingSummary> train(const sentinel::TrainerLaunch& launch, const Clock& clock,
                                      sentinel::ChannelWriter& channel) {
  MUSTER_ASSIGN_OR_RETURN(const engine::TrainingConfig config, configure(launch));
  MUSTER_ASSIGN_OR_RETURN(const auto communicator, connect(launch, clock));
  engine::TrainingHooks hooks;
  hooks.stop = &g_stop;
  hooks.on_start = [&](const engine::TrainingSummary& summary) {
    g_is_training = true;
    channel.send_summary(to_message(summary, config));
  };
  hooks.on_step = [&](const engine::StepReport& report) { channel.add_step(to_record(report)); };
  MUSTER_ASSIGN_OR_RETURN(engine::TrainingSummary summary,
                          engine::run_training(config, *communicator, clock, hooks));
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

int run_trainer(const Clock& clock) {
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
  offer_to_memory_killer();
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  try {
    const auto summary = train(*launch, clock, channel);
    if (!summary) return fail(channel, exit_code_of(summary.error()), summary.error().message());
    return summary->complete ? exit_code::kComplete : exit_code::kPlannedLeave;
  } catch (const std::bad_alloc&) {
    return fail(channel, exit_code::kOutOfMemory,
                "memory is exhausted; raise spec.worker.resources.memory");
  } catch (const std::exception& thrown) {
    return fail(channel, exit_code::kInternal, thrown.what());
  }
}

}  // namespace muster::worker
