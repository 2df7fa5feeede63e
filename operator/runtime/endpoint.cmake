find_package(OpenSSL REQUIRED)
# The operator's servers and what they trust: a target of its own, so that its tests need nothing of
# the loop.
muster_library(endpoint
  SOURCES certificates.cpp endpoint_handler.cpp metrics_server.cpp token_claims.cpp token_review.cpp workers_endpoint.cpp
  PUBLIC muster::common muster::http muster::kube
  PRIVATE OpenSSL::Crypto
  FUZZED)
muster_quick_to_compile(muster_endpoint)
