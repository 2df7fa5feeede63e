// muster-operator. It decides with the same libraries as `muster run`; what it lacks until the
// cluster release is the wiring to a real API server (transport, leader election, metrics).
#include <cstdio>
#include <string_view>

#include "common/contract.h"
#include "operator/runtime/operator.h"

int main(int argc, char** argv) {
  namespace codes = muster::contract::exit_code;
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("muster-operator 0.1.0 %s\n", muster::contract::kApiVersion.data());
    return codes::kComplete;
  }
  std::fputs(
      "muster-operator: this build does not talk to a cluster yet; run jobs on this machine with "
      "`muster run FILE`, or ask for --version\n",
      stderr);
  return codes::kUsage;
}
