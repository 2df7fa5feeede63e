# The YAML reader is a target of its own: only programs that read manifests or kubeconfigs need it.
find_package(yaml-cpp REQUIRED)

muster_library(yaml
  SOURCES yaml_reader.cpp
  PUBLIC muster::common
  PRIVATE yaml-cpp
  FUZZED)
