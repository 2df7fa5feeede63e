#include <doctest/doctest.h>

#include "operator/api/unread.h"
#include "operator/kube/api_client.h"
#include "tests/unit/kube/scripted_transport.h"

namespace muster::kube {
namespace {

using api::Kind;

struct Setup {
  test::ScriptedTransport transport;
  std::unique_ptr<ApiClient> client = make_rest_client(transport);
  const HttpRequest& request() const { return transport.requests.back(); }
};

std::string status(int code, const std::string& reason, const std::string& message) {
  return dump_json({{"kind", "Status"},
                    {"status", "Failure"},
                    {"reason", reason},
                    {"message", message},
                    {"code", code}});
}

}  // namespace

TEST_CASE("every answer of the server has its error code") {
  struct Row {
    int http;
    const char* reason;
    ErrorCode code;
  };
  const Row rows[] = {
      {400, "BadRequest", ErrorCode::kInvalid},
      {422, "Invalid", ErrorCode::kInvalid},
      {401, "Unauthorized", ErrorCode::kUnauthorized},
      {403, "Forbidden", ErrorCode::kForbidden},
      {404, "NotFound", ErrorCode::kNotFound},
      {405, "MethodNotAllowed", ErrorCode::kUnsupported},
      {409, "Conflict", ErrorCode::kConflict},
      {409, "AlreadyExists", ErrorCode::kAlreadyExists},
      {410, "Expired", ErrorCode::kGone},
      {413, "RequestEntityTooLarge", ErrorCode::kTooLarge},
      {415, "UnsupportedMediaType", ErrorCode::kUnsupported},
      {429, "TooManyRequests", ErrorCode::kTooManyRequests},
      {500, "InternalError", ErrorCode::kUnavailable},
      {502, "", ErrorCode::kUnavailable},
      {503, "ServiceUnavailable", ErrorCode::kUnavailable},
      {504, "Timeout", ErrorCode::kDeadlineExceeded},
      {301, "", ErrorCode::kUnsupported},
  };
  for (const Row& row : rows) {
    CAPTURE(row.http);
    CAPTURE(row.reason);
    Setup s;
    for (int i = 0; i < 7; ++i) s.transport.answer(row.http, status(row.http, row.reason, "why"));
    const api::ObjectKey key{"ns", "a"};
    CHECK(s.client->get(Kind::kPod, key).error().code() == row.code);
    CHECK(s.client->create(Kind::kPod, "ns", Json::object()).error().code() == row.code);
    CHECK(s.client->add(Kind::kPod, "ns", Json::object()).error().code() == row.code);
    CHECK(s.client->merge_patch(Kind::kPod, key, "", Json::object()).error().code() == row.code);
    CHECK(s.client->remove(Kind::kPod, key, {}).error().code() == row.code);
    CHECK(s.client->list(Kind::kPod, {}).error().code() == row.code);
    const auto watch = s.client->watch(Kind::kPod, {});
    CHECK(watch.error().code() == row.code);
    CHECK(watch.error().message() == "why");
  }
}

TEST_CASE("an error of the transport comes through as it is") {
  Setup s;
  s.transport.answers.emplace_back(Error(ErrorCode::kDeadlineExceeded, "no answer in 10 s"));
  const auto got = s.client->get(Kind::kPod, {"ns", "a"});
  CHECK(got.error().code() == ErrorCode::kDeadlineExceeded);
  CHECK(got.error().message() == "no answer in 10 s");
}

TEST_CASE("an answer that is no object is not an object") {
  for (const char* body : {"", "<html>proxy</html>", "[1]", "null", R"({"kind":"Pod",)"}) {
    CAPTURE(body);
    Setup s;
    s.transport.answer(200, body);
    s.transport.answer(200, body);
    CHECK(s.client->get(Kind::kPod, {"ns", "a"}).error().code() == ErrorCode::kUnavailable);
    CHECK(s.client->list(Kind::kPod, {}).error().code() == ErrorCode::kUnavailable);
  }
}

TEST_CASE("no object hides the others of its list by what stands deep in it, or is no text") {
  const std::string deep = std::string(9'990, '[') + std::string(9'990, ']');
  for (const std::string& odd :
       {R"("metadata":{"name":"a","managedFields":[{"fieldsV1":)" + deep + "}]}",
        R"("metadata":{"name":"a"},"spec":)" + deep,
        std::string("\"metadata\":{\"name\":\"a\",\"managedFields\":[{\"f:\xff\":{}}]}")}) {
    Setup s;
    s.transport.answer(200, R"({"metadata":{"resourceVersion":"12"},"items":[{)" + odd +
                                R"(},{"metadata":{"name":"b"}}]})");
    ListOptions options;
    options.left_out = api::unread_of(Kind::kPod);
    const auto page = s.client->list(Kind::kPod, options);
    REQUIRE_MESSAGE(page, page.error().message());
    REQUIRE(page->items.size() == 2);
    CHECK(page->items[0]["metadata"]["name"] == "a");
    CHECK(page->items[1]["metadata"]["name"] == "b");
  }
}

TEST_CASE("a list that is no list is not an empty list") {
  for (const char* body : {"{}", R"({"items":[]})", R"({"metadata":{}})",
                           R"({"metadata":{},"items":7})", R"({"metadata":[],"items":[]})"}) {
    CAPTURE(body);
    Setup s;
    s.transport.answer(200, body);
    CHECK(s.client->list(Kind::kPod, {}).error().code() == ErrorCode::kUnavailable);
  }
}

TEST_CASE("the server's message is cut, between characters") {
  Setup s;
  std::string message = "x";
  while (message.size() < 3000) message += "ä";
  s.transport.answer(500, status(500, "InternalError", message));
  const auto got = s.client->get(Kind::kPod, {"ns", "a"});
  CHECK(got.error().message().size() == 1023);
  CHECK(got.error().message() == message.substr(0, 1023));
}

TEST_CASE("an error page without a Status names its code") {
  Setup s;
  s.transport.answer(502, "<html>bad gateway</html>");
  CHECK(s.client->get(Kind::kPod, {"ns", "a"}).error().message() == "HTTP 502 without a message");
}

TEST_CASE("a list asks for a page of what is selected, and fills in the type of items") {
  Setup s;
  s.transport.answer(200, R"({"metadata":{"resourceVersion":"12","continue":"t/k="},
                             "items":[{"metadata":{"name":"a"}}]})");
  ListOptions options;
  options.namespace_name = "ns";
  options.label_selector = "muster.dev/job-uid in (a, b)";
  options.limit = 50;
  options.continue_token = "x/y+z=";

  const auto page = s.client->list(Kind::kPod, options);

  CHECK(s.request().method == "GET");
  CHECK(s.request().path ==
        "/api/v1/namespaces/ns/pods?limit=50&continue=x%2Fy%2Bz%3D"
        "&labelSelector=muster.dev%2Fjob-uid%20in%20%28a%2C%20b%29");
  REQUIRE(page);
  CHECK(page->resource_version == "12");
  CHECK(page->continue_token == "t/k=");
  CHECK(page->items[0] ==
        Json({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "a"}}}}));
}

