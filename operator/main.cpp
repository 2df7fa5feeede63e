// muster-operator: flags and environment in, an exit code out.
#include <malloc.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/contract.h"
#include "operator/main_agent.h"
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
  // The C library gives almost every thread a heap of its own, and what one frees no other uses.
  // Threads here mostly wait, so two heaps are contended little. That a thread keeps some of what
  // it frees for itself only the environment can bound (docker/Dockerfile.operator).
  ::mallopt(M_ARENA_MAX, 2);
  // The client library reads the system's authorities for every connection, before ours take their
  // place (operator/kube/rest_transport.cpp). No thread has begun that could read the environment.
  ::setenv("SSL_CERT_FILE", "/dev/null", 1);
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
  const auto run = line->flags.node_agent.empty() ? muster::operator_main::run
                                                  : muster::operator_main::run_node_agent;
  return run(line->flags, surroundings, block_signals());
}
