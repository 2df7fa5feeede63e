// muster-worker: the built-in worker's program. Without arguments it is the sentinel, the first
// process of a worker; --trainer is for the sentinel alone, --archive and --wait for `muster
// fetch`.
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/descriptor_limit.h"
#include "common/http/client.h"
#include "common/log.h"
#include "worker/archive.h"
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
      "       muster-worker --archive DIR [NAME...]\n"
      "                                     DIR's files, or of those in it NAME..., to standard\n"
      "                                     output, as a tar archive\n"
      "       muster-worker --wait SECONDS  wait that long, or until SIGTERM\n"
      "       muster-worker --probe URL     ask for URL, trusting MUSTER_CA_CERT\n"
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
  raise_descriptor_limit();
  const SystemClock clock;
  sentinel::SentinelOptions options;
  options.config = *config;
  options.trainer = {"/proc/self/exe", {"muster-worker", std::string(kTrainerFlag)}};
  options.clock = &clock;
  options.seed = static_cast<std::uint64_t>(getpid());
  return sentinel::run_sentinel(options);
}

Result<worker::StepPace> step_pace() {
  const char* const text = std::getenv(std::string(contract::kEnvPaceMs).c_str());
  return worker::parse_step_pace(text == nullptr ? "" : text);
}

/// Those that CUDA, or NVIDIA's container toolkit, is to show; empty where neither is told.
std::string gpus_listed() {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}) {
    if (const char* const listed = std::getenv(name); listed != nullptr) return listed;
  }
  return "";
}

int run_archive(const std::string& directory, std::vector<std::string> names) {
  if (isatty(STDOUT_FILENO) == 1) {
    std::fputs("muster-worker: --archive: standard output is a terminal; send it elsewhere\n",
               stderr);
    return exit_code::kUsage;
  }
  // A reader that went away is an error to tell, not a reason to die without a word.
  std::signal(SIGPIPE, SIG_IGN);
  const Status status = worker::write_archive(directory, STDOUT_FILENO, std::move(names));
  if (status) return exit_code::kComplete;
  std::fprintf(stderr, "muster-worker: --archive: %s\n", status.error().message().c_str());
  return status.error().code() == ErrorCode::kInvalid ? exit_code::kUsage : exit_code::kData;
}

int run_wait(std::string_view text) {
  int duration = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, duration);
  if (parsed.ec != std::errc() || parsed.ptr != end || duration < 1 ||
      duration > worker::kWaitSecondsMax) {
    std::fprintf(stderr, "muster-worker: --wait must be a number of seconds from 1 to %d\n",
                 worker::kWaitSecondsMax);
    return exit_code::kUsage;
  }
  worker::wait_for_signal(seconds(duration), SystemClock());
  return exit_code::kComplete;
}

/// Whether somebody whose certificate is right answers; what the answer says does not matter, since
/// who asks has no rights.
int run_probe(const std::string& url) {
  http::Call call;
  call.url = url;
  const char* ca = std::getenv(std::string(contract::kEnvCaCert).c_str());
  if (ca != nullptr) call.ca_certificate = ca;
  const auto response = http::Client().exchange(call);
  if (!response) {
    std::fprintf(stderr, "muster-worker: --probe: %s\n", response.error().message().c_str());
    return response.error().code() == ErrorCode::kInvalid ? exit_code::kUsage
                                                          : exit_code::kPeerLost;
  }
  std::printf("%s: answers with %d\n", url.c_str(), response->status);
  return response->status < 500 ? exit_code::kComplete : exit_code::kPeerLost;
}

}  // namespace

int main(int argc, char** argv) {
  // None of these trains: they work on any processor.
  if (argc >= 3 && argv[1] == contract::kWorkerFlagArchive) {
    return run_archive(argv[2], {argv + 3, argv + argc});
  }
  if (argc == 3 && argv[1] == contract::kWorkerFlagWait) return run_wait(argv[2]);
  if (argc == 3 && argv[1] == contract::kWorkerFlagProbe) return run_probe(argv[2]);
  const std::string missing = sentinel::describe_missing_cpu_features(
      sentinel::missing_cpu_features(sentinel::read_cpu_bits()));
  if (!missing.empty()) return refuse(exit_code::kCpuOrContract, missing);
  if (argc == 1) return run_worker();
  const std::string_view flag = argv[1];
  if (argc == 2 && flag == kTrainerFlag) {
    return worker::run_trainer(SystemClock(), step_pace(), gpus_listed());
  }
  if (argc == 2 && flag == "--version") {
    std::printf("muster-worker %s, numerics %s\n", MUSTER_VERSION,
                std::string(contract::kNumericsContract).c_str());
    return exit_code::kComplete;
  }
  const bool is_help = argc == 2 && (flag == "--help" || flag == "-h");
  print_usage(is_help ? stdout : stderr);
  return is_help ? exit_code::kComplete : exit_code::kUsage;
}
