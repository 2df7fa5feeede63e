// `muster-worker --probe`, with which `helm test` asks the operator's Services.
#include <doctest/doctest.h>

#include <filesystem>

#include "common/contract.h"
#include "common/http/server.h"
#include "tests/process.h"
#include "tests/tls_material.h"

using namespace muster;
using test::Process;
using test::read_file;
namespace exit_code = contract::exit_code;

namespace {

struct Probe {
  std::string log = "/tmp/muster-probe-XXXXXX";
  Probe() {
    const int file = mkstemp(log.data());
    REQUIRE(file >= 0);
    close(file);
  }
  ~Probe() { std::filesystem::remove(log); }

  /// Exit code; `output` gets what it wrote.
  int run(const std::string& url, const std::string& ca, std::string& output) const {
    std::filesystem::resize_file(log, 0);
    Process program(MUSTER_WORKER, {"--probe", url}, {"MUSTER_CA_CERT=" + ca}, log);
    const int code = program.wait().value_or(-1);
    output = read_file(log);
    return code;
  }
};

std::unique_ptr<http::Server> serve(int status, std::optional<http::TlsIdentity> tls) {
  http::ServerOptions options;
  options.tls = std::move(tls);
  auto server = http::Server::start(options, [status](const http::Request&, http::Responder done) {
    http::Response response;
    response.status = status;
    done(std::move(response));
  });
  REQUIRE(server);
  return std::move(*server);
}

}  // namespace

TEST_CASE("a probe is content with any answer of the right server, and with nothing else") {
  const Probe probe;
  std::string output;
  const http::TlsIdentity ca = test::authority();
  const auto server = serve(401, test::server_of(ca));
  CHECK(probe.run(server->url() + "/metrics", ca.certificate, output) == exit_code::kComplete);
  CHECK(output == server->url() + "/metrics: answers with 401\n");
  const http::TlsIdentity other = test::authority("other-ca");
  CHECK(probe.run(server->url(), other.certificate, output) == exit_code::kPeerLost);
  CHECK(output.starts_with("muster-worker: --probe: "));
  const auto elsewhere = serve(200, test::server_of(ca, {"elsewhere"}));
  CHECK(probe.run(elsewhere->url(), ca.certificate, output) == exit_code::kPeerLost);
  const auto broken = serve(503, std::nullopt);
  CHECK(probe.run(broken->url(), "", output) == exit_code::kPeerLost);
  const std::string gone = broken->url();
  broken->stop();
  CHECK(probe.run(gone, "", output) == exit_code::kPeerLost);
  CHECK(probe.run("gopher://x", "", output) == exit_code::kUsage);
}
