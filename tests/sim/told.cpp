#include "tests/sim/told.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace muster::sim {
namespace {

using api::Kind;
using Placements = std::vector<api::SlotPlacement>;

constexpr std::array kTellers{Kind::kNode, Kind::kTopologyConfig, Kind::kKueueTopology,
                              Kind::kKaiTopology, Kind::kHyperNode};

std::string name_of(const Json& object) { return object["metadata"].value("name", ""); }

std::string label_of(const Json& node, const std::string& key) {
  const Json& meta = node["metadata"];
  return meta.contains("labels") ? meta["labels"].value(key, "") : "";
}

std::set<std::string> nodes_of(const Placements& placements) {
  std::set<std::string> nodes;
  for (const auto& one : placements) nodes.insert(one.node);
  return nodes;
}

std::string text_of(const Placements& placements) {
  std::string text;
  for (const auto& one : placements) {
    text += " " + std::to_string(one.slot) + "." + std::to_string(one.attempt) + "@" + one.node +
            "(" + one.domain + ")";
  }
  return text;
}

bool is_there(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

void Told::take(const runtime::WatchBatch& batch) {
  using Type = kube::WatchEvent::Type;
  Seen& seen = seen_[batch.kind];
  for (const auto& event : batch.events) {
    switch (event.type) {
      case Type::kInitStart:
        seen.incoming.clear();
        seen.version = 0;
        break;
      case Type::kInitApply:
        seen.incoming[name_of(event.object)] = event.object;
        break;
      case Type::kInitDone:
        seen.objects = std::move(seen.incoming);
        seen.incoming.clear();
        seen.is_whole = true;
        break;
      case Type::kApply:
        go_on(batch.kind, seen, event.object);
        seen.objects[name_of(event.object)] = event.object;
        break;
      case Type::kDelete:
        go_on(batch.kind, seen, event.object);
        seen.incoming.erase(name_of(event.object));
        seen.objects.erase(name_of(event.object));
    }
  }
}

/// What a watch tells is newer than all it has told, of any object of the kind; only a list may
/// show what was true earlier.
void Told::go_on(Kind kind, Seen& seen, const Json& object) {
  const std::uint64_t version =
      std::stoull(object["metadata"].value("resourceVersion", std::string("0")));
  if (version < seen.version && went_back_.empty()) {
    went_back_ = std::string("a watch of ") + api::info_of(kind).plural + " went back from " +
                 std::to_string(seen.version) + " to " + std::to_string(version);
  }
  seen.version = std::max(seen.version, version);
}

const Told::Objects& Told::objects(Kind kind) const {
  static const Objects kNone;
  const auto found = seen_.find(kind);
  return found == seen_.end() ? kNone : found->second.objects;
}

bool Told::knows_all() const {
  return std::all_of(kTellers.begin(), kTellers.end(), [&](Kind kind) {
    const auto found = seen_.find(kind);
    return found != seen_.end() && found->second.is_whole;
  });
}

/// Of the nodes that nobody before has told of, and that carry one of the labels at least.
void Told::add_labelled(const std::string& teller, const std::vector<Level>& levels,
                        Places& places) const {
  std::map<std::string, const Json*> nodes;
  std::vector<Level> used;
  for (const Level& level : levels) {
    bool is_used = false;
    for (const auto& [name, node] : objects(Kind::kNode)) {
      if (places.contains(name) || label_of(node, level.label).empty()) continue;
      nodes.emplace(name, &node);
      is_used = true;
    }
    if (is_used) used.push_back(level);
  }
  // Words for the finest level and the one above, unless a level has that name.
  std::vector<std::vector<std::string>> names;
  for (const Level& level : used) names.push_back({level.name, level.label});
  const auto lend = [&](std::size_t from_below, const char* word) {
    const bool is_taken =
        std::any_of(used.begin(), used.end(), [&](const Level& one) { return one.name == word; });
    if (used.size() > from_below && !is_taken) names[used.size() - 1 - from_below].push_back(word);
  };
  lend(0, "rack");
  lend(1, "block");
  for (const auto& [name, node] : nodes) {
    std::string path = teller;
    std::vector<Step>& steps = places[name];
    for (std::size_t i = 0; i < used.size(); ++i) {
      const std::string value = label_of(*node, used[i].label);
      // What is finer is a name within a place that is not known.
      if (value.empty()) break;
      path += "|" + used[i].label + "=" + value;
      steps.push_back({names[i], path, value});
    }
  }
}

/// A tree that names its members. Where one of them has two parents nothing of it is believed.
void Told::add_hyper_nodes(Places& places) const {
  std::map<std::string, std::string> parents;
  int finest = 1000;
  for (const auto& [name, object] : objects(Kind::kHyperNode)) {
    finest = std::min(finest, object["spec"].value("tier", 0));
    for (const Json& member : object["spec"]["members"]) {
      const std::string child =
          member.value("type", "") + " " + member["selector"]["exactMatch"].value("name", "");
      if (!parents.emplace(child, name).second) return;
    }
  }
  Places found;
  for (const auto& [node, object] : objects(Kind::kNode)) {
    if (places.contains(node) || !parents.contains("Node " + node)) continue;
    std::vector<std::string> chain;
    for (auto at = parents.find("Node " + node); at != parents.end();
         at = parents.find("HyperNode " + at->second)) {
      chain.insert(chain.begin(), at->second);
    }
    for (const std::string& name : chain) {
      const Json& spec = objects(Kind::kHyperNode).at(name)["spec"];
      std::vector<std::string> names{spec.value("tierName", "")};
      if (spec.value("tier", 0) == finest) names.push_back("rack");
      found[node].push_back({names, "hyper|" + name, name});
    }
  }
  places.merge(found);
}

/// The first that tells of a node counts: ours, Kueue's, KAI's, Volcano's, labels.
Told::Places Told::places() const {
  Places places;
  for (const auto kind : {Kind::kTopologyConfig, Kind::kKueueTopology, Kind::kKaiTopology}) {
    for (const auto& [name, object] : objects(kind)) {
      std::vector<Level> levels;
      for (const Json& level : object["spec"]["levels"]) {
        const std::string label = level.value("nodeLabel", "");
        levels.push_back({level.value("name", label.substr(label.rfind('/') + 1)), label});
      }
      add_labelled(std::string(api::info_of(kind).api_version) + name, levels, places);
    }
  }
  add_hyper_nodes(places);
  add_labelled("oci",
               {{"block", "oci.oraclecloud.com/host.network_block_id"},
                {"rack", "oci.oraclecloud.com/host.rack_id"}},
               places);
  return places;
}

std::string Told::judge(const runtime::Work& work) {
  if (!went_back_.empty()) return went_back_;
  for (const auto& action : work.plan.actions) {
    const auto* patch = std::get_if<core::PatchStatus>(&action);
    if (patch == nullptr) continue;
    const auto told = objects(Kind::kTrainingJob).find(work.key.name);
    if (told == objects(Kind::kTrainingJob).end()) return "a job is decided on that was not told";
    const api::TrainingJob before = api::read_training_job(told->second).first;
    std::string wrong = judge_claim(before, patch->status.placement);
    return wrong.empty() ? judge_places(before, patch->status.placement) : wrong;
  }
  return "";
}

/// A gang starts on no claim for checkpoints on which another job has its places.
std::string Told::judge_claim(const api::TrainingJob& before, const Placements& now) const {
  const auto claim_of = [](const api::TrainingJob& job) {
    const auto& training = job.spec.training;
    return training && training->checkpoint ? training->checkpoint->volume_claim_name : "";
  };
  const std::string claim = claim_of(before);
  if (claim.empty() || now.empty() || !before.status.placement.empty()) return "";
  for (const auto& [name, object] : objects(Kind::kTrainingJob)) {
    const api::TrainingJob job = api::read_training_job(object).first;
    const bool has_places =
        !job.status.placement.empty() && !job.status.finished() && !job.meta.deletion_time;
    if (name != before.meta.name && has_places && claim_of(job) == claim) {
      return "job " + before.meta.name + " starts on the claim of job " + name;
    }
  }
  return "";
}

std::string Told::judge_places(const api::TrainingJob& before, const Placements& now) {
  Placements fresh, stay;
  for (const auto& one : now) {
    const bool stays = std::any_of(
        before.status.placement.begin(), before.status.placement.end(),
        [&](const auto& old) { return old.slot == one.slot && old.attempt == one.attempt; });
    (stays ? stay : fresh).push_back(one);
  }
  const bool is_placed =
      std::none_of(fresh.begin(), fresh.end(), [](const auto& one) { return one.node.empty(); });
  // A gang that starts again keeps its places, whatever was told since they were found.
  const bool is_restart =
      stay.empty() && std::all_of(fresh.begin(), fresh.end(), [&](auto one) {
        return std::any_of(
            before.status.placement.begin(), before.status.placement.end(), [&](const auto& old) {
              return old.slot == one.slot && old.node == one.node && old.domain == one.domain;
            });
      });
  if (fresh.empty() || !is_placed || is_restart) return "";
  if (std::string wrong = judge_room(before, fresh); !wrong.empty()) return wrong;
  const bool asks =
      !before.spec.topology_required.empty() || !before.spec.topology_preferred.empty();
  if (asks && !knows_all()) {
    return "job " + before.meta.name + " is placed before all is told of where nodes stand";
  }
  const Places places = this->places();
  for (const auto& one : fresh) {
    const auto found = places.find(one.node);
    if (one.domain.empty() || found == places.end()) continue;
    std::string path;
    for (const Step& step : found->second) path += (path.empty() ? "" : "/") + step.value;
    // A node that lacks what others have stands alone below what is known of it.
    const std::string alone = (path.empty() ? "" : path + "/") + one.node;
    if (one.domain != path && one.domain != alone) {
      return "job " + before.meta.name + ": node " + one.node + " stands in " + path +
             ", status says " + one.domain;
    }
  }
  return before.spec.topology_required.empty() ? "" : judge_required(before, fresh, stay, places);
}

/// Unless a pod of that name is somebody else's, or it is beyond what the job may have, where a
/// place is what its pod makes it.
bool Told::holds(const api::TrainingJob& job, const api::SlotPlacement& place) const {
  const auto found = objects(Kind::kPod).find(api::pod_name(job, place.slot, place.attempt));
  const bool is_within_size = place.slot < job.spec.worker.max;
  if (found == objects(Kind::kPod).end()) return is_within_size;
  const auto pod = api::parse_pod(found->second);
  const bool is_its_own =
      pod && pod->meta.controller() != nullptr && pod->meta.controller()->uid == job.meta.uid;
  return is_its_own && (is_within_size || !pod->ended());
}

/// A place is its job's from the moment in which its status says so until it says so no more,
/// whatever becomes of the pod meanwhile. Of those who replace their workers one by one the status
/// alone does not tell which places they still use.
std::string Told::judge_room(const api::TrainingJob& before, const Placements& fresh) const {
  std::map<std::string, std::int64_t> millis;
  for (const auto& one : fresh) millis[one.node] += before.spec.worker.resources.cpu_millis;
  for (const auto& [name, object] : objects(Kind::kTrainingJob)) {
    const api::TrainingJob job = api::read_training_job(object).first;
    if (name == before.meta.name || job.spec.training || job.status.finished()) continue;
    std::set<std::pair<int, int>> seen;
    for (const auto& one : job.status.placement) {
      const bool is_first = seen.emplace(one.slot, one.attempt).second;
      if (is_first && millis.contains(one.node) && holds(job, one)) {
        millis[one.node] += job.spec.worker.resources.cpu_millis;
      }
    }
  }
  for (const auto& [name, asked] : millis) {
    const auto told = objects(Kind::kNode).find(name);
    const bool is_told = told != objects(Kind::kNode).end();
    const auto node = api::parse_node(is_told ? told->second : Json::object());
    if (!node || node->allocatable.at("cpu") < asked) {
      return "job " + before.meta.name + " is given places that are others':" + text_of(fresh);
    }
  }
  return "";
}

std::string Told::judge_required(const api::TrainingJob& before, const Placements& fresh,
                                 const Placements& stay, const Places& places) {
  const std::string& level = before.spec.topology_required;
  const auto domains_of = [&](const std::string& node) {
    std::set<std::string> domains{"node " + node};
    if (const auto found = places.find(node); found != places.end()) {
      for (const Step& step : found->second) {
        if (is_there(step.names, level)) domains.insert(step.domain);
      }
    }
    return domains;
  };
  const auto wrong = [&](const std::string& what) {
    return "job " + before.meta.name + " requires one " + level + ", and " + what + ":" +
           text_of(fresh) + " beside" + text_of(stay);
  };
  if (!stay.empty()) {
    for (const auto& one : fresh) {
      const auto domains = domains_of(one.node);
      const bool is_beside = std::any_of(stay.begin(), stay.end(), [&](const auto& other) {
        const auto there = domains_of(other.node);
        return std::any_of(domains.begin(), domains.end(),
                           [&](const auto& domain) { return there.contains(domain); });
      });
      if (!is_beside) return wrong("slot " + std::to_string(one.slot) + " joins elsewhere");
      ++judged_.joined;
    }
    return "";
  }
  std::optional<std::set<std::string>> common;
  const auto nodes = nodes_of(fresh);
  for (const auto& node : nodes) {
    auto domains = domains_of(node);
    if (common) std::erase_if(domains, [&](const auto& one) { return !common->contains(one); });
    common = std::move(domains);
  }
  if (common->empty()) return wrong("is spread");
  judged_.required += nodes.size() > 1 ? 1 : 0;
  return "";
}

std::string Told::missing(kube::ApiClient& server) const {
  for (const Kind kind : kTellers) {
    if (!seen_.contains(kind)) continue;
    const auto page = server.list(kind, {"", "", 0, ""});
    if (!page) return "listing failed: " + page.error().message();
    Objects there;
    for (const auto& item : page->items) there[name_of(item)] = item;
    for (const auto& [name, object] : there) {
      const auto told = objects(kind).find(name);
      const bool is_told = told != objects(kind).end();
      if (!is_told ||
          told->second["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
        return "an operator was never told of " + name;
      }
    }
    if (there.size() != objects(kind).size()) return "an operator believes in what is gone";
  }
  return "";
}

}  // namespace muster::sim
