// Looks whether the admission policies that the chart put beside the operator still stand and
// still refuse. They are the cluster's to enforce and somebody else's to take away: the operator
// can only say aloud that they are gone. Running jobs are not touched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "operator/kube/http_transport.h"
#include "operator/runtime/metrics.h"

namespace muster::runtime {

struct GuardrailsOptions {
  kube::HttpTransport* transport = nullptr;  ///< outlives the guardrails; reads only
  Metrics* metrics = nullptr;                ///< outlives the guardrails
  /// Names of ValidatingAdmissionPolicies; each has a binding of the same name.
  std::vector<std::string> policies;
  std::string watched_namespace;  ///< the only one that bindings may keep to; empty = none
  seconds period{600};
  seconds retry{15};  ///< after a look that the API server did not answer
};

/// One look. Errors: kNotFound (the policy or its binding is gone), kInvalid (it is there and does
/// not refuse, or leaves some out); any other: nothing is known. What its expressions say is not
/// looked at. Blocks: two exchanges at most.
Status look_at_policy(kube::HttpTransport& transport, const std::string& name,
                      const std::string& watched_namespace);

/// Looks at once and then again and again. What is wrong is logged when it begins and when it
/// changes, and stands in the metric muster_guardrail_missing.
class Guardrails {
 public:
  static std::unique_ptr<Guardrails> start(GuardrailsOptions options);
  virtual ~Guardrails() = default;
  /// Idempotent. Blocks: until a look under way has ended.
  virtual void stop() = 0;
};

}  // namespace muster::runtime
