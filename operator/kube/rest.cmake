# What reaches a real API server stands in targets of its own: only the operator's main links them.
find_package(OpenSSL REQUIRED)
find_package(cpprestsdk REQUIRED)

muster_library(kube_rest
  SOURCES inflow.cpp rest_transport.cpp small_file.cpp
  PUBLIC muster::common muster::kube
  PRIVATE cpprestsdk::cpprest OpenSSL::SSL)
muster_quick_to_compile(muster_kube_rest)
muster_library(kube_config
  SOURCES in_cluster.cpp kubeconfig.cpp
  PUBLIC muster::common muster::kube_rest
  PRIVATE muster::yaml OpenSSL::Crypto
  FUZZED)
