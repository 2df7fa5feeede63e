# The transport over cpprestsdk is a target of its own: only the operator's main links it.
find_package(OpenSSL REQUIRED)
find_package(cpprestsdk REQUIRED)

muster_library(kube_rest
  SOURCES rest_transport.cpp
  PUBLIC muster::common
  PRIVATE cpprestsdk::cpprest OpenSSL::SSL)
