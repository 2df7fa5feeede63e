#include "cli/kube_commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string_view>

#include "cli/describe_command.h"
#include "cli/expected_start.h"
#include "cli/fetch_command.h"
#include "cli/flag_checks.h"
#include "cli/get_command.h"
#include "cli/job_file_options.h"
#include "cli/kube_query.h"
#include "cli/logs_command.h"
#include "cli/plan_command.h"
#include "cli/suspend_command.h"
#include "cli/tell.h"

namespace muster::cli {

struct KubeCommands::Options {
  KubectlFlags flags;
  GetOptions get;
  DescribeOptions describe;
  LogsOptions logs;
  SuspendOptions suspend;
  std::int64_t suspend_timeout = 300;
  FetchOptions fetch;
  std::int64_t fetch_timeout = 120;
  PlanOptions plan;
  /// Set by the subcommand that was given.
  std::function<int(Kubectl&, const Display&)> chosen;
};

namespace {

/// The flags of every kubectl, passed on as they are.
void add_cluster_flags(CLI::App& command, KubectlFlags& flags) {
  command.add_option("-n,--namespace", flags.namespace_name, "default: the context's")
      ->type_name("NAME");
  command.add_option("--context", flags.context, "context of the kubeconfig")->type_name("NAME");
  command
      .add_option("--kubeconfig", flags.kubeconfig, "kubeconfig to use (default: kubectl's own)")
      ->type_name("FILE");
}

CLI::Option* add_job(CLI::App& command, std::string& job) {
  return command.add_option("JOB", job, "name of a TrainingJob")->required();
}

/// One line for the list of commands, and what `--help` says below the flags.
struct Help {
  const char* line;
  const char* more;
};

constexpr Help kGetHelp{"List the jobs of a namespace",
                        "  muster get\n  muster get -A -o wide\n  muster get digits -w"};
constexpr Help kDescribeHelp{"Show what happened to a job, what it waits for and what would help",
                             ""};
constexpr Help kLogsHelp{
    "Print the logs of a job's workers, merged by time",
    "Each line begins with its worker. Of a failed job the worker that failed first comes first.\n"
    "\n  muster logs digits -f\n  muster logs digits --slot 1 --tail 100"};
constexpr Help kSuspendHelp{"Stop a job and give its resources back",
                            "The job continues later from the checkpoint on the claim that\n"
                            "spec.training.checkpoint.volumeClaimName names. Without a claim it "
                            "starts from the beginning;\n"
                            "a program of your own keeps what it has saved itself."};
constexpr Help kResumeHelp{"Start a suspended job again, from the checkpoint on its claim", ""};
constexpr Help kFetchHelp{
    "Copy the model of a complete job, or the newest checkpoint of another, to this machine",
    "It is read from the claim that spec.training.checkpoint.volumeClaimName names. A pod of the\n"
    "worker image mounts the claim read-only, with your rights, and is deleted afterwards.\n"
    "\n  muster fetch digits --output models/digits"};

constexpr Help kPlanHelp{"Show where and when a job would start, before it is submitted",
                         "Applies the operator's own rules to the cluster as it is now, or as it "
                         "was saved in a file.\nExit code: 0 when the job would start now, 3 when "
                         "it would wait.\n"
                         "\n  muster plan examples/digits.yaml --set spec.worker.count=4\n"
                         "  muster plan examples/digits.yaml --cluster cluster.json -o json"};

using Run = std::function<int(Kubectl&, const Display&)>;

void add_get(CLI::App& command, GetOptions& get) {
  command.add_option("JOB", get.names, "names of TrainingJobs (default: all)");
  command.add_flag("-A,--all-namespaces", get.all_namespaces, "list the jobs of all namespaces");
  command.add_option("-o,--output", get.output, "output format: wide, json, yaml or name")
      ->check(one_of({"wide", "json", "yaml", "name"}))
      ->type_name("FORM");
  command.add_option("-l,--selector", get.selector, "label selector")->type_name("LABELS");
  command.add_flag("-w,--watch", get.watches, "print a row for every change, until Ctrl-C");
}

/// Empty, or why no kubectl reads this as a time. CLI11 puts the flag in front.
std::string since_verdict(const std::string& text) {
  std::string_view rest = text;
  const auto skip = [&rest](std::string_view characters) {
    const std::size_t size = std::min(rest.find_first_not_of(characters), rest.size());
    rest.remove_prefix(size);
    return size;
  };
  bool is_good = !rest.empty() && rest.size() <= 64;
  while (is_good && !rest.empty()) {
    is_good = skip("0123456789") > 0;
    if (skip(".") == 1) skip("0123456789");
    const std::size_t size = rest.starts_with("ms") ? 2 : 1;
    is_good = is_good && !rest.empty() && std::string_view("smh").find(rest.front()) < 3;
    rest.remove_prefix(std::min(size, rest.size()));
  }
  return is_good ? "" : "must be a time such as 30s, 5m or 1h30m";
}

void add_logs(CLI::App& command, LogsOptions& logs) {
  add_job(command, logs.job);
  command.add_flag("-f,--follow", logs.follows,
                   "keep printing, also of workers that start later, until the job is over");
  command.add_option("--tail", logs.tail, "lines of each worker (default: all)")
      ->type_name("N")
      ->check(whole_number(-1, 1'000'000'000));
  command.add_option("--since", logs.since, "only lines newer than this: 30s, 5m, 2h")
      ->type_name("TIME")
      ->check(since_verdict);
  command.add_option("--slot", logs.slots, "only this worker; may be repeated")
      ->type_name("N")
      ->check(whole_number(0, 4095))
      ->allow_extra_args(false);
  command
      .add_option("--container", logs.container,
                  "only this container of the pods: a sidecar, or another of initContainers")
      ->type_name("NAME");
  command.add_flag("--timestamps", logs.has_stamps, "print the time in front of each line");
}

void add_suspend(CLI::App& command, SuspendOptions& suspend, std::int64_t& timeout,
                 const char* until) {
  add_job(command, suspend.job);
  command.add_flag("--wait", suspend.waits, until);
  command.add_option("--timeout", timeout, "how long --wait waits, in seconds (default 300)")
      ->type_name("SECONDS")
      ->check(whole_number(1, 86'400));
}

void add_fetch(CLI::App& command, FetchOptions& fetch, std::int64_t& timeout) {
  add_job(command, fetch.job);
  command.add_option("--output", fetch.output, "directory (default muster-fetch/<job>)")
      ->type_name("DIR");
  command.add_flag("--model", fetch.model_only, "only model.safetensors");
  command.add_option("--image", fetch.image, "image of the pod (default: the workers')")
      ->type_name("IMAGE");
  command
      .add_option("--timeout", timeout, "how long to wait for the pod, in seconds (default 120)")
      ->type_name("SECONDS")
      ->check(whole_number(1, 3'000));
}

void add_plan(CLI::App& command, PlanOptions& plan) {
  add_job_file(command, plan.file, plan.overrides);
  command
      .add_option("--cluster", plan.cluster,
                  "saved cluster: nodes, pods, jobs and queues from kubectl get -o json")
      ->type_name("FILE");
  command
      .add_option("--price-list", plan.price_list,
                  "what nodes cost (YAML), to show what the job would cost")
      ->type_name("FILE");
  command.add_option("-o,--output", plan.output, "output format: json, for scripts")
      ->check(one_of({"json"}))
      ->type_name("FORM");
}

}  // namespace

KubeCommands::KubeCommands(CLI::App& app) : options_(std::make_unique<Options>()) {
  Options& all = *options_;
  const auto add = [&](const char* name, const Help& help, Run run) -> CLI::App& {
    CLI::App* command = app.add_subcommand(name, help.line);
    command->footer(help.more);
    add_cluster_flags(*command, all.flags);
    command->callback([&all, run = std::move(run)] { all.chosen = run; });
    return *command;
  };
  add_get(add("get", kGetHelp,
              [&all](Kubectl& kubectl, const Display& display) {
                return get_command(kubectl, all.get, display);
              }),
          all.get);
  add_job(add("describe", kDescribeHelp,
              [&all](Kubectl& kubectl, const Display& display) {
                return describe_command(kubectl, all.describe, display, expected_start);
              }),
          all.describe.job);
  add_logs(add("logs", kLogsHelp,
               [&all](Kubectl& kubectl, const Display& display) {
                 return logs_command(kubectl, all.logs, display);
               }),
           all.logs);
  const auto run_suspend = [&all](bool suspends) {
    return [&all, suspends](Kubectl& kubectl, const Display&) {
      all.suspend.suspend = suspends;
      all.suspend.timeout = seconds(all.suspend_timeout);
      return suspend_command(kubectl, all.suspend);
    };
  };
  add_suspend(add("suspend", kSuspendHelp, run_suspend(true)), all.suspend, all.suspend_timeout,
              "until the job is suspended");
  add_suspend(add("resume", kResumeHelp, run_suspend(false)), all.suspend, all.suspend_timeout,
              "until the job runs");
  add_fetch(add("fetch", kFetchHelp,
                [&all](Kubectl& kubectl, const Display&) {
                  all.fetch.timeout = seconds(all.fetch_timeout);
                  return fetch_command(kubectl, all.fetch);
                }),
            all.fetch, all.fetch_timeout);
  add_plan(add("plan", kPlanHelp,
               [&all](Kubectl& kubectl, const Display& display) {
                 return plan_command(&kubectl, all.plan, display);
               }),
           all.plan);
}

KubeCommands::~KubeCommands() = default;

bool KubeCommands::is_chosen() const { return static_cast<bool>(options_->chosen); }

/// A plan over a saved cluster.
bool KubeCommands::is_offline() const { return !options_->plan.cluster.empty(); }

int KubeCommands::run(const KubeEnvironment& environment) {
  Display display;
  if (environment.stdout_is_terminal) {
    display.width = environment.width;
    const auto no_colour = environment.variables.find("NO_COLOR");
    const auto terminal = environment.variables.find("TERM");
    const bool is_dumb = terminal != environment.variables.end() && terminal->second == "dumb";
    display.has_colour =
        !is_dumb && (no_colour == environment.variables.end() || no_colour->second.empty());
  }
  options_->plan.namespace_name = options_->flags.namespace_name;
  if (is_offline()) {
    const int planned = plan_command(nullptr, options_->plan, display);
    (void)flush();
    return planned;
  }
  Kubectl::Setting setting;
  setting.environment = environment.variables;
  setting.flags = options_->flags;
  setting.clock = environment.clock;
  setting.signal_fd = environment.signal_fd;
  auto kubectl = Kubectl::find(setting);
  if (!kubectl) return tell_error(kubectl.error());
  const int code = options_->chosen(*kubectl, display);
  (void)flush();
  return code;
}

}  // namespace muster::cli
