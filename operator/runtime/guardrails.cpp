#include "operator/runtime/guardrails.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "common/json.h"
#include "common/log.h"

namespace muster::runtime {
namespace {

constexpr const char* kApi = "/apis/admissionregistration.k8s.io/v1/";
constexpr const char* kPolicies = "validatingadmissionpolicies";
constexpr const char* kBindings = "validatingadmissionpolicybindings";
constexpr int kOk = 200;
constexpr int kGone = 404;

Result<Json> read(kube::HttpTransport& transport, const std::string& plural,
                  const std::string& name) {
  kube::HttpRequest request;
  request.path = kApi + plural + "/" + name;
  const auto answer = transport.send(request);
  if (!answer) return answer.error();
  if (answer->code == kGone) {
    return Error(ErrorCode::kNotFound, plural + "/" + name + " is not there");
  }
  if (answer->code != kOk) {
    return Error(ErrorCode::kUnavailable,
                 plural + "/" + name + ": the API server answered " + std::to_string(answer->code));
  }
  return parse_json(answer->body);
}

/// Null where anything on the way is missing or no object.
Json field_of(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

/// Null, and what the API server writes where nothing was said.
bool is_empty(const Json& value) { return value.is_null() || value.empty(); }

/// Whether resources that match are all there are, or all of the namespace that is watched.
bool is_narrowed(const Json& match, const std::string& watched_namespace) {
  const Json namespaces = field_of(match, "namespaceSelector");
  const Json watched{{"matchLabels", {{"kubernetes.io/metadata.name", watched_namespace}}}};
  const bool all = is_empty(namespaces) || (!watched_namespace.empty() && namespaces == watched);
  return !all || !is_empty(field_of(match, "objectSelector")) ||
         !is_empty(field_of(match, "excludeResourceRules"));
}

/// The conditions of the chart's policies; any other leaves something out.
bool is_ours(const Json& condition) {
  const Json name = field_of(condition, "name");
  return name == "changes-the-spec" || name == "is-not-the-operator" || name == "is-a-node-agent";
}

Status check_policy(const Json& policy, const std::string& what,
                    const std::string& watched_namespace) {
  const Json spec = field_of(policy, "spec");
  if (field_of(spec, "failurePolicy") != "Fail") {
    return Error(ErrorCode::kInvalid, what + " lets pass what it cannot judge");
  }
  if (is_empty(field_of(spec, "validations"))) {
    return Error(ErrorCode::kInvalid, what + " refuses nothing");
  }
  const Json conditions = field_of(spec, "matchConditions");
  if (is_narrowed(field_of(spec, "matchConstraints"), watched_namespace) ||
      !std::all_of(conditions.begin(), conditions.end(), is_ours)) {
    return Error(ErrorCode::kInvalid, what + " leaves out some of what it should judge");
  }
  return {};
}

Status check_binding(const Json& binding, const std::string& name,
                     const std::string& watched_namespace) {
  const std::string what = std::string(kBindings) + "/" + name;
  const Json spec = field_of(binding, "spec");
  if (field_of(spec, "policyName") != name) {
    return Error(ErrorCode::kInvalid, what + " binds another policy");
  }
  const Json actions = field_of(spec, "validationActions");
  if (std::find(actions.begin(), actions.end(), Json("Deny")) == actions.end()) {
    return Error(ErrorCode::kInvalid, what + " does not deny what the policy refuses");
  }
  const Json match = field_of(spec, "matchResources");
  if (is_narrowed(match, watched_namespace) || !is_empty(field_of(match, "resourceRules"))) {
    return Error(ErrorCode::kInvalid, what + " leaves out some of what the policy should judge");
  }
  return {};
}

/// Whether the error says that something is wrong, and not only that nobody could look.
bool is_verdict(const Status& status) {
  return status.error().code() == ErrorCode::kNotFound ||
         status.error().code() == ErrorCode::kInvalid;
}

class RunningGuardrails final : public Guardrails {
 public:
  explicit RunningGuardrails(GuardrailsOptions options)
      : options_(std::move(options)), thread_([this] { run(); }) {}
  ~RunningGuardrails() override { stop(); }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    for (;;) {
      const bool all_known = look();
      std::unique_lock lock(mutex_);
      const auto pause = all_known ? options_.period : options_.retry;
      if (changed_.wait_for(lock, pause, [this] { return is_stopping_; })) return;
    }
  }

  /// Whether every policy was seen, well or not.
  bool look() {
    bool all_known = true;
    for (const std::string& name : options_.policies) {
      const Status status = look_at_policy(*options_.transport, name, options_.watched_namespace);
      if (status || is_verdict(status)) options_.metrics->set_guardrail_missing(name, !status);
      if (!status && !is_verdict(status)) all_known = false;
      tell(name, status);
    }
    return all_known;
  }

  void tell(const std::string& name, const Status& status) {
    const std::string trouble = status ? "" : status.error().message();
    const auto [found, is_first] = said_.try_emplace(name, trouble);
    if (!is_first && found->second == trouble) return;
    found->second = trouble;
    if (status) {
      log_info("a guardrail stands", {{"policy", name}});
    } else if (is_verdict(status)) {
      log_error("a guardrail is missing: what the chart's policy refuses is taken",
                {{"policy", name},
                 {"error", trouble},
                 {"help", "delete what is left of the policy and its binding, then helm upgrade"}});
    } else {
      log_warning("a guardrail cannot be looked at", {{"policy", name}, {"error", trouble}});
    }
  }

  const GuardrailsOptions options_;
  std::map<std::string, std::string> said_;  ///< by policy; the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;  ///< guarded by mutex_
  std::thread thread_;        ///< the last: it uses all of the above
};

}  // namespace

Status look_at_policy(kube::HttpTransport& transport, const std::string& name,
                      const std::string& watched_namespace) {
  MUSTER_ASSIGN_OR_RETURN(const Json policy, read(transport, kPolicies, name));
  MUSTER_RETURN_IF_ERROR(
      check_policy(policy, std::string(kPolicies) + "/" + name, watched_namespace));
  MUSTER_ASSIGN_OR_RETURN(const Json binding, read(transport, kBindings, name));
  return check_binding(binding, name, watched_namespace);
}

std::unique_ptr<Guardrails> Guardrails::start(GuardrailsOptions options) {
  return std::make_unique<RunningGuardrails>(std::move(options));
}

}  // namespace muster::runtime
