#include "operator/runtime/workers_endpoint.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "common/contract.h"
#include "common/http/client.h"
#include "tests/raw_socket.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct Served {
  SystemClock clock;
  std::unique_ptr<Authenticator> authenticator = make_local_authenticator("secret");
  std::atomic<int> joined = 0;
  std::unique_ptr<WorkersEndpoint> endpoint;

  Served() {
    auto made = make_workers_endpoint({.clock = &clock,
                                       .authenticator = authenticator.get(),
                                       .on_progress = {},
                                       .on_join = [this](const std::string&, int) { ++joined; }});
    REQUIRE(made);
    endpoint = std::move(*made);
  }

  int port() const {
    const auto url = http::parse_url(endpoint->url());
    REQUIRE(url);
    return url->port;
  }
};

GangInfo gang_of(int workers) {
  GangInfo info;
  info.job = "ns/job";
  info.job_uid = "uid";
  info.training = "{}";
  info.job_key = std::string(64, '0');
  for (int slot = 0; slot < workers; ++slot) info.attempt_of_slot[slot] = 0;
  return info;
}

}  // namespace

TEST_CASE("eight workers join over sockets and all hear of all") {
  constexpr int kWorkers = 8;
  Served served;
  served.endpoint->set_gang(gang_of(kWorkers));
  std::atomic<int> complete = 0;
  std::vector<std::thread> workers;
  for (int slot = 0; slot < kWorkers; ++slot) {
    workers.emplace_back([&, slot] {
      http::Client client;
      const JoinRequest request{"ns/job", slot, 0, "127.0.0.1", {1000 + slot}, "fp32-chain/1"};
      for (int tries = 0; tries < 400; ++tries) {
        const auto answer =
            client.exchange({.method = "POST",
                             .url = served.endpoint->url() + std::string(contract::kPathJoin),
                             .body = dump_json(to_json(request)),
                             .bearer_token = "secret"});
        if (!answer || answer->status != 200) continue;
        const auto response = parse_join_response(*parse_json(answer->body));
        if (!response || !response->complete) continue;
        if (response->peers.size() == kWorkers) ++complete;
        return;
      }
    });
  }
  for (auto& worker : workers) worker.join();
  CHECK(complete == kWorkers);
  CHECK(served.joined == kWorkers);
  served.endpoint->stop();
  served.endpoint->stop();
}

TEST_CASE("an oversized post is refused before it is read") {
  Served served;
  const test::RawSocket socket(served.port());
  socket.send("POST /v1/join HTTP/1.1\r\nContent-Length: 16385\r\n\r\n");
  CHECK(socket.read_until("\r\n\r\n").starts_with("HTTP/1.1 413"));
}

TEST_CASE("an endpoint that cannot listen says where") {
  Served served;
  const auto second = make_workers_endpoint({.port = served.port(),
                                             .clock = &served.clock,
                                             .authenticator = served.authenticator.get(),
                                             .on_progress = {},
                                             .on_join = {}});
  REQUIRE_FALSE(second);
  CHECK(second.error().exit_code() == contract::exit_code::kPort);
  CHECK(second.error().message().starts_with("workers' endpoint: listen on 127.0.0.1:"));
}
