#include "operator/runtime/token_claims.h"

#include <doctest/doctest.h>

#include "common/rng.h"
#include "tests/unit/endpoint/fake_api.h"

using namespace muster;
using namespace muster::runtime;

TEST_CASE("a token of Kubernetes names its pod before anybody has proved it") {
  // In the form in which API servers make them, but for the signature.
  CHECK(
      claimed_pod_uid("eyJhbGciOiJSUzI1NiJ9."
                      "eyJhdWQiOlsibXVzdGVyIl0sImt1YmVybmV0ZXMuaW8iOnsibmFtZXNwYWNlIjoibnMiLCJwb2Qi"
                      "OnsibmFtZSI6InBvZC0wIiwidWlkIjoiOGYzYT8-LTEifX19.c2ln") == "8f3a?>-1");
  for (const char* uid : {"a", "ab", "abc", "0d5a0d3e-6d4c-4f2e-9a37-2f1d9e4c7b11"}) {
    CHECK(claimed_pod_uid(test::token_for_pod(uid)) == uid);
  }
}

TEST_CASE("whatever else stands in a token names no pod") {
  const std::string good = test::token_for_pod("uid");
  for (const std::string& token :
       {std::string(), std::string("secret"), std::string("."), std::string(".."),
        std::string("a.b.c"), std::string("a.e30.c"), good.substr(0, good.rfind('.')),
        "a." + std::string(1, '=') + ".c", "a." + std::string(20'000, 'e') + ".c",
        test::token_with(Json::array()), test::token_with(Json{{"kubernetes.io", "pod"}}),
        test::token_with(Json{{"kubernetes.io", {{"pod", {{"uid", 7}}}}}}),
        test::token_for_pod(std::string(129, 'u'))}) {
    CHECK(claimed_pod_uid(token).empty());
  }
  Rng rng(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string token = good;
    for (std::size_t changes = 1 + rng.below(4); changes > 0; --changes) {
      token[rng.below(token.size())] = static_cast<char>(rng.below(256));
    }
    CHECK(claimed_pod_uid(token).size() <= 128);
  }
}
