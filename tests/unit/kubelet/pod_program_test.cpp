#include "operator/embedded/pod_program.h"

#include <doctest/doctest.h>

#include "operator/embedded/pod_view.h"

namespace muster::embedded {
namespace {

Json pod_with(const Json& container) {
  Json worker = container;
  worker["name"] = "worker";
  return {{"metadata",
           {{"name", "digits-x-0-1"},
            {"namespace", "default"},
            {"uid", "u1"},
            {"labels", {{"muster.dev/slot", "0"}}}}},
          {"spec", {{"containers", Json::array({worker})}}}};
}

PodProgramOptions options() {
  return {"/bin/muster-worker", "local", {{"PATH", "/bin"}, {"A", "base"}}, {{"B", "extra"}}};
}

Json field_variable(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

Json variable(const char* name, const char* value) { return {{"name", name}, {"value", value}}; }

TEST_CASE("a container without a command is the built-in worker") {
  auto program = program_of_pod(pod_with({{"image", "muster"}}), options());
  REQUIRE(program);
  CHECK(program->argv == std::vector<std::string>{"/bin/muster-worker"});
  CHECK(program->environment ==
        std::map<std::string, std::string>{{"PATH", "/bin"}, {"A", "base"}, {"B", "extra"}});
}

TEST_CASE("variables go base under pod under extra, and $(NAME) is written out") {
  const Json container = {
      {"command", Json::array({"sh", "-c", "echo $(A) $$(A) $(NONE) $("})},
      {"args", Json::array({"$(NAME)/$(B)"})},
      {"env", Json::array({variable("A", "pod"), variable("B", "pod"), variable("C", "$(A)-$(D)"),
                           variable("D", "d"), field_variable("NAME", "metadata.name"),
                           field_variable("SLOT", "metadata.labels['muster.dev/slot']")})}};
  auto program = program_of_pod(pod_with(container), options());
  REQUIRE(program);
  CHECK(program->argv ==
        std::vector<std::string>{"sh", "-c", "echo pod $(A) $(NONE) $(", "digits-x-0-1/extra"});
  CHECK(program->environment == std::map<std::string, std::string>{{"PATH", "/bin"},
                                                                   {"A", "pod"},
                                                                   {"B", "extra"},
                                                                   {"C", "pod-$(D)"},
                                                                   {"D", "d"},
                                                                   {"NAME", "digits-x-0-1"},
                                                                   {"SLOT", "0"}});
}

TEST_CASE("in the place of envFrom stands what is under the pod's own variables") {
  Json container = {{"command", Json::array({"sh", "-c", "echo $(PATH) $(A) $(NONE)"})},
                    {"args", Json::array({"$(C)"})},
                    {"env", Json::array({variable("A", "pod of $(A)"), variable("C", "$(PATH)")})}};
  auto program = program_of_pod(pod_with(container), options());
  REQUIRE(program);
  CHECK(program->argv.back() == "$(PATH)");
  container["envFrom"] = Json::array({{{"secretRef", {{"name", "s"}}}}});
  program = program_of_pod(pod_with(container), options());
  REQUIRE(program);
  CHECK(program->argv ==
        std::vector<std::string>{"sh", "-c", "echo /bin pod of base $(NONE)", "/bin"});
  CHECK(program->environment.at("A") == "pod of base");
  CHECK(program->environment.at("B") == "extra");
}

TEST_CASE("every field of a pod that a manifest may name has a value") {
  for (const auto& [path, value] :
       {std::pair("metadata.namespace", "default"), std::pair("metadata.uid", "u1"),
        std::pair("spec.nodeName", "local"), std::pair("spec.serviceAccountName", "default"),
        std::pair("status.hostIP", "127.0.0.1"), std::pair("status.hostIPs", "127.0.0.1"),
        std::pair("status.podIP", "127.0.0.1"), std::pair("status.podIPs", "127.0.0.1")}) {
    const auto program =
        program_of_pod(pod_with({{"env", Json::array({field_variable("X", path)})}}), options());
    REQUIRE_MESSAGE(program, program.error().message());
    CHECK(program->environment.at("X") == value);
  }
}

TEST_CASE("GPUs are chosen for a program of a pod's own that does not choose them itself") {
  const Json two = {{"limits", {{"nvidia.com/gpu", "2"}}}};
  const Json command = Json::array({"sh"});
  const auto gpus_of = [](const Json& container) {
    return program_of_pod(pod_with(container), options())->gpus;
  };
  CHECK(gpus_of({{"command", command}, {"resources", two}}) == 2);
  CHECK(gpus_of({{"command", command}}) == 0);
  CHECK(gpus_of({{"image", "muster"}, {"resources", two}}) == 0);
  CHECK(gpus_of({{"command", command},
                 {"resources", two},
                 {"env", Json::array({variable("CUDA_VISIBLE_DEVICES", "1")})}}) == 0);
}

TEST_CASE("what a process of one machine cannot have is refused in words") {
  const Json secret = {{"name", "KEY"},
                       {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}};
  auto program = program_of_pod(pod_with({{"env", Json::array({secret})}}), options());
  REQUIRE_FALSE(program);
  CHECK(program.error().message() ==
        "env KEY takes its value from the cluster (Secret, ConfigMap or resources), which a local "
        "run does not have; give it a value");
  PodProgramOptions without_worker = options();
  without_worker.worker_program.clear();
  auto image_only = program_of_pod(pod_with({{"image", "mine"}}), without_worker);
  REQUIRE_FALSE(image_only);
  CHECK(image_only.error().message() ==
        "the pod names an image and no command; a local run starts programs of this machine only");
  CHECK_FALSE(program_of_pod(Json{{"spec", 3}}, options()));
  CHECK_FALSE(program_of_pod(Json(), options()));
}

TEST_CASE("a pod of another shape than expected is viewed as empty, not trusted") {
  const PodView view = view_of_pod(
      {{"metadata", {{"name", 3}, {"uid", nullptr}, {"deletionGracePeriodSeconds", "x"}}},
       {"spec", {{"affinity", {{"nodeAffinity", Json::array({1})}}}}},
       {"status", "x"}});
  CHECK(view.name.empty());
  CHECK(view.uid.empty());
  CHECK(view.phase == "Pending");
  CHECK(view.grace == seconds(30));
  CHECK(view_of_pod(Json()).name.empty());
  const PodView odd = view_of_pod({{"metadata", {{"deletionGracePeriodSeconds", 1e9}}}});
  CHECK(odd.grace == seconds(30));
  const PodView longest =
      view_of_pod({{"metadata", {{"deletionGracePeriodSeconds", 9'000'000'000'000}}}});
  CHECK(longest.grace == seconds(3600));
}

}  // namespace
}  // namespace muster::embedded
