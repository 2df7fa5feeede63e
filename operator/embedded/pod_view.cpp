#include "operator/embedded/pod_view.h"

#include <algorithm>
#include <csignal>

#include "common/contract.h"
#include "operator/embedded/lenient_json.h"

namespace muster::embedded {
namespace {

constexpr std::int64_t kLongestGraceSeconds = 3600;

const Json* first(const Json* list) {
  return list != nullptr && list->is_array() && !list->empty() ? &list->front() : nullptr;
}

/// The node named by the required affinity `metadata.name In [node]`, which is how the operator
/// places a pod.
std::string required_node_of(const Json* spec) {
  const Json* required = member(member(member(spec, "affinity"), "nodeAffinity"),
                                "requiredDuringSchedulingIgnoredDuringExecution");
  const Json* term = first(member(required, "nodeSelectorTerms"));
  const Json* field = first(member(term, "matchFields"));
  if (text(member(field, "key")) != "metadata.name") return {};
  return text(first(member(field, "values")));
}

Json condition(const char* type, bool is_true, const char* reason, const std::string& now) {
  return {{"type", type},
          {"status", is_true ? "True" : "False"},
          {"reason", reason},
          {"lastTransitionTime", now}};
}

Json conditions(bool ready, const char* reason, const std::string& now) {
  return Json::array(
      {condition("PodScheduled", true, "Scheduled", now), condition("Ready", ready, reason, now)});
}

Json patch(const PodView& pod, Json status) {
  return {{"metadata", {{"uid", pod.uid}}}, {"status", std::move(status)}};
}

Json container_status(bool ready, Json state) {
  return {{"name", contract::kContainerName},
          {"ready", ready},
          {"restartCount", 0},
          {"image", ""},
          {"imageID", ""},
          {"state", std::move(state)}};
}

Json terminated(const ContainerEnd& end, const std::string& reason, const std::string& now) {
  Json state = {{"exitCode", end.exit_code}, {"reason", reason}, {"finishedAt", now}};
  if (end.signal != 0) state["signal"] = end.signal;
  if (!end.message.empty()) state["message"] = end.message;
  return {{"terminated", std::move(state)}};
}

}  // namespace

bool PodView::concerns(const std::string& node) const {
  if (!node_name.empty()) return node_name == node;
  return required_node.empty() || required_node == node;
}

PodView view_of_pod(const Json& pod) {
  const Json* metadata = member(&pod, "metadata");
  const Json* spec = member(&pod, "spec");
  PodView view;
  view.namespace_name = text(member(metadata, "namespace"));
  view.name = text(member(metadata, "name"));
  view.uid = text(member(metadata, "uid"));
  view.node_name = text(member(spec, "nodeName"));
  view.required_node = required_node_of(spec);
  view.phase = text(member(member(&pod, "status"), "phase"));
  if (view.phase.empty()) view.phase = "Pending";
  view.is_deleting = !text(member(metadata, "deletionTimestamp")).empty();
  const Json* grace = member(metadata, "deletionGracePeriodSeconds");
  if (grace == nullptr) grace = member(spec, "terminationGracePeriodSeconds");
  if (grace != nullptr && grace->is_number_integer()) {
    view.grace =
        seconds(std::clamp<std::int64_t>(grace->get<std::int64_t>(), 0, kLongestGraceSeconds));
  }
  return view;
}

Json status_running(const PodView& pod, const std::string& now) {
  return patch(pod, {{"phase", "Running"},
                     {"podIP", "127.0.0.1"},
                     {"startTime", now},
                     {"conditions", conditions(true, "ContainersReady", now)},
                     {"containerStatuses",
                      Json::array({container_status(true, {{"running", {{"startedAt", now}}}})})}});
}

Json status_ended(const PodView& pod, const ContainerEnd& end, const std::string& now) {
  const bool succeeded = end.exit_code == 0;
  return patch(pod, {{"phase", succeeded ? "Succeeded" : "Failed"},
                     {"conditions", conditions(false, "PodCompleted", now)},
                     {"containerStatuses",
                      Json::array({container_status(
                          false, terminated(end, succeeded ? "Completed" : "Error", now))})}});
}

Json status_not_started(const PodView& pod, const std::string& sentence, const std::string& now) {
  return patch(pod, {{"phase", "Failed"},
                     {"conditions", conditions(false, "PodCompleted", now)},
                     {"containerStatuses",
                      Json::array({container_status(
                          false, terminated({128, 0, sentence}, "StartError", now))})}});
}

}  // namespace muster::embedded
