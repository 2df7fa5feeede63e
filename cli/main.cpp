// `muster`: the command line.
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <string>

#include "cli/kube_commands.h"
#include "cli/run_command.h"
#include "common/contract.h"
#include "common/log.h"

extern char** environ;

namespace {

using muster::cli::RunOptions;
using muster::cli::ViewMode;

constexpr const char* kVersion = MUSTER_VERSION;

constexpr const char* kRunDescription =
    "Run a job on this machine, with processes in place of pods";
constexpr const char* kRunFooter =
    "The operator is the same as in a cluster.\n\n"
    "  muster run examples/digits.yaml\n"
    "  muster run examples/digits.yaml --set spec.worker.count=3 --output /tmp/digits\n\n"
    "Ctrl-C stops with a checkpoint; the same command goes on from it, with the same bits. The\n"
    "output directory gets model.safetensors, report.json, logs/ and checkpoints/.";

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread and all that it will start, and gives the
/// descriptor that tells of them.
int block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/// The worker's program stands beside this one.
std::string worker_beside_muster() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string own =
      length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "muster";
  const std::size_t slash = own.rfind('/');
  return (slash == std::string::npos ? "." : own.substr(0, slash)) + "/muster-worker";
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

/// As `kubectl muster` when it was started so; nothing else depends on its name.
std::string usage_name(const char* path) {
  const std::string own = path == nullptr ? "" : path;
  return own.ends_with("kubectl-muster") ? "kubectl muster" : "muster";
}

muster::cli::KubeEnvironment kube_environment(const muster::Clock& clock) {
  muster::cli::KubeEnvironment environment;
  environment.variables = own_environment();
  environment.clock = &clock;
  environment.signal_fd = block_signals();
  environment.stdout_is_terminal = isatty(STDOUT_FILENO) == 1;
  winsize size{};
  environment.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  if (environment.width == 0 && environment.stdout_is_terminal) environment.width = 80;
  return environment;
}

void add_run(CLI::App& app, RunOptions& options, bool& is_quiet) {
  CLI::App* run = app.add_subcommand("run", kRunDescription);
  run->footer(kRunFooter);
  run->add_option("FILE", options.file, "manifest of a TrainingJob (YAML or JSON)")->required();
  run->add_option(
         "--set", options.overrides,
         "replace one value of the manifest: path=value, the value as YAML; may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
  run->add_option("--output", options.output,
                  "directory of the run (default muster-out/<job>); one spec each, an unfinished "
                  "run goes on, a finished one is trained anew")
      ->type_name("DIR");
  run->add_option("--hash-every", options.hash_every,
                  "steps between two SHA-256 of the parameters in the report (default 1; 0: the "
                  "last step only)")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  run->add_option("--log-level", options.log_level, "of the workers' logs (default info)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  run->add_option("--metrics-port", options.metrics_port,
                  "serve Prometheus metrics on 127.0.0.1: the operator's on N, those of the worker "
                  "of slot i on N + 1 + i")
      ->type_name("N")
      ->check(CLI::Range(1, 65'535));
  run->add_flag("--quiet", is_quiet, "say nothing while the job runs; the end is still told");
}

}  // namespace

int main(int argc, char** argv) {
  const muster::SystemClock clock;
  RunOptions options;
  options.clock = &clock;
  options.started = clock.mono_now();

  CLI::App app{"Muster: gathers workers and keeps them in step.",
               usage_name(argc > 0 ? argv[0] : nullptr)};
  app.set_version_flag("--version", std::string("muster ") + kVersion);
  app.require_subcommand(1);
  bool is_quiet = false;
  add_run(app, options, is_quiet);
  muster::cli::KubeCommands kube(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are 0; whatever cannot be parsed is usage.
    return app.exit(error) == 0 ? 0 : muster::contract::exit_code::kUsage;
  }

  if (kube.is_chosen()) return kube.run(kube_environment(clock));

  const bool is_debug = options.log_level == "debug";
  muster::configure_log(is_debug ? muster::LogLevel::kDebug : muster::LogLevel::kError,
                        {{"component", "muster-run"}});
  options.view = is_quiet                ? ViewMode::kQuiet
                 : isatty(STDERR_FILENO) ? ViewMode::kTerminal
                                         : ViewMode::kLines;
  options.worker_program = worker_beside_muster();
  options.environment = own_environment();
  options.signal_fd = block_signals();
  return muster::cli::run_command(options);
}
