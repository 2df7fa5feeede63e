// The program as the agent of one node: publishes what sysfs says, until a signal.
#pragma once

#include "operator/main_run.h"

namespace muster::operator_main {

/// As run(), for flags with --node-agent.
int run_node_agent(const Flags& flags, const Surroundings& surroundings, int signal_fd);

}  // namespace muster::operator_main
