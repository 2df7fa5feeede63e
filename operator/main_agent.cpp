#include "operator/main_agent.h"

#include <poll.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/contract.h"
#include "operator/agent/publisher.h"

namespace muster::operator_main {
namespace {

/// What the agent asks the API server with.
Result<std::unique_ptr<kube::HttpTransport>> agent_transport(const Flags& flags,
                                                             const Surroundings& surroundings,
                                                             const Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(auto access, cluster_access(flags, surroundings));
  access.transport.clock = &clock;
  access.transport.user_agent = "muster-node-agent/" MUSTER_VERSION;
  access.transport.threads = 1;  // one request at a time
  auto made = kube::make_rest_transport(access.transport);
  if (!made) return made.error().with_exit_code(contract::exit_code::kUsage);
  return made;
}

/// Whether the process shall go on; false once a signal is there.
bool waits_out(milliseconds wait, int signal_fd, const Clock& clock) {
  const MonoTime end = clock.mono_now() + wait;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - clock.mono_now());
    if (left <= milliseconds(0)) return true;
    pollfd signal{signal_fd, POLLIN, 0};
    if (::poll(&signal, 1, static_cast<int>(left.count())) > 0) return false;
  }
}

}  // namespace

int run_node_agent(const Flags& flags, const Surroundings& surroundings, int signal_fd) {
  configure_log(flags.log_level, {{"component", "muster-node-agent"}});
  const SystemClock clock;
  const auto transport = agent_transport(flags, surroundings, clock);
  if (!transport) {
    std::fprintf(stderr, "muster-operator: %s\n", transport.error().message().c_str());
    return transport.error().exit_code();
  }
  const auto client = kube::make_rest_client(**transport);
  agent::PublisherOptions options;
  options.client = client.get();
  options.node = flags.node_agent;
  options.sysfs = flags.sysfs;
  options.period = flags.node_agent_period;
  (void)!::getrandom(&options.seed, sizeof options.seed, 0);
  agent::Publisher publisher(options);
  log_info("started", {{"version", MUSTER_VERSION}, {"node", flags.node_agent}});
  while (waits_out(publisher.look().wait, signal_fd, clock)) {
  }
  log_info("ended");
  return contract::exit_code::kComplete;
}

}  // namespace muster::operator_main
