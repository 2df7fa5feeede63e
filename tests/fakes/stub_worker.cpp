// A worker whose trainers do as they are told: `stub_worker sentinel PLAN` is the real sentinel,
// and its trainer of local rank i follows the i-th of PLAN's parts, separated by commas:
//   exit:N  fail:N:sentence  signal:N  wait:N  deaf  orphan:FILE  train  look  lose:N  stuck:FILE
//   idle:FILE  loose:FILE  files  paced:FILE  member  done:N
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/few_threads.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/pulse.h"
#include "worker/sentinel/sentinel.h"

using namespace muster;

namespace {

const char* lookup(const char* name) {
  const std::size_t bytes = std::strlen(name);
  for (char** one = environ; *one != nullptr; ++one) {
    if (std::strncmp(*one, name, bytes) == 0 && (*one)[bytes] == '=') return *one + bytes + 1;
  }
  return nullptr;
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, mark);) parts.push_back(part);
  return parts;
}

/// Has made step 3, and saved `checkpoint_step`, if that is one.
int wait_for_stop(int code, std::int64_t checkpoint_step) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  // Says that it is ready: the test may send its signal now.
  sentinel::SummaryMessage started;
  started.total_steps = 100;
  started.checkpoint_path = "somewhere";
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  channel.send_summary(started);
  sentinel::StepRecord step;
  step.step = 3;
  step.total_steps = 100;
  step.checkpoint_step = checkpoint_step;
  channel.add_step(step);
  int got = 0;
  sigwait(&stop, &got);
  return code;
}

/// Leaves a grandchild of another session behind, its process id in `path`.
int leave_orphan(const std::string& path) {
  int ready[2];
  if (pipe(ready) != 0) return 1;
  if (fork() == 0) {
    setsid();
    if (fork() == 0) {
      std::ofstream(path) << getpid() << std::flush;
      if (write(ready[1], "r", 1) != 1) _exit(1);
      while (true) pause();
    }
    _exit(0);
  }
  char byte = 0;
  return read(ready[0], &byte, 1) == 1 ? 0 : 1;
}

int train(sentinel::ChannelWriter& channel) {
  sentinel::SummaryMessage summary;
  summary.total_steps = 200;
  summary.model_parameters = 10;
  summary.data_sha256 = std::string(64, 'd');
  channel.send_summary(summary);
  sentinel::StepRecord step;
  for (step.step = 1; step.step <= 200; ++step.step) {
    step.total_steps = 200;
    step.samples = 64;
    step.loss = 1.0 / static_cast<double>(step.step);
    step.step_seconds = 0.01;
    step.sent_bytes += 100;
    step.logical_rank_computations += 8;
    channel.add_step(step);
  }
  summary.is_final = summary.complete = true;
  summary.step = 200;
  summary.loss = 0.005;
  summary.accuracy = 0.975;
  summary.model_sha256 = std::string(64, 'e');
  summary.sent_bytes = 20'000;
  summary.logical_rank_computations = 1'600;
  channel.send_summary(summary);
  return 0;
}

/// Trains once it is told that it is a member.
int train_as_member() {
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  channel.send_ready({std::string(64, 'd'), {}});
  sentinel::ViewReader views(sentinel::kChannelFd);
  const auto view = views.wait(seconds(30));
  return view && *view ? train(channel) : 98;
}

/// Ready, its process id in `path`, and does nothing.
int idle(const std::string& path) {
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  channel.send_ready({std::string(64, 'd'), {}});
  std::ofstream(path) << getpid() << std::flush;
  while (true) pause();
}

/// The same, where the sentinel's SIGKILL does not reach it.
int idle_out_of_reach(const std::string& path) {
  return setpgid(0, getpgid(getppid())) == 0 ? idle(path) : 1;
}

/// Ends by a signal, which a sanitizer's handler would turn into an exit code.
int die_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
  return 98;
}

/// Trains to the end as a member, and then dies by a signal, or does not end where that is 0.
int end_badly(int signal_number) {
  if (const int code = train_as_member(); code != 0) return code;
  if (signal_number != 0) return die_by(signal_number);
  while (true) pause();
}

/// Has made all steps, and waits for the worker that keeps the files.
int lack_files() {
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  sentinel::EnteredMessage waits;
  waits.epoch = 1;
  waits.step = sentinel::kWaitsForFiles;
  channel.send_entered(waits);
  while (true) pause();
}

/// Makes a step and hangs, its process id in `path`, where the sentinel's SIGKILL does not reach
/// it.
int get_stuck(const std::string& path) {
  if (setpgid(0, getpgid(getppid())) != 0) return 1;
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  channel.send_ready({std::string(64, 'd'), {}});
  sentinel::ViewReader views(sentinel::kChannelFd);
  if (const auto view = views.wait(seconds(30)); !view || !*view) return 98;
  sentinel::StepRecord step;
  step.step = 1;
  step.total_steps = 100;
  step.step_seconds = 0.01;
  channel.add_step(step);
  std::ofstream(path) << getpid() << std::flush;
  while (true) pause();
}

