// An HttpTransport that counts and times what another one does.
#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "operator/kube/http_transport.h"
#include "operator/runtime/metrics.h"

namespace muster::runtime {

struct MeasuredTransport {
  kube::HttpTransport* inner = nullptr;  ///< outlives this one, as do the others
  Metrics* metrics = nullptr;
  const Clock* clock = nullptr;
  std::string host;  ///< label of its series: "10.96.0.1:443"
};

/// Threads: as `inner`.
std::unique_ptr<kube::HttpTransport> make_measured_transport(MeasuredTransport options);

}  // namespace muster::runtime
