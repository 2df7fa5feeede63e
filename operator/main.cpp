// muster-operator: flags and environment in, an exit code out.
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/contract.h"
#include "operator/main_flags.h"
#include "operator/main_run.h"

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Blocks SIGINT and SIGTERM in this thread and all that it will start, and gives the descriptor
/// that tells of them.
int block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

int main(int argc, char** argv) {
  namespace codes = muster::contract::exit_code;
  const auto line =
      muster::operator_main::parse_command_line(std::vector<std::string>(argv + 1, argv + argc));
  if (!line) {
    std::fprintf(stderr, "muster-operator: %s\n", line.error().message().c_str());
    return codes::kUsage;
  }
  if (line->text) {
    std::fputs(line->text->c_str(), stdout);
    return codes::kComplete;
  }
  muster::operator_main::Surroundings surroundings;
  surroundings.pod_name = environment("POD_NAME");
  surroundings.pod_namespace = environment("POD_NAMESPACE");
  surroundings.pod_ip = environment("POD_IP");
  surroundings.kubernetes_service_host = environment("KUBERNETES_SERVICE_HOST");
  surroundings.kubernetes_service_port = environment("KUBERNETES_SERVICE_PORT");
  return muster::operator_main::run(line->flags, surroundings, block_signals());
}
