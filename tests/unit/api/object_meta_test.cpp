#include "operator/api/object_meta.h"

#include <doctest/doctest.h>

using namespace muster::api;

TEST_CASE("objects stand where the API server keeps them") {
  CHECK(collection_path(Kind::kTrainingJob, "ns") ==
        "/apis/muster.dev/v1alpha1/namespaces/ns/trainingjobs");
  CHECK(collection_path(Kind::kTrainingJob, "") == "/apis/muster.dev/v1alpha1/trainingjobs");
  CHECK(collection_path(Kind::kPod, "ns") == "/api/v1/namespaces/ns/pods");
  CHECK(object_path(Kind::kNode, {"", "n"}) == "/api/v1/nodes/n");
  CHECK(object_path(Kind::kEvent, {"ns", "e"}) == "/api/v1/namespaces/ns/events/e");
  CHECK(object_path(Kind::kLease, {"ns", "l"}) ==
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l");
  CHECK(object_path(Kind::kService, {"ns", "s"}) == "/api/v1/namespaces/ns/services/s");
}

TEST_CASE("a name cannot leave its place in the path") {
  CHECK(object_path(Kind::kPod, {"ns", "../x?y#z"}) == "/api/v1/namespaces/ns/pods/..%2Fx%3Fy%23z");
}

TEST_CASE("the controller is the owner that says so") {
  ObjectMeta meta;
  CHECK(meta.controller() == nullptr);
  meta.owner_references = {{"v1", "A", "a", "1", false}, {"v1", "B", "b", "2", true}};
  REQUIRE(meta.controller() != nullptr);
  CHECK(meta.controller()->name == "b");
}
