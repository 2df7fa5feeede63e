// muster-worker: the built-in worker's program. Without arguments it is the sentinel, the first
// process of a worker; --trainer is for the sentinel alone.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/contract.h"
#include "common/log.h"
#include "worker/sentinel/cpu.h"
#include "worker/sentinel/sentinel.h"
#include "worker/trainer.h"

namespace {

using namespace muster;
namespace exit_code = contract::exit_code;

constexpr std::string_view kTrainerFlag = "--trainer";

void print_usage(std::FILE* out) {
  std::fputs(
      "usage: muster-worker\n"
      "One worker of a TrainingJob. It is started by the operator or by `muster run`, and reads\n"
      "everything from its environment: MUSTER_JOB, MUSTER_SLOT, MUSTER_ATTEMPT, MUSTER_WORKERS,\n"
      "MUSTER_ENDPOINT, MUSTER_TOKEN_FILE and more (docs/reference). Exit codes stand there, "
      "too.\n",
      out);
}

/// The configuration's part that is needed to tell why there is no configuration.
sentinel::WorkerConfig termination_log_config() {
  sentinel::WorkerConfig config;
  if (const char* path = std::getenv(std::string(contract::kEnvTerminationLog).c_str());
      path != nullptr) {
    config.termination_log = path;
    config.is_termination_log_given = true;
  }
  return config;
}

int refuse(int code, const std::string& sentence) {
  log_error(
      "worker refused to start",
      {{"exit_code", code}, {"reason", contract::reason_of_exit_code(code)}, {"error", sentence}});
  sentinel::write_termination_log(termination_log_config(), sentence);
  return code;
}

int run_worker() {
  const auto config =
      sentinel::parse_environment([](const char* name) { return std::getenv(name); });
  if (!config) return refuse(config.error().exit_code(), config.error().message());
  configure_log(config->log_level,
                {{"component", "sentinel"}, {"job", config->job}, {"slot", config->slot}});
  const SystemClock clock;
  sentinel::SentinelOptions options;
  options.config = *config;
  options.trainer = {"/proc/self/exe", {"muster-worker", std::string(kTrainerFlag)}};
  options.clock = &clock;
  options.seed = static_cast<std::uint64_t>(getpid());
  return sentinel::run_sentinel(options);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string missing = sentinel::describe_missing_cpu_features(
      sentinel::missing_cpu_features(sentinel::read_cpu_bits()));
  if (!missing.empty()) return refuse(exit_code::kCpuOrContract, missing);
  if (argc == 1) return run_worker();
  const std::string_view flag = argv[1];
  if (argc == 2 && flag == kTrainerFlag) return worker::run_trainer(SystemClock());
  if (argc == 2 && flag == "--version") {
    std::printf("muster-worker %s, numerics %s\n", MUSTER_VERSION,
                std::string(contract::kNumericsContract).c_str());
    return exit_code::kComplete;
  }
  const bool is_help = argc == 2 && (flag == "--help" || flag == "-h");
  print_usage(is_help ? stdout : stderr);
  return is_help ? exit_code::kComplete : exit_code::kUsage;
}
