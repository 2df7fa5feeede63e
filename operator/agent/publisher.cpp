#include "operator/agent/publisher.h"

#include <algorithm>

#include "common/contract.h"
#include "common/json.h"
#include "common/log.h"
#include "operator/agent/sysfs.h"

namespace muster::agent {
namespace {

/// More doublings than lead from any least wait to any most one.
constexpr int kMostDoublings = 20;
/// A wait is longer by up to this part of it.
constexpr double kJitter = 0.1;

/// The annotation as it stands; empty where there is none.
std::string annotation_of(const Json& node) {
  const Json::json_pointer at =
      Json::json_pointer("/metadata/annotations") / std::string(contract::kAnnotationPcie);
  if (!node.contains(at) || !node.at(at).is_string()) return "";
  return node.at(at).get<std::string>();
}

}  // namespace

Publisher::Publisher(PublisherOptions options) : options_(std::move(options)), rng_(options_.seed) {
  MUSTER_CHECK(options_.client != nullptr);
}

Look Publisher::look() {
  Status published = publish();
  if (!published) return {published, back_off(published.error())};
  failures_ = 0;
  return {published, jittered(options_.period)};
}

Status Publisher::publish() {
  MUSTER_ASSIGN_OR_RETURN(const api::PcieNode node, read_pcie(options_.sysfs));
  const std::string text = api::pcie_annotation(node);
  if (published_ == text && ++looks_since_read_ < kLooksBetweenReads) return {};
  published_.reset();  // until the API server has said what stands
  const std::string doing = "node " + options_.node;
  if (const Status brought = bring(text); !brought) return brought.error().with(doing);
  published_ = text;
  looks_since_read_ = 0;
  return {};
}

Status Publisher::bring(const std::string& text) {
  const api::ObjectKey key{"", options_.node};
  MUSTER_ASSIGN_OR_RETURN(const Json stands, options_.client->get(api::Kind::kNode, key));
  if (annotation_of(stands) == text) return {};
  // No resourceVersion: the kubelet writes its node all the time, and nobody else this annotation.
  const Json patch{
      {"metadata", {{"annotations", {{std::string(contract::kAnnotationPcie), text}}}}}};
  MUSTER_RETURN_IF_ERROR(options_.client->merge_patch(api::Kind::kNode, key, "", patch));
  log_info("the node's PCIe is published", {{"node", options_.node}, {"bytes", text.size()}});
  return {};
}

milliseconds Publisher::back_off(const Error& error) {
  const auto doubled = options_.retry_least * (1 << std::min(failures_, kMostDoublings));
  const milliseconds asked = seconds(error.retry_after_seconds());
  const milliseconds wait = jittered(std::max(std::min(doubled, options_.retry_most), asked));
  ++failures_;
  log_warning("the node's PCIe could not be published",
              {{"error", error.message()}, {"again_in_ms", wait.count()}});
  return wait;
}

milliseconds Publisher::jittered(milliseconds wait) {
  return wait + milliseconds(static_cast<milliseconds::rep>(static_cast<double>(wait.count()) *
                                                            kJitter * rng_.unit()));
}

}  // namespace muster::agent
