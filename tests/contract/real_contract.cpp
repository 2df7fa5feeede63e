// The contract suite on a real kube-apiserver: the one that KUBECONFIG names. The CRD is there, and
// so is the controller manager, which makes service accounts and collects garbage. Run by
// tests/cluster/contract_test.py.
#include <cstdlib>

#include "operator/kube/kubeconfig.h"
#include "operator/kube/rest_transport.h"
#include "tests/contract/api_contract.h"

namespace muster::contract_test {
namespace {

const SystemClock kClock;

/// Waits on a watch until `path`'s collection shows an object called `name`.
void wait_for(const std::string& collection, const std::string& name) {
  Watch watch(collection, "fieldSelector=metadata.name%3D" + name);
  REQUIRE(watch.wait_for("ADDED", name));
}

}  // namespace

kube::HttpTransport& contract_transport() {
  static const auto kTransport = [] {
    const char* path = std::getenv("KUBECONFIG");
    auto access = kube::read_kubeconfig(path == nullptr ? "" : path);
    MUSTER_CHECK_MSG(access.has_value(), "KUBECONFIG: " + access.error().message());
    access->transport.clock = &kClock;
    auto made = kube::make_rest_transport(access->transport);
    MUSTER_CHECK_MSG(made.has_value(), made.error().message());
    return std::move(*made);
  }();
  return *kTransport;
}

std::string new_namespace() {
  const auto made = call(
      "POST", "/api/v1/namespaces",
      {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"generateName", "contract-"}}}});
  REQUIRE_MESSAGE(made.code == 201, made.message());
  const std::string name = made.meta("name");
  wait_for("/api/v1/namespaces/" + name + "/serviceaccounts", "default");
  return name;
}

}  // namespace muster::contract_test
