# The workers' endpoint: a target of its own, so that its tests need nothing of the loop.
muster_library(endpoint
  SOURCES endpoint_handler.cpp workers_endpoint.cpp
  PUBLIC muster::common muster::http)
