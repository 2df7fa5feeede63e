#include "operator/core/volumes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "operator/core/node_terms.h"

namespace muster::core {
namespace {

bool may_bind(const api::PersistentVolume& volume, const api::PersistentVolumeClaim& claim) {
  if (volume.claim.name.empty()) {
    return volume.phase == "Available" && volume.storage_class == claim.storage_class &&
           volume.capacity_bytes >= claim.request_bytes;
  }
  return volume.claim == claim.meta.key() && volume.phase != "Released";
}

bool has_mode(const std::vector<std::string>& modes, const char* mode) {
  return std::find(modes.begin(), modes.end(), mode) != modes.end();
}

NodeLimit intersection(const NodeLimit& a, const NodeLimit& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  NodeLimit::Names both;
  std::set_intersection(a->begin(), a->end(), b->begin(), b->end(),
                        std::inserter(both, both.end()));
  return both;
}

}  // namespace

std::string checkpoint_claim(const api::TrainingJob& job) {
  if (!job.spec.training || !job.spec.training->checkpoint) return "";
  return job.spec.training->checkpoint->volume_claim_name;
}

std::vector<std::string> worker_claims(const api::TrainingJob& job) {
  std::vector<std::string> names;
  const Json& fields = job.spec.worker.pod_fields;
  if (!fields.is_object() || !fields.contains("volumes") || !fields["volumes"].is_array())
    return names;
  for (const Json& volume : fields["volumes"]) {
    const auto claim = volume.find("persistentVolumeClaim");
    if (claim == volume.end() || !claim->is_object()) continue;
    const auto name = claim->find("claimName");
    if (name != claim->end() && name->is_string()) names.push_back(name->get<std::string>());
  }
  return names;
}

bool names_claims(const api::TrainingJob& job) {
  return !checkpoint_claim(job).empty() || !worker_claims(job).empty();
}

VolumeReach::VolumeReach(StorageSnapshot storage) : storage_(std::move(storage)) {
  for (const api::PersistentVolume* volume : storage_.volumes) {
    by_name_.emplace(volume->meta.name, volume);
    if (volume->claim.name.empty()) continue;
    named_.emplace(volume->claim.namespace_name, volume->claim.name);
  }
}

const VolumeReach::Labelled& VolumeReach::labelled_by(const std::string& key) {
  const auto [found, is_new] = labelled_.try_emplace(key);
  if (!is_new) return found->second;
  for (const api::Node* node : storage_.nodes) {
    const auto label = node->meta.labels.find(key);
    if (label != node->meta.labels.end()) found->second[label->second].push_back(node);
  }
  return found->second;
}

/// All that the terms may select; some perhaps twice.
std::vector<const api::Node*> VolumeReach::candidates(const std::vector<api::NodeTerm>& terms) {
  std::vector<const api::Node*> nodes;
  for (const api::NodeTerm& term : terms) {
    const auto listed = std::find_if(term.labels.begin(), term.labels.end(),
                                     [](const auto& one) { return one.op == "In"; });
    if (listed == term.labels.end()) return storage_.nodes;
    const Labelled& labelled = labelled_by(listed->key);
    for (const std::string& value : listed->values) {
      const auto found = labelled.find(value);
      if (found == labelled.end()) continue;
      nodes.insert(nodes.end(), found->second.begin(), found->second.end());
    }
  }
  return nodes;
}

NodeLimit VolumeReach::reach_of(const api::PersistentVolume& volume) {
  if (volume.is_reachable_by_all) return {};
  const auto known = reached_.find(volume.nodes);
  if (known != reached_.end()) return known->second;
  NodeLimit::Names names;
  for (const api::Node* node : candidates(volume.nodes)) {
    ++nodes_asked_;
    if (selects(volume.nodes, *node)) names.insert(node->meta.name);
  }
  return reached_.emplace(volume.nodes, std::move(names)).first->second;
}

/// Nodes that any of them reaches, of which there is one at least.
NodeLimit VolumeReach::reach_of_any(const std::vector<const api::PersistentVolume*>& volumes) {
  NodeLimit reach = reach_of(*volumes.front());
  NodeLimit::Names names;  // of all, once two differ
  for (std::size_t i = 1; i < volumes.size() && reach; ++i) {
    const NodeLimit further = reach_of(*volumes[i]);
    if (!further) return further;
    if (names.empty() && further == reach) continue;
    if (names.empty()) names = *reach;
    names.insert(further->begin(), further->end());
  }
  return names.empty() ? reach : NodeLimit(std::move(names));
}

NodeLimit VolumeReach::reach_unbound(const api::PersistentVolumeClaim& claim) {
  const bool is_named = named_.contains({claim.meta.namespace_name, claim.meta.name});
  const std::pair kind(claim.storage_class, claim.request_bytes);
  const auto known = reached_by_class_.find(kind);
  if (!is_named && known != reached_by_class_.end()) return known->second;
  std::vector<const api::PersistentVolume*> found;
  std::copy_if(storage_.volumes.begin(), storage_.volumes.end(), std::back_inserter(found),
               [&](const api::PersistentVolume* volume) { return may_bind(*volume, claim); });
  NodeLimit reach = found.empty() ? NodeLimit() : reach_of_any(found);
  if (!is_named) reached_by_class_.emplace(kind, reach);
  return reach;
}

/// Where `claim` may be mounted. Errors: why nowhere.
Result<NodeLimit> VolumeReach::reach_of(const api::PersistentVolumeClaim& claim) {
  const std::string name = "claim " + claim.meta.name;
  if (claim.meta.deletion_time) return Error(ErrorCode::kInvalid, name + " is being deleted");
  if (claim.phase == "Lost") {
    return Error(ErrorCode::kInvalid, name + " has lost its volume " + claim.volume_name);
  }
  const auto bound = by_name_.find(claim.volume_name);
  if (!claim.volume_name.empty() && bound == by_name_.end()) {
    return Error(ErrorCode::kInvalid,
                 name + " is bound to volume " + claim.volume_name + ", which is not there");
  }
  NodeLimit reach = claim.volume_name.empty() ? reach_unbound(claim) : reach_of(*bound->second);
  if (reach && reach->empty()) {
    return Error(ErrorCode::kInvalid,
                 name + " lies on a volume that no node of the cluster reaches");
  }
  return reach;
}

/// Whether pods on several nodes can never have it at the same time. A bound claim has the modes of
/// its volume, as for the controller that attaches it; a claim of which none are known may be
/// anybody's.
bool VolumeReach::is_of_one_node(const api::PersistentVolumeClaim& claim) const {
  const std::vector<std::string>* modes = &claim.access_modes;
  if (const auto bound = by_name_.find(claim.volume_name); bound != by_name_.end()) {
    if (!bound->second->is_attached) return false;
    if (!bound->second->access_modes.empty()) modes = &bound->second->access_modes;
  }
  return !modes->empty() && !has_mode(*modes, "ReadWriteMany") && !has_mode(*modes, "ReadOnlyMany");
}

/// What a claim that every worker mounts means for where they stand, by its access modes.
void VolumeReach::limit_by_modes(const api::PersistentVolumeClaim& claim,
                                 const api::TrainingJob& job, VolumeLimits& limits) const {
  const std::string name = "claim " + claim.meta.name;
  const int most = job.spec.worker.max;
  if (most > 1 && has_mode(claim.access_modes, "ReadWriteOncePod")) {
    limits.why_not = name + " is ReadWriteOncePod, for one pod alone, and up to " +
                     std::to_string(most) + " workers mount it (spec.worker.volumes)";
  } else if (limits.one_node.empty() && is_of_one_node(claim)) {
    limits.one_node = name + " is ReadWriteOnce (spec.worker.volumes)";
  }
}

VolumeLimits VolumeReach::limits(const api::TrainingJob& job) {
  VolumeLimits limits;
  const auto add = [&](const std::string& name, const char* field,
                       NodeLimit& limit) -> const api::PersistentVolumeClaim* {
    const auto found = storage_.claims.find({job.meta.namespace_name, name});
    if (found == storage_.claims.end()) {
      limits.why_not = "there is no PersistentVolumeClaim " + name + " in namespace " +
                       job.meta.namespace_name + " (" + field + "); create it";
      return nullptr;
    }
    auto reach = reach_of(*found->second);
    if (!reach) {
      limits.why_not = reach.error().message() + " (" + field + ")";
      return nullptr;
    }
    limit = intersection(limit, *reach);
    if (limit && limit->empty()) {
      limits.why_not = "no node reaches all of its volumes (" + std::string(field) + ")";
    }
    return found->second;
  };
  for (const std::string& name : worker_claims(job)) {
    if (!limits.why_not.empty()) break;
    const auto* claim = add(name, "spec.worker.volumes", limits.every_slot);
    if (limits.why_not.empty()) limit_by_modes(*claim, job, limits);
  }
  limits.first_slot = limits.every_slot;
  const std::string checkpoint = checkpoint_claim(job);
  if (!checkpoint.empty() && limits.why_not.empty()) {
    add(checkpoint, "spec.training.checkpoint.volumeClaimName", limits.first_slot);
  }
  return limits;
}

}  // namespace muster::core
