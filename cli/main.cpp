// `muster`: the command line.
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/complete_words.h"
#include "cli/completion.h"
#include "cli/flag_checks.h"
#include "cli/job_file_options.h"
#include "cli/kube_commands.h"
#include "cli/kube_query.h"
#include "cli/prove_command.h"
#include "cli/prove_plan.h"
#include "cli/run_command.h"
#include "cli/simulate_command.h"
#include "cli/terminal_text.h"
#include "cli/tokenize_command.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"
#include "common/log.h"

extern char** environ;

namespace {

using muster::cli::RunOptions;
using muster::cli::ViewMode;

constexpr const char* kVersion = MUSTER_VERSION;

constexpr const char* kRunDescription = "Run a job on this machine, with processes instead of pods";
constexpr const char* kRunFooter =
    "The operator is the same as in a cluster.\n\n"
    "  muster run examples/digits.yaml\n"
    "  muster run examples/digits.yaml --set spec.worker.count=3 --output /tmp/digits\n\n"
    "Ctrl-C stops with a checkpoint; the same command continues from it, with the same bits. The\n"
    "output directory gets model.safetensors, report.json, logs/ and checkpoints/. On SIGUSR1 the\n"
    "job is resized to what spec.worker.count in FILE says now, between min and max.";

/// A reader that went away is an error of a write.
void ignore_broken_pipes() { std::signal(SIGPIPE, SIG_IGN); }

/// Blocks SIGINT, SIGTERM, SIGHUP and `others` in this thread and all that it will start, and gives
/// the descriptor that tells of them. For commands that read it: any other could not be ended.
int block_signals(std::initializer_list<int> others = {}) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  struct sigaction hang_up{};
  sigaction(SIGHUP, nullptr, &hang_up);
  // Under nohup it is ignored; blocked, it would be told of all the same.
  if (hang_up.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  for (const int number : others) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ignore_broken_pipes();
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

/// Of a command that has nothing to leave in order: signals end it by themselves.
muster::cli::KubeEnvironment kube_environment(const muster::Clock& clock) {
  ignore_broken_pipes();
  muster::cli::KubeEnvironment environment;
  environment.variables = own_environment();
  environment.clock = &clock;
  environment.stdout_is_terminal = isatty(STDOUT_FILENO) == 1;
  if (environment.stdout_is_terminal) {
    environment.width = muster::cli::terminal_columns(STDOUT_FILENO);
  }
  return environment;
}

int run_kube(muster::cli::KubeCommands& kube, const muster::Clock& clock) {
  auto environment = kube_environment(clock);
  if (!kube.is_offline()) environment.signal_fd = block_signals();
  return kube.run(environment);
}

void add_run(CLI::App& app, RunOptions& options, bool& is_quiet) {
  CLI::App* run = app.add_subcommand("run", kRunDescription);
  run->footer(kRunFooter);
  muster::cli::add_job_file(*run, options.file, options.overrides);
  run->add_option(
         "--output", options.output,
         "directory of the run (default muster-out/<job>), for one spec; an unfinished run in "
         "it is continued, a finished one is trained again")
      ->type_name("DIR");
  run->add_option(
         "--hash-every", options.local.hash_every,
         "steps between two SHA-256 of the parameters in the report (default 1; 0: only the "
         "last)")
      ->type_name("N")
      ->check(muster::cli::whole_number(0, std::uint64_t{1} << 40));
  run->add_option(
         "--log-level", options.local.log_level,
         "level of the workers' logs (default info); debug shows the operator's on stderr, too")
      ->type_name("LEVEL")
      ->check(muster::cli::one_of({"debug", "info", "warning", "error"}));
  run->add_option("--metrics-port", options.local.metrics_port,
                  "serve Prometheus metrics on 127.0.0.1: the operator's on N, those of the worker "
                  "in slot i on N + 1 + i")
      ->type_name("N")
      ->check(muster::cli::whole_number(1, 65'535));
  run->add_option("--price-list", options.price_list,
                  "what nodes cost (YAML); report and metrics then show what the job has cost")
      ->type_name("FILE");
  run->add_flag("--quiet", is_quiet, "print nothing while the job runs, only how it ended");
}

CLI::App* add_prove(CLI::App& app, muster::cli::ProveOptions& options) {
  CLI::App* prove = app.add_subcommand(
      "prove", "Train a job undisturbed and under kills and resizes, and compare every bit");
  prove->footer(
      "  muster prove examples/digits.yaml --workers 1,3,5 --kills 6 --seed 7\n\n"
      "Trains twice at once on this machine: with one undisturbed worker, and with workers that "
      "are\n"
      "killed, frozen, sent away and resized by a schedule that the seed determines.\n"
      "Exit code: 0 when the parameters are equal after every step; 3 when they are not, with the\n"
      "first step that differs, or when training was over before all kills were made.");
  muster::cli::add_job_file(*prove, options.file, options.overrides);
  prove
      ->add_option("--output", options.output,
                   "directory of both runs (default muster-out/prove-<job>); it is replaced")
      ->type_name("DIR");
  prove
      ->add_option("--workers", options.sizes,
                   "worker counts to move between, beginning with the first (default 1,3,5)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("N,...")
      ->check(muster::cli::whole_number(1, 64));
  prove->add_option("--kills", options.kills, "deaths of trainers and workers (default 5)")
      ->type_name("N")
      ->check(muster::cli::whole_number(0, muster::cli::kMaxKills));
  prove->add_option("--seed", options.seed, "seed of the schedule (default 1)")
      ->type_name("S")
      ->check(muster::cli::whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  prove
      ->add_option("--pace", options.pace_ms,
                   "least milliseconds of a step, so that there is time to disturb it (default 25)")
      ->type_name("MS")
      ->check(muster::cli::whole_number(0, 60'000));
  return prove;
}

CLI::App* add_simulate(CLI::App& app, muster::cli::SimulateOptions& options) {
  CLI::App* simulate = app.add_subcommand(
      "simulate", "Replay past jobs on a saved cluster, by the operator's rules and by others'");
  simulate->footer(
      "  muster simulate jobs.csv --cluster cluster.json\n"
      "  muster simulate --cluster cluster.json\n\n"
      "jobs.csv has a header and the columns submit and duration (seconds), and may have workers,\n"
      "min (of an elastic job), cpu, memory, gpus (of each worker), name, queue, priority and\n"
      "deadline. The cluster is a list as `kubectl get -o json` prints it: nodes, and queues,\n"
      "priority classes and topology where they count. Without JOBS those of its TrainingJobs\n"
      "that have ended are replayed. The rules of others are models: whole gangs first come first\n"
      "served, whole gangs as they fit, and pods one by one.");
  simulate->add_option("JOBS", options.jobs, "trace (CSV; default: jobs of the cluster)");
  simulate->add_option("--cluster", options.cluster, "saved cluster (JSON or YAML)")
      ->required()
      ->type_name("FILE");
  simulate->add_option("--rules", options.rules, "rules to compare (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("RULE,...")
      ->check(muster::cli::one_of(muster::cli::kSimulateRules));
  simulate
      ->add_option(
          "--checkpoint-minutes", options.checkpoint_minutes,
          "minutes between checkpoints; a job that has to stop loses what it ran since the last "
          "(default 30; 0: no checkpoints)")
      ->type_name("N")
      ->check(muster::cli::whole_number(0, 100'000));
  simulate
      ->add_option("-o,--output", options.output,
                   "output format: json, for scripts, with every job")
      ->check(muster::cli::one_of({"json"}))
      ->type_name("FORM");
  return simulate;
}

CLI::App* add_tokenize(CLI::App& app, muster::cli::TokenizeOptions& options) {
  CLI::App* tokenize =
      app.add_subcommand("tokenize", "Tokenize texts into a shard, by a GPT-2 vocabulary");
  tokenize->footer(
      "  muster tokenize book.txt --vocabulary gpt2 --output data/train.bin\n\n"
      "The vocabulary is a directory with vocab.json and merges.txt, as Hugging Face keeps them.\n"
      "Every text begins with the token <|endoftext|>, where the vocabulary has it. The shard is\n"
      "what spec.training.data.train.tokens.files takes.");
  tokenize->add_option("TEXT", options.texts, "text files, of any bytes, at most 1 GiB each")
      ->required();
  tokenize
      ->add_option("--vocabulary", options.vocabulary, "directory with vocab.json and merges.txt")
      ->required()
      ->type_name("DIR");
  tokenize->add_option("--output", options.output, "the shard; a file of that name is replaced")
      ->required()
      ->type_name("FILE");
  return tokenize;
}

/// Of the command that was given, the job's file, where it is one that is read once.
void read_job_file_ahead(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    const CLI::Option* file = command->get_option_no_throw("FILE");
    if (file != nullptr) muster::cli::read_ahead(file->as<std::string>());
  }
}

CLI::App* add_completion(CLI::App& app, std::string& shell) {
  CLI::App* completion = app.add_subcommand(
      "completion", "Print a script that completes muster's commands in a shell");
  completion->footer("  source <(muster completion bash)\n  muster completion fish | source");
  completion->add_option("SHELL", shell, "bash, zsh or fish")
      ->required()
      ->check(muster::cli::one_of(
          {muster::cli::kCompletionShells.begin(), muster::cli::kCompletionShells.end()}));
  return completion;
}

/// The words that a shell, or kubectl for one, wants to have completed; nothing where nobody does.
std::optional<std::vector<std::string>> words_to_complete(int argc, char** argv) {
  if (argc < 1) return std::nullopt;
  if (std::string_view(argv[0]).ends_with(muster::cli::kKubectlCompletes)) {
    return std::vector<std::string>(argv + 1, argv + argc);
  }
  if (argc < 2 || std::string_view(argv[1]) != muster::cli::kCompleteCommand) return std::nullopt;
  return std::vector<std::string>(argv + 2, argv + argc);
}

/// A sentence about a first word that is no command; empty where there is nothing to say.
std::string about_unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with('-')) return "";
  const std::string& word = arguments.front();
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == word) return "";
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return app.get_name() + ": \"" + muster::cli::printable(word) + "\" is no command; there are " +
         names + "\n";
}

/// A sentence about what CLI11 would misread, or say too little of; empty where there is nothing.
std::string about_misread(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const std::string unknown = about_unknown_command(app, arguments);
  return unknown.empty() ? muster::cli::about_cut_flag(app, arguments) : unknown;
}

}  // namespace

int main(int argc, char** argv) {
  const muster::SystemClock clock;
  RunOptions options;
  options.local.clock = &clock;
  options.started = clock.mono_now();

  CLI::App app{"Muster: gathers workers and keeps them in step.",
               usage_name(argc > 0 ? argv[0] : nullptr)};
  app.set_version_flag("--version", std::string("muster ") + kVersion);
  app.require_subcommand(1);
  bool is_quiet = false;
  add_run(app, options, is_quiet);
  muster::cli::ProveOptions proof;
  const CLI::App* prove = add_prove(app, proof);
  muster::cli::SimulateOptions simulation;
  const CLI::App* simulate = add_simulate(app, simulation);
  muster::cli::TokenizeOptions texts;
  const CLI::App* tokenize = add_tokenize(app, texts);
  muster::cli::KubeCommands kube(app);
  std::string shell;
  const CLI::App* completion = add_completion(app, shell);
  muster::cli::check_all_values(app);
  if (const auto words = words_to_complete(argc, argv)) {
    return muster::cli::complete_command(app, *words, own_environment(), clock);
  }
  const std::string refused = about_misread(app, argc, argv);
  if (!refused.empty()) {
    std::fputs(refused.c_str(), stderr);
    return muster::contract::exit_code::kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are 0; whatever cannot be parsed is usage.
    const int code = app.exit(error) == 0 ? 0 : muster::contract::exit_code::kUsage;
    return muster::cli::end_output(code);
  }

  // Before any signal is blocked: whoever waits for its writer may interrupt.
  read_job_file_ahead(app);
  if (completion->parsed()) {
    const std::string script = muster::cli::completion_script(shell);
    muster::cli::print(script);
    return muster::cli::end_output(0);
  }
  if (tokenize->parsed()) return muster::cli::end_output(muster::cli::tokenize_command(texts));
  if (kube.is_chosen()) return muster::cli::end_output(run_kube(kube, clock));
  if (simulate->parsed()) {
    const auto environment = kube_environment(clock);
    return muster::cli::end_output(muster::cli::simulate_command(
        simulation, {environment.width, environment.stdout_is_terminal}, clock));
  }

  const bool is_debug = options.local.log_level == "debug";
  muster::configure_log(is_debug ? muster::LogLevel::kDebug : muster::LogLevel::kError,
                        {{"component", "muster-run"}}, muster::OnStillReader::kDrops);
  options.view = is_quiet                ? ViewMode::kQuiet
                 : isatty(STDERR_FILENO) ? ViewMode::kTerminal
                                         : ViewMode::kLines;
  options.local.worker_program = worker_beside_muster();
  options.local.environment = own_environment();
  if (prove->parsed()) {
    proof.view = options.view;
    proof.local = options.local;
    proof.signal_fd = block_signals();
    return muster::cli::end_output(muster::cli::prove_command(proof));
  }
  options.signal_fd = block_signals({muster::cli::kResizeSignal});
  return muster::cli::end_output(muster::cli::run_command(options));
}
