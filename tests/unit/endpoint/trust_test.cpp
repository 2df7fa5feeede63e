// The workers' endpoint as a cluster has it: TLS, tokens of pods, and replicas that do not lead.
#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "common/contract.h"
#include "common/http/client.h"
#include "operator/runtime/token_review.h"
#include "operator/runtime/workers_endpoint.h"
#include "tests/raw_socket.h"
#include "tests/tls_material.h"
#include "tests/unit/endpoint/fake_api.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// What all replicas of an operator have in common. A pod's token is its name.
struct Cluster {
  SystemClock system_clock;
  const Clock* clock = &system_clock;
  test::FakeApi api;
  http::TlsIdentity ca = test::authority();
  std::unique_ptr<Reviewer> reviewer;
  std::unique_ptr<Authenticator> authenticator;

  explicit Cluster(const Clock* given = nullptr) {
    if (given != nullptr) clock = given;
    api.answer = [](api::Kind, const Json& review) {
      const std::string token = test::token_of(review);
      return token.starts_with("pod-") ? test::pod_token("ns", token) : test::no_token();
    };
    reviewer = Reviewer::start({.client = &api, .clock = clock});
    authenticator = make_token_review_authenticator(*reviewer);
  }
};

struct Replica {
  const Cluster& cluster;
  std::mutex mutex;
  std::string leader;  ///< guarded by mutex
  std::atomic<int> reports = 0;
  std::unique_ptr<WorkersEndpoint> endpoint;

  explicit Replica(const Cluster& of,
                   const std::vector<std::string>& names = {"127.0.0.1", "muster-endpoint"})
      : cluster(of) {
    WorkersEndpointOptions options;
    options.clock = cluster.clock;
    options.authenticator = cluster.authenticator.get();
    options.on_progress = [this](const ProgressReport&) {
      ++reports;
      return true;
    };
    options.tls = test::server_of(cluster.ca, names);
    options.leader_address = [this] {
      const std::lock_guard lock(mutex);
      return leader;
    };
    options.ca_bundle = [this] { return cluster.ca.certificate; };
    auto made = make_workers_endpoint(std::move(options));
    REQUIRE(made);
    endpoint = std::move(*made);
  }

  std::string address() const { return endpoint->url().substr(std::string("https://").size()); }
  int port() const { return http::parse_url(endpoint->url())->port; }

  void follow(const std::string& address) {
    const std::lock_guard lock(mutex);
    leader = address;
  }

  http::Response post(std::string_view path, const std::string& body, const std::string& token,
                      http::Headers headers = {}) const {
    http::Call call;
    call.method = "POST";
    call.url = endpoint->url() + std::string(path);
    call.body = body;
    call.bearer_token = token;
    call.headers = std::move(headers);
    call.ca_certificate = cluster.ca.certificate;
    call.timeout = seconds(20);
    http::Client client;
    const auto answer = client.exchange(call);
    REQUIRE_MESSAGE(answer, (answer ? "" : answer.error().message()));
    return *answer;
  }

  http::Response join(int slot, const std::string& token) const {
    return post(
        contract::kPathJoin,
        dump_json(to_json(JoinRequest{"ns/job", slot, 0, "10.0.0.1", {1000}, "fp32-chain/1"})),
        token);
  }

  http::Response report(int slot, const std::string& token, http::Headers headers = {}) const {
    ProgressReport message;
    message.job = "ns/job";
    message.slot = slot;
    return post(contract::kPathProgress, dump_json(to_json(message)), token, std::move(headers));
  }
};

GangInfo trusted_gang(int workers) {
  GangInfo info;
  info.job = "ns/job";
  info.job_uid = "uid";
  info.training = "{}";
  info.job_key = std::string(64, '0');
  for (int slot = 0; slot < workers; ++slot) {
    const std::string pod = "pod-" + std::to_string(slot);
    info.attempt_of_slot[slot] = 0;
    info.pod_of_slot[slot] = {pod, "uid-of-" + pod};
  }
  return info;
}

std::string message_of(const http::Response& response, int status) {
  CHECK(response.status == status);
  const auto json = parse_json(response.body);
  REQUIRE(json);
  return json->value("message", "");
}

JoinResponse wait_complete(const Replica& replica, int slot) {
  while (true) {
    const http::Response answer = replica.join(slot, "pod-" + std::to_string(slot));
    REQUIRE(answer.status == 200);
    auto response = parse_join_response(*parse_json(answer.body));
    REQUIRE(response);
    if (response->complete) return *response;
  }
}

}  // namespace

TEST_CASE("workers join over TLS with the tokens of their pods") {
  const Cluster cluster;
  const Replica replica(cluster);
  replica.endpoint->set_gang(trusted_gang(2));
  JoinResponse first;
  std::thread other([&] { first = wait_complete(replica, 0); });
  const JoinResponse second = wait_complete(replica, 1);
  other.join();
  CHECK(first.peers.size() == 2);
  CHECK(second.job_key == std::string(64, '0'));
  CHECK(replica.report(0, "pod-0").status == 200);
  CHECK(replica.reports == 1);
}

TEST_CASE("no token, a wrong one and another worker's are refused with 401, 401 and 403") {
  const Cluster cluster;
  const Replica replica(cluster);
  replica.endpoint->set_gang(trusted_gang(2));
  CHECK(message_of(replica.join(0, ""), 401) == "a bearer token is needed");
  CHECK(message_of(replica.join(0, "stolen"), 401) ==
        "the API server does not accept the token: invalid bearer token");
  CHECK(message_of(replica.join(0, "pod-1"), 403) == "the token belongs to another worker");
  CHECK(message_of(replica.report(0, "pod-1"), 403) == "the token belongs to another worker");
  CHECK(replica.reports == 0);
}

