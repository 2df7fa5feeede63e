#include "worker/sentinel/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/contract.h"
#include "worker/sentinel/channel.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kMaxLaunchBytes = std::size_t{64} * 1024 * 1024;
constexpr std::size_t kMaxTextBytes = 4096;

Error io_error(const std::string& what) {
  return Error(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("write the trainer's launch");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

/// An anonymous file with `text`, read from its start. Errors: kIo.
Result<int> make_launch_file(const std::string& text) {
  const int fd = memfd_create("muster-launch", MFD_CLOEXEC);
  if (fd < 0) return io_error("memfd_create");
  if (const Status written = write_all(fd, text); !written) {
    close(fd);
    return written.error();
  }
  if (lseek(fd, 0, SEEK_SET) < 0) {
    const Error error = io_error("lseek");
    close(fd);
    return error;
  }
  return fd;
}

/// What the child process needs, made before fork: afterwards only async-signal-safe calls are
/// allowed, because other threads may have held locks.
struct ChildPlan {
  const char* program;
  char* const* arguments;
  std::array<int, 4> fds;  ///< become kLaunchFd, kChannelFd, kListenFd, kPulseFd
  pid_t parent;
};

[[noreturn]] void run_child(const ChildPlan& plan) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(contract::exit_code::kInternal);  // it died before the prctl
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  std::array<int, 4> moved{};
  // First out of the way of the target numbers, then onto them; dup2 clears close-on-exec.
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = fcntl(plan.fds[i], F_DUPFD, 16);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (dup2(moved[i], kLaunchFd + static_cast<int>(i)) < 0) _exit(kExecFailed);
  }
  (void)syscall(SYS_close_range, kPulseFd + 1, ~0U, 0);
  execv(plan.program, plan.arguments);
  _exit(kExecFailed);
}

Json optional_json(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Error contradiction(const std::string& what) {
  return Error(ErrorCode::kInvalid, "the endpoint's answer to join: " + what);
}

}  // namespace

Result<std::vector<TrainerLaunch>> plan_trainers(const WorkerConfig& config,
                                                 const JoinRequest& request,
                                                 const JoinResponse& response) {
  std::vector<JoinPeer> peers = response.peers;
  std::sort(peers.begin(), peers.end(),
            [](const JoinPeer& a, const JoinPeer& b) { return a.slot < b.slot; });
  TrainerLaunch common;
  int first_rank = -1;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const JoinPeer& peer = peers[i];
    if (i > 0 && peers[i - 1].slot == peer.slot) {
      return contradiction("slot " + std::to_string(peer.slot) + " stands in it twice");
    }
    if (peer.ports.size() != request.ports.size()) {
      return contradiction("slot " + std::to_string(peer.slot) +
                           " has another number of processes");
    }
    if (peer.slot == request.slot) {
      if (peer.host != request.host || peer.ports != request.ports) {
        return contradiction("this worker's address in it is not its own");
      }
      first_rank = static_cast<int>(common.peers.size());
    }
    for (const int port : peer.ports) common.peers.push_back({peer.host, port});
  }
  if (first_rank < 0) return contradiction("this worker's slot is not in it");
  if (!response.training.is_object()) return contradiction("it has no training");
  common.job = request.job;
  common.processes = static_cast<int>(request.ports.size());
  common.slot = request.slot;
  common.epoch = response.epoch;
  common.joining = response.joining;
  common.checks_data = response.checks_data;
  common.job_uid = response.job_uid;
  common.job_key = response.job_key;
  common.training = response.training;
  common.threads = response.threads;
  common.gpus = config.gpus;
  common.data_root = config.data_root;
  common.checkpoint_path = config.checkpoint_path;
  common.force_target = config.force_target;
  common.hash_every = config.hash_every;
  common.log_level = config.log_level;
  std::vector<TrainerLaunch> launches(request.ports.size(), common);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].local_rank = static_cast<int>(i);
    launches[i].rank = first_rank + static_cast<int>(i);
  }
  return launches;
}

