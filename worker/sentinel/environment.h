// What the worker is told through its environment (contract.h), read once by main.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/log.h"
#include "common/result.h"

namespace muster::sentinel {

struct WorkerConfig {
  std::string job;                       ///< "<namespace>/<name>"
  std::string namespace_name, job_name;  ///< its two halves
  int slot = 0;
  int attempt = 0;
  int workers = 1;
  int processes = 1;
  std::string rack{};          ///< where the node stands in the network; empty: not known
  int gpus = 0;                ///< that are held
  std::string endpoint;        ///< URL without a path
  std::string ca_certificate;  ///< PEM of what an https endpoint's certificate must lead to
  std::string pod_ip;          ///< own address for the others; empty = asked of the system
  std::string node;            ///< where it runs; empty = not known
  std::string token_file;      ///< read anew for each post: projected tokens are renewed
  std::string bind_address = "0.0.0.0";  ///< not given: every address of the family of pod_ip
  int bind_port = 0;                     ///< of process 0; 0 = any free ones
  std::string termination_log = "/dev/termination-log";
  bool is_termination_log_given = false;  ///< a default that is not there is not missed
  int metrics_port = 0;                   ///< 0 = no metrics
  LogLevel log_level = LogLevel::kInfo;
  // Passed on to the trainers.
  std::string data_root = "/usr/share/muster";
  std::string checkpoint_path;
  std::string force_target;
  std::optional<std::int64_t> hash_every;
};

/// The value of an environment variable, nullptr when it is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Errors: kInvalid naming the variable and what would be right, with exit code kUsage.
Result<WorkerConfig> parse_environment(const EnvironmentLookup& lookup);

/// The bearer token in `path`, without the newline at its end. Errors: kIo, kInvalid; naming path.
Result<std::string> read_token(const std::string& path);

}  // namespace muster::sentinel
