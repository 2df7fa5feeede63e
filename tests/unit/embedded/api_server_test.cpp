// What only the embedded server has, or what needs a hand on its clock and history. What every API
// server must do stands in tests/contract.
#include "operator/embedded/api_server.h"

#include <doctest/doctest.h>

#include <future>
#include <string>
#include <thread>

#include "common/json.h"
#include "operator/kube/api_client.h"

namespace muster::embedded {
namespace {

using api::Kind;

struct Setup {
  explicit Setup(ApiServerOptions options = {}) : server(with_clock(options)) {}
  ManualClock clock;
  ApiServer server;
  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(server);

  std::unique_ptr<kube::HttpStream> watch(Kind kind, const std::string& version = "",
                                          seconds timeout = seconds(300)) {
    kube::WatchOptions options;
    options.resource_version = version;
    options.timeout = timeout;
    auto stream = client->watch(kind, options);
    REQUIRE(stream);
    return std::move(*stream);
  }
  std::string version() const { return std::to_string(server.resource_version()); }
  Json make_pod(const std::string& name) {
    auto made = client->create(Kind::kPod, "ns", pod(name));
    REQUIRE(made);
    return *made;
  }
  static Json pod(const std::string& name) {
    return {{"metadata", {{"name", name}}},
            {"spec", {{"containers", {{{"name", "worker"}, {"image", "x"}}}}}}};
  }

