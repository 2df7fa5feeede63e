// The contract suite on the embedded API server, with the schemas that a real one is given.
#include <fstream>
#include <sstream>

#include "common/clock.h"
#include "common/yaml_reader.h"
#include "operator/embedded/api_server.h"
#include "tests/contract/api_contract.h"

namespace muster::contract_test {
namespace {

Json schema_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const auto crd = parse_yaml(text.str(), path);
  MUSTER_CHECK_MSG(crd.has_value(), crd.error().message());
  return (*crd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
}

}  // namespace

kube::HttpTransport& contract_transport() {
  static const SystemClock kClock;
  static embedded::ApiServer server = [] {
    embedded::ApiServerOptions options;
    options.clock = &kClock;
    options.job_schema = schema_of("crds/trainingjob.yaml");
    options.queue_schema = schema_of("crds/trainingqueue.yaml");
    return embedded::ApiServer(std::move(options));
  }();
  return server;
}

std::string new_namespace() {
  static int count = 0;
  return "contract-" + std::to_string(++count);
}

}  // namespace muster::contract_test
