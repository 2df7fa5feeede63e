#include "operator/api/volume.h"

#include <doctest/doctest.h>

using namespace muster;
using namespace muster::api;

TEST_CASE("a local volume tells its nodes, its class and its claim") {
  const auto volume = parse_persistent_volume(*parse_json(R"({
    "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v1", "uid": "u"},
    "spec": {"storageClassName": "local", "capacity": {"storage": "1Gi"}, "local": {"path": "/mnt"},
      "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
      "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "ns", "name": "digits"},
      "nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [
          {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]}}},
    "status": {"phase": "Bound"}})"));
  REQUIRE(volume);
  CHECK(volume->meta.name == "v1");
  CHECK(volume->storage_class == "local");
  CHECK(volume->capacity_bytes == std::int64_t{1} << 30);
  CHECK(volume->claim == ObjectKey{"ns", "digits"});
  CHECK(volume->phase == "Bound");
  CHECK_FALSE(volume->is_reachable_by_all);
  CHECK_FALSE(volume->is_attached);
  CHECK(volume->access_modes == std::vector<std::string>{"ReadWriteOnce", "ReadOnlyMany"});
  REQUIRE(volume->nodes.size() == 2);
  CHECK(volume->nodes[0].labels ==
        std::vector<NodeRequirement>{{"kubernetes.io/hostname", "In", {"n1"}}});
  CHECK(volume->nodes[1].fields == std::vector<NodeRequirement>{{"metadata.name", "In", {"n2"}}});
}

TEST_CASE("a volume of the network is reached by all") {
  const auto volume = parse_persistent_volume(*parse_json(
      R"({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {}})"));
  REQUIRE(volume);
  CHECK(volume->is_reachable_by_all);
}

TEST_CASE("what every node mounts by itself is attached by nobody") {
  const auto is_attached = [](const char* source, const Json& about = Json::object()) {
    const Json json{{"apiVersion", "v1"},
                    {"kind", "PersistentVolume"},
                    {"metadata", {{"name", "v"}}},
                    {"spec", {{source, about}}}};
    return parse_persistent_volume(json)->is_attached;
  };
  CHECK(is_attached("csi"));
  CHECK(is_attached("csi", {{"driver", "ebs.csi.aws.com"}}));
  CHECK_FALSE(is_attached("csi", {{"driver", "nfs.csi.k8s.io"}}));
  CHECK(is_attached("gcePersistentDisk"));
  CHECK_FALSE(is_attached("nfs"));
  CHECK_FALSE(is_attached("hostPath"));
}

TEST_CASE("a claim tells its volume and what it asks for") {
  const auto claim = parse_persistent_volume_claim(*parse_json(R"({
    "apiVersion": "v1", "kind": "PersistentVolumeClaim",
    "metadata": {"name": "digits", "namespace": "ns"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}},
             "storageClassName": "local", "volumeName": "v1"},
    "status": {"phase": "Bound"}})"));
  REQUIRE(claim);
  CHECK(claim->meta.key() == ObjectKey{"ns", "digits"});
  CHECK(claim->volume_name == "v1");
  CHECK(claim->storage_class == "local");
  CHECK(claim->access_modes == std::vector<std::string>{"ReadWriteOnce"});
  CHECK(claim->request_bytes == std::int64_t{100} << 20);
  CHECK(claim->phase == "Bound");
}

TEST_CASE("what is no volume is refused with its field") {
  const auto wrong = parse_persistent_volume(*parse_json(
      R"({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
          "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": 3}}}})"));
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message().find("spec.nodeAffinity.required.nodeSelectorTerms") !=
        std::string::npos);
}
