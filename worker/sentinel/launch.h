// From the endpoint's answer to running trainer processes: which rank is where, what each one is
// given, and how it is started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/messages.h"
#include "common/result.h"
#include "worker/sentinel/environment.h"

namespace muster::sentinel {

/// Descriptors a trainer process finds open; everything else but 0, 1 and 2 is closed.
inline constexpr int kLaunchFd = 3;   ///< its TrainerLaunch as JSON
inline constexpr int kChannelFd = 4;  ///< its end of the channel
inline constexpr int kListenFd = 5;   ///< its listening socket; the sentinel keeps it open, too
inline constexpr int kPulseFd = 6;    ///< its Pulse's page

/// Exit code of a process that could not become the trainer, a shell's for the same.
inline constexpr int kExecFailed = 127;

struct TrainerPeer {
  std::string host;
  int port = 0;
};

struct TrainerLaunch {
  std::string job;
  int slot = 0;
  int local_rank = 0;
  int processes = 1;               ///< of each worker
  int gpus = 0;                    ///< that this worker holds
  int rank = 0;                    ///< processes counted over slots in slot order
  std::vector<TrainerPeer> peers;  ///< by rank, this one included
  std::int64_t epoch = 0;
  std::int64_t incarnation = 0;  ///< processes that this place has had before
  /// The others train already: the state comes from them, not from a checkpoint, unless no view
  /// with a holder of it ever comes.
  bool joining = false;
  bool checks_data = false;  ///< all of them before it is let in, though others know them
  std::string job_uid;
  std::string job_key;
  Json training;
  int threads = 1;
  std::string data_root, checkpoint_path, force_target;  ///< empty = as the job says
  std::optional<std::int64_t> hash_every;
  LogLevel log_level = LogLevel::kInfo;
};

/// One launch per process of this worker. Errors: kInvalid when the answer contradicts itself or
/// the request.
Result<std::vector<TrainerLaunch>> plan_trainers(const WorkerConfig& config,
                                                 const JoinRequest& request,
                                                 const JoinResponse& response);

Json to_json(const TrainerLaunch& launch);
Result<TrainerLaunch> parse_trainer_launch(const Json& json);
/// Reads kLaunchFd to its end and closes it. Errors: kIo, kInvalid (not started by a sentinel).
Result<TrainerLaunch> receive_launch();

struct TrainerCommand {
  std::string program;                 ///< path, no search
  std::vector<std::string> arguments;  ///< argv[0] included
};

struct Trainer {
  pid_t pid = -1;       ///< also its process group
  int channel_fd = -1;  ///< reader; owned by the caller
};

struct TrainerFds {
  int listen = -1;  ///< one listening socket for all incarnations, so that the port stays
  int pulse = -1;   ///< of a PulseMonitor
};

/// Forks and executes one trainer. It dies with the calling thread, which must live as long as the
/// process does. `fds` stay the caller's. Errors: kIo.
Result<Trainer> start_trainer(const TrainerCommand& command, const TrainerLaunch& launch,
                              const TrainerFds& fds);

/// The numeric addresses of `host`, one or more, which are itself where it is one.
/// Blocks: the resolver's time for a name, 20 s and more where a name server gives no answer.
/// Errors: kUnavailable.
Result<std::vector<std::string>> addresses_of(const std::string& host);

/// The address other machines reach this one at: the one it would talk from to the first of
/// `towards`, one or more numeric addresses, that it has a route to. Errors: kUnavailable.
Result<std::string> own_address(const std::vector<std::string>& towards);

}  // namespace muster::sentinel
