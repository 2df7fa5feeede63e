#include "operator/runtime/topology_book.h"

#include <algorithm>
#include <utility>

#include "common/list_text.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMaxNameBytes = 253;

Result<TopologyRecord> parse_topology_record(const Json& json) {
  TopologyRecord record;
  JsonReader in(json, "");
  if (const Json* meta = in.object("metadata")) {
    JsonReader name(*meta, "metadata");
    name.required("name", record.meta.name, kMaxNameBytes);
    in.take(name.status());
  }
  MUSTER_RETURN_IF_ERROR(in.status());
  if (record.meta.name.empty()) return Error(ErrorCode::kInvalid, "metadata.name: is required");
  // Who touched it last, and when, is no news about the network.
  for (const char* field : {"apiVersion", "kind", "spec"}) {
    if (json.contains(field)) record.object[field] = json[field];
  }
  record.object["metadata"] = Json{{"name", record.meta.name}};
  return record;
}

void append(const kube::Store<TopologyRecord>& store, std::vector<Json>& out) {
  for (const auto& [key, record] : store.all()) out.push_back(record.object);
}

}  // namespace

bool TopologyBook::knows(api::Kind kind) {
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

TopologyBook::TopologyBook(MonoTime now) : wait_(now) {
  for (const api::Kind kind : kKinds) stores_.try_emplace(kind, parse_topology_record);
}

bool TopologyBook::take(const kube::WatchEvent& event, api::Kind kind) {
  const bool was_synced = synced();
  const bool changed = !stores_.at(kind).apply(event).empty();
  if (changed) reader_.reset();
  is_old_ = is_old_ || changed;
  return changed || was_synced != synced();
}

bool TopologyBook::synced() const {
  return std::all_of(stores_.begin(), stores_.end(),
                     [](const auto& one) { return one.second.synced(); });
}

std::string TopologyBook::why_unknown(MonoTime now) const {
  if (synced() || !wait_.is_over(now)) return "";
  std::vector<std::string> unlisted;
  for (const auto& [kind, store] : stores_) {
    const api::KindInfo& info = api::info_of(kind);
    if (store.synced()) continue;
    unlisted.push_back(std::string(info.plural) + " (" + info.api_version + ")");
  }
  return "spec.topology: the operator could not list " + list_text(unlisted, unlisted.size()) +
         " until now, and cannot tell where nodes stand without an answer; its log says which "
         "error "
         "the API server answers with";
}

const std::shared_ptr<const core::Topology>& TopologyBook::topology(
    const core::KeptInventory& nodes) {
  if (!std::exchange(is_old_, false)) return topology_;
  if (!reader_) {
    core::TopologyObjects objects;
    append(stores_.at(api::Kind::kTopologyConfig), objects.configs);
    append(stores_.at(api::Kind::kKueueTopology), objects.peers);
    append(stores_.at(api::Kind::kKaiTopology), objects.peers);
    append(stores_.at(api::Kind::kHyperNode), objects.hyper_nodes);
    reader_.emplace(objects);
  }
  auto read = reader_->read(nodes.nodes());
  if (!read) {
    topology_ = nullptr;
  } else if (!topology_ || *topology_ != *read) {
    topology_ = std::make_shared<const core::Topology>(std::move(read).value());
  }
  return topology_;
}

}  // namespace muster::runtime