TEST_CASE("a list whose items are null is empty") {
  Setup s;
  s.transport.answer(200, R"({"metadata":{"resourceVersion":"12"},"items":null})");
  const auto page = s.client->list(Kind::kNode, {});
  REQUIRE(page);
  CHECK(page->items.empty());
  CHECK(s.request().path == "/api/v1/nodes?limit=100");
}

TEST_CASE("a watch asks for bookmarks and an end") {
  Setup s;
  s.transport.answer(200, "");
  WatchOptions options;
  options.resource_version = "7";
  options.timeout = seconds(300);
  const auto stream = s.client->watch(Kind::kTrainingJob, options);
  CHECK(s.request().path ==
        "/apis/muster.dev/v1alpha1/trainingjobs?watch=true&allowWatchBookmarks=true"
        "&resourceVersion=7&timeoutSeconds=300");
  CHECK(stream.error().code() == ErrorCode::kUnavailable);
}

TEST_CASE("writes go where they belong, in their format") {
  Setup s;
  for (int i = 0; i < 5; ++i) s.transport.answer(i == 0 ? 201 : 200, R"({"metadata":{}})");
  const Json object = {{"metadata", {{"name", "a"}}}};

  const auto made = s.client->create(Kind::kPod, "ns", object);
  CHECK(s.request().method == "POST");
  CHECK(s.request().path == "/api/v1/namespaces/ns/pods");
  CHECK(s.request().content_type == "application/json");
  CHECK(s.request().body == dump_json(object));
  CHECK((*made)["kind"] == "Pod");

  REQUIRE(s.client->merge_patch(Kind::kTrainingJob, {"ns", "a"}, "status", {{"status", 1}}));
  CHECK(s.request().method == "PATCH");
  CHECK(s.request().path == "/apis/muster.dev/v1alpha1/namespaces/ns/trainingjobs/a/status");
  CHECK(s.request().content_type == "application/merge-patch+json");
  CHECK(s.request().body == R"({"status":1})");

  REQUIRE(s.client->remove(Kind::kPod, {"ns", "a"}, {.uid = "u", .grace_period_seconds = 0}));
  CHECK(s.request().method == "DELETE");
  CHECK(s.request().path == "/api/v1/namespaces/ns/pods/a");
  const auto body = parse_json(s.request().body);
  CHECK((*body)["preconditions"] == Json{{"uid", "u"}});
  CHECK((*body)["gracePeriodSeconds"] == 0);

  REQUIRE(s.client->remove(Kind::kPod, {"ns", "a"}, {}));
  CHECK_FALSE(parse_json(s.request().body)->contains("gracePeriodSeconds"));
  CHECK_FALSE(parse_json(s.request().body)->contains("preconditions"));

  REQUIRE(s.client->remove(Kind::kTrainingJob, {"ns", "a"}, {.uid = "u", .resource_version = "7"}));
  CHECK((*parse_json(s.request().body))["preconditions"] ==
        Json{{"uid", "u"}, {"resourceVersion", "7"}});
}

TEST_CASE("writes have the time that they were given, and reads their own") {
  Setup s;
  const auto patient = make_rest_client(s.transport, seconds(40));
  for (int i = 0; i < 5; ++i) s.transport.answer(200, R"({"metadata":{}})");
  const auto time = [&] { return s.request().timeout; };
  REQUIRE(patient->add(Kind::kPod, "ns", Json::object()));
  CHECK(time() == seconds(40));
  REQUIRE(patient->merge_patch(Kind::kPod, {"ns", "a"}, "", Json::object()));
  CHECK(time() == seconds(40));
  REQUIRE(patient->remove(Kind::kPod, {"ns", "a"}, {}));
  CHECK(time() == seconds(40));
  REQUIRE(patient->get(Kind::kPod, {"ns", "a"}));
  CHECK(time() == HttpRequest{}.timeout);
  REQUIRE(s.client->add(Kind::kPod, "ns", Json::object()));
  CHECK(time() == HttpRequest{}.timeout);
}

}  // namespace muster::kube
