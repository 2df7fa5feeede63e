#include "common/http/message.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("a URL falls into host, port and path") {
  const auto plain = http::parse_url("http://127.0.0.1:8080/v1/join");
  REQUIRE(plain);
  CHECK(plain->host == "127.0.0.1");
  CHECK(plain->port == 8080);
  CHECK(plain->path == "/v1/join");
  CHECK_FALSE(plain->tls);
  const auto v6 = http::parse_url("https://[::1]");
  REQUIRE(v6);
  CHECK(v6->host == "::1");
  CHECK(v6->port == 443);
  CHECK(v6->path == "/");
  CHECK(v6->tls);
}

TEST_CASE("a wrong URL is refused with a sentence that quotes it") {
  for (const std::string bad :
       {"", "127.0.0.1:80", "ftp://a", "http://", "http://:80", "http://a:", "http://a:0",
        "http://a:65536", "http://a:80x", "http://u@a", "http://[::1", "http://[::1]x",
        "http://a/\r\nHost: b", "http://a b"}) {
    CAPTURE(bad);
    const auto url = http::parse_url(bad);
    REQUIRE_FALSE(url);
    CHECK(url.error().code() == ErrorCode::kInvalid);
    CHECK(url.error().message().starts_with("\"" + bad + "\""));
  }
}

TEST_CASE("a bearer token is taken from its header alone") {
  http::Request request;
  CHECK(request.bearer_token().empty());
  request.headers = {{"authorization", "Basic abc"}};
  CHECK(request.bearer_token().empty());
  request.headers = {{"authorization", "Bearer abc"}};
  CHECK(request.bearer_token() == "abc");
}

TEST_CASE("tokens are equal only when every byte is") {
  CHECK(http::equal_in_constant_time("abc", "abc"));
  CHECK_FALSE(http::equal_in_constant_time("abc", "abd"));
  CHECK_FALSE(http::equal_in_constant_time("bbc", "abc"));
  CHECK_FALSE(http::equal_in_constant_time("abc", "abcd"));
  CHECK_FALSE(http::equal_in_constant_time("abc", ""));
}
