#include "operator/runtime/guardrails.h"

#include <doctest/doctest.h>

#include <map>
#include <mutex>

#include "common/json.h"

using namespace muster;
using namespace muster::runtime;

namespace {

const std::string kBase = "/apis/admissionregistration.k8s.io/v1/";
const std::string kPolicy = kBase + "validatingadmissionpolicies/muster-jobs";
const std::string kBinding = kBase + "validatingadmissionpolicybindings/muster-jobs";

/// A policy's spec with what the API server writes where the chart says nothing.
Json policy_spec() {
  return {{"failurePolicy", "Fail"},
          {"matchConstraints",
           {{"namespaceSelector", Json::object()},
            {"objectSelector", Json::object()},
            {"resourceRules", Json::array({{{"resources", {"trainingjobs"}}}})},
            {"matchPolicy", "Equivalent"}}},
          {"matchConditions",
           Json::array({{{"name", "changes-the-spec"}, {"expression", "object.spec != 1"}}})},
          {"validations", Json::array({{{"expression", "false"}}})}};
}

/// An API server that holds one policy and its binding, as the chart makes them.
class Shelf final : public kube::HttpTransport {
 public:
  std::map<std::string, Json> objects{
      {kPolicy, {{"spec", policy_spec()}}},
      {kBinding, {{"spec", {{"policyName", "muster-jobs"}, {"validationActions", {"Deny"}}}}}}};
  int code = 0;  ///< of every answer; 0: by what is there

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    CHECK(request.method == "GET");
    if (code < 0) return Error(ErrorCode::kUnavailable, "no connection");
    if (code > 0) return kube::HttpResponse{code, "{}", {}};
    const auto found = objects.find(request.path);
    if (found == objects.end()) return kube::HttpResponse{404, "{}", {}};
    return kube::HttpResponse{200, dump_json(found->second), {}};
  }
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    return Error(ErrorCode::kInternal, "nobody watches here");
  }
};

ErrorCode code_of(const Status& status) {
  REQUIRE_FALSE(status);
  return status.error().code();
}

}  // namespace

TEST_CASE("a policy and its binding as the chart makes them are a guardrail") {
  Shelf shelf;
  CHECK(look_at_policy(shelf, "muster-jobs", ""));
}

TEST_CASE("each policy of the chart is one whatever its condition is about") {
  for (const char* condition : {"changes-the-spec", "is-not-the-operator", "is-a-node-agent"}) {
    CAPTURE(condition);
    Shelf shelf;
    shelf.objects[kPolicy]["spec"]["matchConditions"][0]["name"] = condition;
    CHECK(look_at_policy(shelf, "muster-jobs", ""));
  }
}

TEST_CASE("a policy or a binding that is gone is missing") {
  for (const std::string& path : {kPolicy, kBinding}) {
    Shelf shelf;
    shelf.objects.erase(path);
    const Status status = look_at_policy(shelf, "muster-jobs", "");
    CHECK(code_of(status) == ErrorCode::kNotFound);
    CHECK(status.error().message().find("muster-jobs is not there") != std::string::npos);
  }
}

TEST_CASE("a policy that refuses nothing is as good as none") {
  const auto broken = [](const std::string& path, const std::string& field, const Json& value) {
    Shelf shelf;
    shelf.objects[path]["spec"][field] = value;
    return code_of(look_at_policy(shelf, "muster-jobs", ""));
  };
  CHECK(broken(kPolicy, "failurePolicy", "Ignore") == ErrorCode::kInvalid);
  CHECK(broken(kBinding, "validationActions", {"Audit", "Warn"}) == ErrorCode::kInvalid);
  CHECK(broken(kBinding, "validationActions", nullptr) == ErrorCode::kInvalid);
  CHECK(broken(kBinding, "policyName", "another") == ErrorCode::kInvalid);
  CHECK(broken(kPolicy, "validations", Json::array()) == ErrorCode::kInvalid);
  CHECK(broken(kPolicy, "validations", nullptr) == ErrorCode::kInvalid);
}

TEST_CASE("a policy or a binding that leaves out what it should judge is none") {
  const Json team{{"matchLabels", {{"kubernetes.io/metadata.name", "team"}}}};
  const Json rules = Json::array({{{"resources", {"*"}}}});
  const auto narrowed = [](const std::string& path, const std::string& at, const Json& value,
                           const std::string& watched = "") {
    Shelf shelf;
    shelf.objects[path][Json::json_pointer("/spec/" + at)] = value;
    const Status status = look_at_policy(shelf, "muster-jobs", watched);
    return !status && status.error().code() == ErrorCode::kInvalid;
  };
  for (const std::string match : {"matchConstraints", "matchResources"}) {
    const std::string& path = match == "matchConstraints" ? kPolicy : kBinding;
    CHECK(narrowed(path, match + "/namespaceSelector", team));
    CHECK(narrowed(path, match + "/namespaceSelector", team, "another"));
    CHECK_FALSE(narrowed(path, match + "/namespaceSelector", team, "team"));
    CHECK_FALSE(narrowed(path, match + "/namespaceSelector", Json::object()));
    CHECK(narrowed(path, match + "/objectSelector", team));
    CHECK(narrowed(path, match + "/excludeResourceRules", rules));
  }
  CHECK(narrowed(kBinding, "matchResources/resourceRules", rules));
  CHECK(narrowed(kPolicy, "matchConditions/1", {{"name", "never"}, {"expression", "false"}}));
}

TEST_CASE("what nobody could look at is neither there nor missing") {
  for (const int code : {-1, 403, 500}) {
    Shelf shelf;
    shelf.code = code;
    CHECK(code_of(look_at_policy(shelf, "muster-jobs", "")) == ErrorCode::kUnavailable);
  }
}

TEST_CASE("a missing guardrail stands in the metrics until it is back") {
  ManualClock clock;
  Metrics metrics{{&clock, "1.2.3"}};
  Shelf shelf;
  shelf.objects.erase(kBinding);
  GuardrailsOptions options;
  options.transport = &shelf;
  options.metrics = &metrics;
  options.policies = {"muster-jobs"};
  const auto shown = [&](const std::string& value) {
    // The first look is made whatever happens; stop() waits for it.
    Guardrails::start(options)->stop();
    return metrics.render().find("muster_guardrail_missing{guardrail=\"muster-jobs\"} " + value) !=
           std::string::npos;
  };
  CHECK(shown("1"));
  shelf.objects = Shelf().objects;
  CHECK(shown("0"));
  // A look that came to nothing takes nothing back.
  shelf.code = 500;
  CHECK(shown("0"));
}
