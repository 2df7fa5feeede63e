// What only people read is as whoever writes it likes, and hides nothing that stands beside it.
#include <doctest/doctest.h>

#include "common/utf8.h"
#include "operator/api/pod.h"

using namespace muster;
using namespace muster::api;

namespace {

Json odd_words() {
  std::string wide = "x";
  while (wide.size() < 40 * 1024) wide += "\xE2\x82\xAC";
  return Json::array({std::string("a\0b", 3), wide});
}

/// Every pod that `base` becomes with odd words at `place`.
std::vector<Pod> pods_with_words(const Json& base, const char* place) {
  std::vector<Pod> pods;
  for (const char* field : {"/reason", "/message"}) {
    for (const Json& words : odd_words()) {
      CAPTURE(std::string(place) + field);
      Json json = base;
      json[Json::json_pointer("/status" + std::string(place) + field)] = words;
      const auto pod = parse_pod(json);
      REQUIRE_MESSAGE(pod, pod.error().message());
      for (const std::string& text : {pod->reason, pod->message}) {
        CHECK(text.find('\0') == std::string::npos);
        CHECK(text.size() <= 33'000);
        CHECK(is_utf8(text));
      }
      pods.push_back(*pod);
    }
  }
  return pods;
}

const Json kEnded = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Failed",
  "conditions": [{"type": "DisruptionTarget", "status": "True"}],
  "containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 3}}}]}})");

}  // namespace

TEST_CASE("no words in a pod's status hide that its worker has ended") {
  for (const char* place : {"", "/conditions/0", "/containerStatuses/0/state/terminated",
                            "/containerStatuses/0/state/waiting"}) {
    CAPTURE(place);
    for (const Pod& pod : pods_with_words(kEnded, place)) {
      CHECK(pod.ended());
      CHECK(pod.is_disrupted);
      REQUIRE(pod.termination);
      CHECK(pod.termination->exit_code == 3);
      CHECK(pod.termination->reason.size() <= 1024);
      CHECK(pod.termination->message.size() <= 4096);
      CHECK(is_utf8(pod.termination->message));
    }
  }
  Json json = kEnded;
  Json& terminated = json["status"]["containerStatuses"][0]["state"]["terminated"];
  terminated["message"] = std::string("a\0b", 3);
  CHECK(parse_pod(json)->termination->message == "a?b");
}

TEST_CASE("no words of containers that run before its worker make a pod unreadable") {
  Json failed = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Failed",
    "initContainerStatuses": [{"name": "first", "state": {"terminated": {"exitCode": 4}}}]}})");
  for (const Pod& pod : pods_with_words(failed, "/initContainerStatuses/0/state/terminated")) {
    REQUIRE(pod.init_failure);
    CHECK(pod.init_failure->exit_code == 4);
  }
  Json waits = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Pending",
    "initContainerStatuses": [{"name": "first", "state": {"waiting": {"reason": "Waits"}}}]}})");
  for (const Pod& pod : pods_with_words(waits, "/initContainerStatuses/0/state/waiting")) {
    CHECK_FALSE(pod.reason.empty());
    CHECK(pod.message.starts_with("init container first: "));
  }
}

TEST_CASE("what is more than words in a pod's status is not guessed") {
  for (const auto& [place, value] :
       {std::pair<const char*, Json>{"/status/phase", std::string("Failed\0", 7)},
        {"/status/phase", 7},
        {"/status/containerStatuses/0/state/terminated/exitCode", "3"}}) {
    CAPTURE(place);
    Json json = kEnded;
    json[Json::json_pointer(place)] = value;
    CHECK_FALSE(parse_pod(json));
  }
}