/// Makes steps and tells how fast it is, its process id in `path`: all wait for the member with the
/// highest rank. Once it was started again it waits for the file `path`.go first.
int train_paced(const std::string& path, bool is_again) {
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  std::ofstream(path) << getpid() << std::flush;
  while (is_again && access((path + ".go").c_str(), F_OK) != 0) (void)poll(nullptr, 0, 5);
  channel.send_ready({std::string(64, 'd'), {}});
  sentinel::ViewReader views(sentinel::kChannelFd);
  auto pulse = sentinel::Pulse::open(sentinel::kPulseFd);
  if (!pulse) return 98;
  sentinel::StepRecord step;
  step.total_steps = 1'000'000;
  step.step_seconds = 0.2;
  sentinel::Pace pace;
  pace.logical_ranks = 1;
  pace.whole = milliseconds(200);
  pace.waits_for_all = true;
  while (true) {
    const auto told = views.wait(milliseconds(5));
    if (!told) return 98;
    pulse->beat();
    if (const auto& view = *told) {
      pace.epoch = step.membership_epoch = view->epoch;
      pace.rank = view->rank;
      const int last = static_cast<int>(view->peers.size()) - 1;
      pace.waits.clear();
      if (pace.rank != last) pace.waits.push_back({last, milliseconds(100)});
      pace.compute = milliseconds(pace.rank == last ? 190 : 90);
    }
    if (pace.epoch == 0) continue;
    pace.step = ++step.step;
    channel.add_step(step);
    channel.send_pace({pace});
  }
}

/// 0 when the process was handed exactly what launch.h promises, else which promise was broken.
int look_around() {
  for (const int fd : {sentinel::kChannelFd, sentinel::kListenFd, sentinel::kPulseFd}) {
    if (fcntl(fd, F_GETFD) != 0) return 101;
  }
  for (int fd = sentinel::kPulseFd + 1; fd < 64; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) return 102;
  }
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (const int one : {SIGTERM, SIGINT, SIGCHLD}) {
    if (sigismember(&blocked, one) != 0) return 103;
  }
  return 0;
}

int run_trainer(const std::string& plan) {
  const auto launch = sentinel::receive_launch();
  if (!launch) return 99;
  const auto parts = split(plan, ',');
  const auto part = split(parts.at(static_cast<std::size_t>(launch->local_rank)), ':');
  const std::string& what = part.at(0);
  const auto number = [&part] { return std::atoi(part.at(1).c_str()); };
  if (what == "exit") return number();
  if (what == "train") {
    sentinel::ChannelWriter channel(sentinel::kChannelFd);
    return train(channel);
  }
  if (what == "member") return train_as_member();
  if (what == "look") return look_around();
  if (what == "idle") return idle(part.at(1));
  if (what == "loose") return idle_out_of_reach(part.at(1));
  if (what == "done") return end_badly(number());
  if (what == "files") return lack_files();
  if (what == "stuck") return get_stuck(part.at(1));
  if (what == "paced") return train_paced(part.at(1), launch->incarnation > 0);
  if (what == "wait") return wait_for_stop(31, part.size() > 1 ? number() : -1);
  if (what == "orphan") return leave_orphan(part.at(1));
  if (what == "signal") return die_by(number());
  if (what == "deaf") {
    signal(SIGTERM, SIG_IGN);
    std::ofstream(part.at(1)) << getpid() << std::flush;
    while (true) pause();
  }
  if (what == "fail") {
    sentinel::ChannelWriter channel(sentinel::kChannelFd);
    channel.send_failure(number(), part.at(2));
    return number();
  }
  return 97;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string mode = argv[1];
  if (mode == "trainer") return run_trainer(argv[2]);
  auto config = sentinel::parse_environment(lookup);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.error().message().c_str());
    return config.error().exit_code();
  }
  const SystemClock clock;
  sentinel::SentinelOptions options;
  options.config = *config;
  options.trainer = {"/proc/self/exe", {"stub_worker", "trainer", argv[2]}};
  if (const char* program = lookup("STUB_PROGRAM")) options.trainer.program = program;
  if (const char* join_ms = lookup("STUB_JOIN_MS")) {
    options.join_deadline = milliseconds(std::atoi(join_ms));
  }
  if (const char* stop_ms = lookup("STUB_STOP_MS")) {
    options.stop_grace = milliseconds(std::atoi(stop_ms));
  }
  options.peer_lost_grace = seconds(20);  // longer than a test: only siblings' ends shorten it
  if (const char* grace_ms = lookup("STUB_PEER_MS")) {
    options.peer_lost_grace = milliseconds(std::atoi(grace_ms));
  }
  if (const char* report_ms = lookup("STUB_REPORT_MS")) {
    options.report_again = milliseconds(std::atoi(report_ms));
  }
  if (const char* root = lookup("STUB_SYSTEM")) options.system_root = root;
  const char* const tasks = lookup("STUB_TASKS");
  if (tasks != nullptr && !test::give_few_threads(static_cast<rlim_t>(std::atoi(tasks)))) return 96;
  options.clock = &clock;
  return sentinel::run_sentinel(options);
}
