// An API server that answers reviews as the test says, and counts them.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "common/json.h"
#include "operator/kube/api_client.h"

namespace muster::test {

class FakeApi final : public kube::ApiClient {
 public:
  /// Called on the reviewer's threads.
  std::function<Result<Json>(api::Kind, const Json&)> answer;
  std::atomic<int> asked = 0;

  Result<Json> create(api::Kind kind, const std::string&, const Json& object) override {
    ++asked;
    return answer(kind, object);
  }
  Status add(api::Kind kind, const std::string&, const Json& object) override {
    const auto made = create(kind, "", object);
    return made ? Status() : Status(made.error());
  }
  Result<kube::ListPage> list(api::Kind, const kube::ListOptions&) override { return none(); }
  Result<std::unique_ptr<kube::HttpStream>> watch(api::Kind, const kube::WatchOptions&) override {
    return none();
  }
  Result<Json> get(api::Kind, const api::ObjectKey&) override { return none(); }
  Result<Json> merge_patch(api::Kind, const api::ObjectKey&, const std::string&,
                           const Json&) override {
    return none();
  }
  Status remove(api::Kind, const api::ObjectKey&, const kube::DeleteOptions&) override {
    return none();
  }

 private:
  static Error none() { return {ErrorCode::kUnsupported, "only reviews are answered here"}; }
};

/// The API server's answer to a token of pod `pod` in `namespace_name`: "uid-of-<pod>" is its uid.
inline Json pod_token(const std::string& namespace_name, const std::string& pod) {
  return Json{{"status",
               {{"authenticated", true},
                {"audiences", Json::array({"muster"})},
                {"user",
                 {{"username", "system:serviceaccount:" + namespace_name + ":default"},
                  {"groups", Json::array({"system:serviceaccounts"})},
                  {"extra",
                   {{"authentication.kubernetes.io/pod-name", Json::array({pod})},
                    {"authentication.kubernetes.io/pod-uid", Json::array({"uid-of-" + pod})}}}}}}}};
}

/// A token as Kubernetes makes them, with these claims and a signature of nobody's; `mark` tells it
/// from others.
inline std::string token_with(const Json& claims, const std::string& mark = "c2ln") {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const std::string text = dump_json(claims);
  std::string payload;
  unsigned bits = 0;
  int held = 0;
  for (const char byte : text) {
    bits = bits << 8 | static_cast<unsigned char>(byte);
    for (held += 8; held >= 6; held -= 6) payload += kLetters[bits >> (held - 6) & 63];
  }
  if (held > 0) payload += kLetters[bits << (6 - held) & 63];
  return "eyJhbGciOiJSUzI1NiJ9." + payload + "." + mark;
}
inline std::string token_for_pod(const std::string& uid, const std::string& mark = "c2ln") {
  return token_with(Json{{"aud", Json::array({"muster"})},
                         {"kubernetes.io", {{"namespace", "ns"}, {"pod", {{"uid", uid}}}}}},
                    mark);
}

inline Json no_token() {
  return Json{{"status", {{"authenticated", false}, {"error", "invalid bearer token"}}}};
}

inline std::string token_of(const Json& review) { return review["spec"]["token"]; }

}  // namespace muster::test