 private:
  ApiServerOptions with_clock(ApiServerOptions options) {
    options.clock = &clock;
    return options;
  }
};

kube::HttpRequest request_of(const std::string& method, const std::string& path) {
  kube::HttpRequest request;
  request.method = method;
  request.path = path;
  return request;
}

std::unique_ptr<kube::HttpStream> watch_all_pods(kube::ApiClient& client) {
  kube::WatchOptions options;
  options.resource_version = "1";
  auto stream = client.watch(Kind::kPod, options);
  REQUIRE(stream);
  return std::move(*stream);
}

/// The next line that is there now.
Json line_of(kube::HttpStream& stream) {
  const auto line = stream.next_line(milliseconds(0));
  REQUIRE(line);
  REQUIRE(*line);
  return *parse_json(**line);
}

ErrorCode error_of(kube::HttpStream& stream) {
  const auto line = stream.next_line(milliseconds(0));
  REQUIRE_FALSE(line);
  return line.error().code();
}

bool has_ended(kube::HttpStream& stream) {
  const auto line = stream.next_line(milliseconds(0));
  return line && !*line;
}

}  // namespace

TEST_CASE("a watch from before the compaction is told 410, inside the stream") {
  Setup s;
  const auto before = s.version();
  s.make_pod("a");
  s.server.compact();
  auto stream = s.watch(Kind::kPod, before);
  const Json line = line_of(*stream);
  CHECK(line["type"] == "ERROR");
  CHECK(line["object"]["code"] == 410);
  CHECK(line["object"]["reason"] == "Expired");
  CHECK(has_ended(*stream));
  // From now on it goes.
  auto next = s.watch(Kind::kPod, s.version());
  CHECK(error_of(*next) == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("history is bounded: a watch from before its first event is told 410") {
  Setup s({.history = 3});
  const auto before = s.version();
  for (int i = 0; i < 5; ++i) s.make_pod("p" + std::to_string(i));
  auto late = s.watch(Kind::kPod, before);
  CHECK(line_of(*late)["object"]["code"] == 410);
  auto good = s.watch(Kind::kPod, std::to_string(s.server.resource_version() - 3));
  CHECK(line_of(*good)["object"]["metadata"]["name"] == "p2");
}

TEST_CASE("a watcher that history has overtaken is ended, one that kept up is not") {
  Setup s({.history = 3});
  auto slow = s.watch(Kind::kPod, s.version());
  auto quick = s.watch(Kind::kPod, s.version());
  auto elsewhere = s.watch(Kind::kService, s.version());
  for (int i = 0; i < 5; ++i) {
    s.make_pod("p" + std::to_string(i));
    CHECK(line_of(*quick)["type"] == "ADDED");
  }
  CHECK(has_ended(*slow));
  CHECK(error_of(*quick) == ErrorCode::kDeadlineExceeded);
  s.server.compact();
  CHECK(error_of(*quick) == ErrorCode::kDeadlineExceeded);
  CHECK(error_of(*elsewhere) == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a page from before the compaction is told 410") {
  Setup s;
  for (const char* name : {"a", "b", "c"}) s.make_pod(name);
  kube::ListOptions options;
  options.limit = 1;
  auto page = s.client->list(Kind::kPod, options);
  REQUIRE(page);
  options.continue_token = page->continue_token;
  CHECK(s.client->list(Kind::kPod, options));
  s.make_pod("d");
  s.server.compact();
  CHECK(s.client->list(Kind::kPod, options).error().code() == ErrorCode::kGone);
}

TEST_CASE("a bookmark comes in its time and carries the version of the whole server") {
  Setup s({.bookmark_interval = seconds(10)});
  auto stream = s.watch(Kind::kPod, s.version());
  REQUIRE(s.client->create(Kind::kService, "ns", {{"metadata", {{"name", "s"}}}}));
  s.clock.advance(seconds(9));
  CHECK(error_of(*stream) == ErrorCode::kDeadlineExceeded);
  s.clock.advance(seconds(1));
  const Json line = line_of(*stream);
  CHECK(line["type"] == "BOOKMARK");
  CHECK(line["object"]["metadata"]["resourceVersion"] == s.version());
  CHECK(error_of(*stream) == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a watch ends when its time is over, after a last bookmark") {
  Setup s({.bookmark_interval = seconds(1000)});
  auto stream = s.watch(Kind::kPod, s.version(), seconds(30));
  s.make_pod("a");
  s.clock.advance(seconds(30));
  CHECK(line_of(*stream)["type"] == "ADDED");
  CHECK(line_of(*stream)["type"] == "BOOKMARK");
  CHECK(has_ended(*stream));
  CHECK(has_ended(*stream));
}

TEST_CASE("a restart cuts every stream, and new ones stand") {
  Setup s;
  auto stream = s.watch(Kind::kPod, s.version());
  s.server.cut_streams();
  CHECK(error_of(*stream) == ErrorCode::kUnavailable);
  auto next = s.watch(Kind::kPod, s.version());
  CHECK(error_of(*next) == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a stream may outlive its server") {
  ManualClock clock;
  std::unique_ptr<kube::HttpStream> stream;
  {
    ApiServer server({.clock = &clock});
    auto opened = server.open_stream(request_of("GET", "/api/v1/pods?watch=1"));
    stream = std::move(opened->stream);
  }
  CHECK(error_of(*stream) == ErrorCode::kUnavailable);
}

TEST_CASE("a reader that waits is woken by an event, by close and by a restart") {
  SystemClock clock;
  ApiServer server({.clock = &clock});
  const auto client = kube::make_rest_client(server);
  auto stream = watch_all_pods(*client);
  // One minute: the test fails by its deadline, not by this wait, when nobody wakes the reader.
  const auto read = [&] {
    return std::async(std::launch::async, [&] { return stream->next_line(seconds(60)); });
  };
  SUBCASE("event") {
    auto line = read();
    REQUIRE(client->create(Kind::kPod, "ns", Setup::pod("a")));
    const auto got = line.get();
    REQUIRE(got);
    CHECK(got->value().find("ADDED") != std::string::npos);
  }
  SUBCASE("close") {
    auto line = read();
    stream->close();
    CHECK(line.get().error().code() == ErrorCode::kAborted);
    stream->close();
    CHECK(error_of(*stream) == ErrorCode::kAborted);
  }
  SUBCASE("restart") {
    auto line = read();
    server.cut_streams();
    CHECK(line.get().error().code() == ErrorCode::kUnavailable);
  }
}

TEST_CASE("many writers and watchers at once lose nothing") {
  SystemClock clock;
  ApiServer server({.clock = &clock});
  constexpr int kWriters = 4, kPods = 50;
  std::vector<std::future<int>> watchers;
  for (int w = 0; w < 3; ++w) {
    watchers.push_back(std::async(std::launch::async, [&server] {
      const auto client = kube::make_rest_client(server);
      auto stream = watch_all_pods(*client);
      int deleted = 0;
      while (deleted < kWriters * kPods) {
        const auto line = stream->next_line(seconds(60));
        if (!line || !*line) return -1;
        if (line->value().find("\"type\":\"DELETED\"") != std::string::npos) ++deleted;
      }
      return deleted;
    }));
  }
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&server, w] {
      const auto client = kube::make_rest_client(server);
      for (int i = 0; i < kPods; ++i) {
        const std::string name = "p" + std::to_string(w) + "-" + std::to_string(i);
        (void)client->create(Kind::kPod, "ns", Setup::pod(name));
        (void)client->list(Kind::kPod, {});
        (void)client->remove(Kind::kPod, {"ns", name}, {});
      }
    });
  }
  for (auto& writer : writers) writer.join();
  for (auto& watcher : watchers) CHECK(watcher.get() == kWriters * kPods);
  // A pod is made, seen terminating, and gone.
  CHECK(server.resource_version() == 1 + 3 * kWriters * kPods);
}

TEST_CASE("requests are counted by verb and kind") {
  Setup s;
  s.make_pod("a");
  (void)s.client->get(Kind::kPod, {"ns", "a"});
  (void)s.client->merge_patch(Kind::kPod, {"ns", "a"}, "status", {{"status", {{"phase", "x"}}}});
  (void)s.client->list(Kind::kNode, {});
  (void)s.client->remove(Kind::kPod, {"ns", "nobody"}, {});
  (void)s.watch(Kind::kPod);
  CHECK(s.server.request_counts() == std::map<std::string, std::int64_t>{{"create pods", 1},
                                                                         {"delete pods", 1},
                                                                         {"get pods", 1},
                                                                         {"list nodes", 1},
                                                                         {"patch pods/status", 1},
                                                                         {"watch pods", 1}});
}

TEST_CASE("paths that lead nowhere are not found, verbs that do not fit are not allowed") {
  Setup s;
  const auto code = [&](const std::string& method, const std::string& path) {
    const auto response = s.server.send(request_of(method, path));
    REQUIRE(response);
    REQUIRE(parse_json(response->body));
    return response->code;
  };
  for (const char* path :
       {"", "/", "x", "/api", "/api/v1", "/api/v1/", "/api/v2/pods", "/api/v1/secrets",
        "/apis/muster.dev/v1/trainingjobs", "/api/v1/pods/a", "/api/v1/namespaces/ns/nodes",
        "/api/v1/namespaces/ns/pods/a/log", "/api/v1/namespaces/ns/pods/a/status/more",
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a/status", "/api/v1/pods%zz",
        "/api/v1//pods"}) {
    CAPTURE(path);
    CHECK(code("GET", path) == 404);
  }
  CHECK(code("POST", "/api/v1/pods") == 405);
  CHECK(code("DELETE", "/api/v1/namespaces/ns/pods") == 405);
  CHECK(code("BREW", "/api/v1/pods") == 405);
  CHECK(code("GET", "/api/v1/namespaces/ns/pods/a/binding") == 405);
  CHECK(code("GET", "/api/v1/pods?limit=-1") == 400);
  CHECK(code("GET", "/api/v1/pods?labelSelector=%") == 400);
  CHECK(code("GET", "/api/v1/pods?watch=true") == 400);
}

TEST_CASE("the same seed gives the same uids") {
  Setup a({.seed = 5}), b({.seed = 5}), c({.seed = 6});
  const auto uid = [](Setup& s) { return s.make_pod("a")["metadata"]["uid"]; };
  const Json first = uid(a);
  CHECK(first == uid(b));
  CHECK(first != uid(c));
  CHECK(first.get<std::string>()[14] == '4');
}

TEST_CASE("a node is registered with its status, and its status is updated alone") {
  Setup s;
  const Json node = {{"metadata", {{"name", "n"}}}, {"status", {{"allocatable", {{"cpu", "2"}}}}}};
  auto made = s.client->create(Kind::kNode, "", node);
  REQUIRE(made);
  CHECK((*made)["status"]["allocatable"]["cpu"] == "2");
  auto changed = s.client->merge_patch(Kind::kNode, {"", "n"}, "status",
                                       {{"status", {{"allocatable", {{"cpu", "4"}}}}}});
  REQUIRE(changed);
  CHECK((*changed)["status"]["allocatable"]["cpu"] == "4");
}

}  // namespace muster::embedded