Json to_json(const TrainerLaunch& launch) {
  Json peers = Json::array();
  for (const auto& peer : launch.peers) peers.push_back({{"host", peer.host}, {"port", peer.port}});
  return Json{{"job", launch.job},
              {"slot", launch.slot},
              {"localRank", launch.local_rank},
              {"processes", launch.processes},
              {"gpus", launch.gpus},
              {"rank", launch.rank},
              {"peers", std::move(peers)},
              {"epoch", launch.epoch},
              {"incarnation", launch.incarnation},
              {"joining", launch.joining},
              {"checksData", launch.checks_data},
              {"jobUid", launch.job_uid},
              {"jobKey", launch.job_key},
              {"training", launch.training},
              {"threads", launch.threads},
              {"dataRoot", launch.data_root},
              {"checkpointPath", launch.checkpoint_path},
              {"forceTarget", launch.force_target},
              {"hashEvery", optional_json(launch.hash_every)},
              {"logLevel", static_cast<int>(launch.log_level)}};
}

Result<TrainerLaunch> parse_trainer_launch(const Json& json) {
  TrainerLaunch launch;
  JsonReader in(json, "launch");
  in.required("job", launch.job);
  in.required("slot", launch.slot, {0, kMaxWorkers - 1});
  in.required("localRank", launch.local_rank, {0, kMaxProcesses - 1});
  in.required("processes", launch.processes, {1, kMaxProcesses});
  in.required("gpus", launch.gpus, {0, kMaxGpus});
  in.required("rank", launch.rank, {0, std::int64_t{kMaxWorkers} * kMaxProcesses});
  in.required("epoch", launch.epoch, {0, INT64_MAX});
  in.required("incarnation", launch.incarnation, {0, INT64_MAX});
  in.required("joining", launch.joining);
  in.required("checksData", launch.checks_data);
  in.required("jobUid", launch.job_uid);
  in.required("jobKey", launch.job_key);
  in.required("threads", launch.threads, {1, 4096});
  in.required("dataRoot", launch.data_root, kMaxTextBytes);
  in.required("checkpointPath", launch.checkpoint_path, kMaxTextBytes);
  in.required("forceTarget", launch.force_target);
  int log_level = 0;
  in.required("logLevel", log_level, {0, static_cast<int>(LogLevel::kError)});
  launch.log_level = static_cast<LogLevel>(log_level);
  if (in.has("hashEvery")) {
    std::int64_t every = 0;
    in.required("hashEvery", every, {0, INT64_MAX});
    launch.hash_every = every;
  }
  if (const Json* training = in.object("training")) launch.training = *training;
  if (const Json* peers = in.array("peers", std::size_t{kMaxWorkers} * kMaxProcesses)) {
    for (const Json& item : *peers) {
      TrainerPeer peer;
      JsonReader one(item, "launch.peers");
      one.required("host", peer.host);
      one.required("port", peer.port, {1, 65535});
      in.take(one.status());
      launch.peers.push_back(std::move(peer));
    }
  }
  if (static_cast<std::size_t>(launch.rank) >= launch.peers.size()) {
    in.fail("rank", "must be below the number of peers");
  }
  MUSTER_RETURN_IF_ERROR(in.status());
  return launch;
}

Result<TrainerLaunch> receive_launch() {
  std::string text;
  char piece[4096];
  while (text.size() <= kMaxLaunchBytes) {
    const ssize_t n = read(kLaunchFd, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("read the launch: a trainer is started by its sentinel alone");
    if (n == 0) break;
    text.append(piece, static_cast<std::size_t>(n));
  }
  close(kLaunchFd);
  MUSTER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  return parse_trainer_launch(json);
}

Result<Trainer> start_trainer(const TrainerCommand& command, const TrainerLaunch& launch,
                              const TrainerFds& fds) {
  auto channel = make_channel();
  auto file = channel ? make_launch_file(dump_json(to_json(launch))) : Result<int>(channel.error());
  if (!file) {
    if (channel) {
      close(channel->reader);
      close(channel->writer);
    }
    return file.error();
  }
  std::vector<char*> arguments;
  arguments.reserve(command.arguments.size() + 1);
  for (const auto& argument : command.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const ChildPlan plan{command.program.c_str(),
                       arguments.data(),
                       {*file, channel->writer, fds.listen, fds.pulse},
                       getpid()};
  const pid_t pid = fork();
  if (pid == 0) run_child(plan);
  const int fork_errno = errno;
  close(*file);
  close(channel->writer);
  if (pid < 0) {
    close(channel->reader);
    errno = fork_errno;
    return io_error("fork");
  }
  (void)setpgid(pid, pid);  // also here: a signal to the group may be due before the child ran
  return Trainer{pid, channel->reader};
}

}  // namespace muster::sentinel
