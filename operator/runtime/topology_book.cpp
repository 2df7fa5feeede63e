#include "operator/runtime/topology_book.h"

#include <algorithm>
#include <utility>

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

TopologyBook::TopologyBook()
    : configs_(parse_topology_record),
      kueue_(parse_topology_record),
      kai_(parse_topology_record),
      hyper_nodes_(parse_topology_record) {}

kube::Store<TopologyRecord>& TopologyBook::store_of(api::Kind kind) {
  if (kind == api::Kind::kTopologyConfig) return configs_;
  if (kind == api::Kind::kKueueTopology) return kueue_;
  return kind == api::Kind::kKaiTopology ? kai_ : hyper_nodes_;
}

bool TopologyBook::take(const kube::WatchEvent& event, api::Kind kind) {
  const bool was_synced = synced();
  const bool changed = !store_of(kind).apply(event).empty();
  is_old_ = is_old_ || changed;
  return changed || was_synced != synced();
}

bool TopologyBook::synced() const {
  return configs_.synced() && kueue_.synced() && kai_.synced() && hyper_nodes_.synced();
}

const std::shared_ptr<const core::Topology>& TopologyBook::topology(
    const core::KeptInventory& nodes) {
  if (!std::exchange(is_old_, false)) return topology_;
  core::TopologyObjects objects;
  append(configs_, objects.configs);
  append(kueue_, objects.peers);
  append(kai_, objects.peers);
  append(hyper_nodes_, objects.hyper_nodes);
  auto read = core::read_topology(nodes.nodes(), objects);
  if (!read) {
    topology_ = nullptr;
  } else if (!topology_ || *topology_ != *read) {
    topology_ = std::make_shared<const core::Topology>(std::move(read).value());
  }
  return topology_;
}

}  // namespace muster::runtime
