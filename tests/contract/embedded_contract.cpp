// The contract suite on the embedded API server.
#include "common/clock.h"
#include "operator/embedded/api_server.h"
#include "tests/contract/api_contract.h"

namespace muster::contract_test {

kube::HttpTransport& contract_transport() {
  static const SystemClock kClock;
  static embedded::ApiServer server({.clock = &kClock});
  return server;
}

std::string new_namespace() {
  static int count = 0;
  return "contract-" + std::to_string(++count);
}

}  // namespace muster::contract_test
