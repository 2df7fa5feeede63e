find_package(OpenSSL REQUIRED)
# The workers' endpoint: a target of its own, so that its tests need nothing of the loop.
muster_library(endpoint
  SOURCES certificates.cpp endpoint_handler.cpp workers_endpoint.cpp
  PUBLIC muster::common muster::http
  PRIVATE OpenSSL::Crypto)
