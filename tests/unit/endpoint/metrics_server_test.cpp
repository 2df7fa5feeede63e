#include "operator/runtime/metrics_server.h"

#include <doctest/doctest.h>

#include "common/http/client.h"
#include "operator/runtime/token_review.h"
#include "tests/tls_material.h"
#include "tests/unit/endpoint/fake_api.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct MetricsWorld {
  SystemClock clock;
  test::FakeApi api;
  http::TlsIdentity ca = test::authority();
  std::unique_ptr<Reviewer> reviewer;
  std::unique_ptr<MetricsServer> server;
  bool is_away = false;
  Json access_asked;

  explicit MetricsWorld(bool is_secure = true) {
    api.answer = [this](api::Kind kind, const Json& review) -> Result<Json> {
      if (is_away) return Error(ErrorCode::kUnavailable, "connection refused");
      if (kind == api::Kind::kSubjectAccessReview) {
        access_asked = review;
        return Json{{"status", {{"allowed", review["spec"]["user"] == "prometheus"}}}};
      }
      if (test::token_of(review) == "garbage") return test::no_token();
      return Json{{"status",
                   {{"authenticated", true},
                    {"user",
                     {{"username", test::token_of(review)},
                      {"uid", "u-1"},
                      {"groups", Json::array({"g"})}}}}}};
    };
    reviewer = Reviewer::start({.client = &api, .clock = &clock});
    MetricsServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.render = [] { return std::string("muster_jobs 1\n"); };
    if (is_secure) {
      options.tls = test::server_of(ca);
      options.reviewer = reviewer.get();
    }
    auto started = MetricsServer::start(options);
    REQUIRE(started);
    server = std::move(*started);
  }

  http::Response get(const std::string& token, const std::string& path = "/metrics",
                     const std::string& method = "GET") const {
    http::Call call;
    call.method = method;
    call.url = server->url() + path;
    call.bearer_token = token;
    call.ca_certificate = ca.certificate;
    call.timeout = seconds(20);
    http::Client client;
    const auto answer = client.exchange(call);
    REQUIRE_MESSAGE(answer, (answer ? "" : answer.error().message()));
    return *answer;
  }
};

}  // namespace

TEST_CASE("metrics are for who proves the right to them") {
  MetricsWorld world;
  CHECK(world.server->url().starts_with("https://"));
  CHECK(world.get("").status == 401);
  CHECK(world.get("garbage").status == 401);
  const http::Response denied = world.get("tenant");
  CHECK(denied.status == 403);
  CHECK(denied.body == "the token's user lacks the right: get on the non-resource URL /metrics\n");
  const http::Response page = world.get("prometheus");
  CHECK(page.status == 200);
  CHECK(page.body == "muster_jobs 1\n");
  CHECK(page.content_type == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(world.access_asked["spec"] ==
        Json{{"user", "prometheus"},
             {"uid", "u-1"},
             {"groups", Json::array({"g"})},
             {"extra", Json::object()},
             {"nonResourceAttributes", {{"path", "/metrics"}, {"verb", "get"}}}});
}

TEST_CASE("a scrape a few seconds later asks nobody, also while the API server is away") {
  MetricsWorld world;
  CHECK(world.get("prometheus").status == 200);
  const int asked = world.api.asked;
  world.is_away = true;
  CHECK(world.get("prometheus").status == 200);
  CHECK(world.api.asked == asked);
  const http::Response unknown = world.get("tenant");
  CHECK(unknown.status == 503);
  CHECK(unknown.body == "the API server did not say (Unavailable): connection refused\n");
}

TEST_CASE("nothing but /metrics is there: no profile, no debug page") {
  MetricsWorld world;
  for (const char* path : {"/", "/debug/pprof/", "/metrics/", "/healthz", "/metrics%2f"}) {
    CHECK(world.get("prometheus", path).status == 404);
  }
  CHECK(world.get("prometheus", "/metrics", "POST").status == 405);
  CHECK(world.get("prometheus", "/metrics?x=y").status == 200);
}

TEST_CASE("metrics are plain where that was asked for") {
  const MetricsWorld world(false);
  CHECK(world.server->url().starts_with("http://"));
  CHECK(world.get("").status == 200);
  CHECK_FALSE(world.server->replace_identity(test::server_of(world.ca)));
  world.server->stop();
  world.server->stop();
}