TEST_CASE("an API server that is away makes workers come again: 503, and the token is not wrong") {
  Cluster cluster;
  const auto answer = cluster.api.answer;
  const Replica replica(cluster);
  replica.endpoint->set_gang(trusted_gang(1));
  cluster.api.answer = [](api::Kind, const Json&) {
    return Error(ErrorCode::kUnavailable, "connection refused");
  };
  CHECK(message_of(replica.join(0, "pod-0"), 503) ==
        "the API server did not say (Unavailable): connection refused");
  cluster.api.answer = answer;
  CHECK(wait_complete(replica, 0).complete);
}

TEST_CASE("while the API server hangs, known workers are served and the connections stay free") {
  Cluster cluster;
  const auto answer = cluster.api.answer;
  const Replica replica(cluster);
  replica.endpoint->set_gang(trusted_gang(2));
  CHECK(replica.report(0, "pod-0").status == 200);
  std::promise<void> begun, go_on;
  auto released = go_on.get_future().share();
  cluster.api.answer = [&](api::Kind kind, const Json& review) {
    begun.set_value();
    released.wait();
    return answer(kind, review);
  };
  std::thread unknown([&] { CHECK(replica.report(1, "pod-1").status == 200); });
  begun.get_future().wait();
  CHECK(replica.report(0, "pod-0").status == 200);
  go_on.set_value();
  unknown.join();
}

TEST_CASE("more posts than a worker may send get 429, whatever way they came") {
  const ManualClock standing;
  const Cluster cluster(&standing);
  const Replica leader(cluster);
  Replica standby(cluster);
  standby.follow(leader.address());
  leader.endpoint->set_gang(trusted_gang(2));
  for (int i = 0; i < 10; ++i) {
    CHECK((i % 2 == 0 ? leader : standby).report(0, "pod-0").status == 200);
  }
  const http::Response over = standby.report(0, "pod-0");
  CHECK(over.status == 429);
  CHECK(std::count(over.headers.begin(), over.headers.end(),
                   std::pair<std::string, std::string>("retry-after", "1")) == 1);
  CHECK(leader.report(0, "pod-0").status == 429);
  CHECK(leader.report(1, "pod-1").status == 200);
}

TEST_CASE("a replica that does not lead hands posts on, and the worker sees no difference") {
  const Cluster cluster;
  const Replica leader(cluster);
  Replica standby(cluster);
  standby.follow(leader.address());
  leader.endpoint->set_gang(trusted_gang(2));
  JoinResponse first;
  std::thread other([&] { first = wait_complete(standby, 0); });
  const JoinResponse second = wait_complete(leader, 1);
  other.join();
  CHECK(first.complete);
  CHECK(first.job_key == second.job_key);
  CHECK(standby.report(0, "pod-0").status == 200);
  CHECK(leader.reports == 1);
  CHECK(standby.reports == 0);
  CHECK(message_of(standby.join(0, "pod-1"), 403) == "the token belongs to another worker");
  CHECK(message_of(standby.join(0, ""), 401) == "a bearer token is needed");
}

TEST_CASE("posts are handed on once: replicas that disagree about the leader end with 503") {
  const Cluster cluster;
  Replica one(cluster), two(cluster);
  one.follow(two.address());
  two.follow(one.address());
  CHECK(message_of(one.report(0, "pod-0"), 503) == "this replica does not lead; post again");
  // Whoever sets the header himself gains nothing.
  CHECK(message_of(two.report(0, "pod-0", {{std::string(contract::kHeaderForwarded), "1"}}), 503) ==
        "this replica does not lead; post again");
}

TEST_CASE("a leader that is gone, or is not of this CA, gets no token") {
  const Cluster cluster;
  Replica standby(cluster);
  {
    const Replica gone(cluster);
    standby.follow(gone.address());
  }
  CHECK(message_of(standby.report(0, "pod-0"), 503)
            .starts_with("the leading replica does not answer: connect to "));
  const Cluster foreign;
  const Replica impostor(foreign);
  impostor.endpoint->set_gang(trusted_gang(1));
  standby.follow(impostor.address());
  CHECK(message_of(standby.report(0, "pod-0"), 503).find("its certificate is not trusted") !=
        std::string::npos);
  const Replica other_name(cluster, {"127.0.0.1"});
  other_name.endpoint->set_gang(trusted_gang(1));
  standby.follow(other_name.address());
  CHECK(message_of(standby.report(0, "pod-0"), 503)
            .ends_with("its certificate is not for muster-endpoint"));
  CHECK(impostor.reports + other_name.reports == 0);
  CHECK(foreign.api.asked + cluster.api.asked == 0);
}

TEST_CASE("a large post and a long header are refused over TLS before anybody is asked") {
  const Cluster cluster;
  const Replica replica(cluster);
  CHECK(replica.post(contract::kPathJoin, std::string(16 * 1024 + 1, 'x'), "pod-0").status == 413);
  CHECK(replica.post(contract::kPathJoin, "{}", "pod-0", {{"x-long", std::string(9'000, 'h')}})
            .status == 431);
  CHECK(cluster.api.asked == 0);
}

TEST_CASE("a flood of connections that say nothing does not keep workers out") {
  const Cluster cluster;
  const Replica replica(cluster);
  replica.endpoint->set_gang(trusted_gang(1));
  std::vector<std::unique_ptr<test::RawSocket>> flood;
  for (int i = 0; i < 400; ++i) {
    flood.push_back(std::make_unique<test::RawSocket>(replica.port()));
  }
  CHECK(wait_complete(replica, 0).complete);
}
