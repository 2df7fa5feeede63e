// Nodes: what they offer, and whether pods may come.
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/pod.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxResources = 1024;

/// One entry of status.allocatable. cpu and memory must be right; another resource that cannot be
/// read is left out, so that it is not offered to anyone.
Status read_amount(const std::string& name, const Json& value, const std::string& path,
                   std::map<std::string, std::int64_t>& out) {
  std::string text;
  if (value.is_string()) text = value.get<std::string>();
  if (value.is_number_integer()) text = value.dump();
  auto amount = parse_amount(name, text);
  if (amount) {
    out[name] = *amount;
    return {};
  }
  if (name != "cpu" && name != "memory") return {};
  return amount.error().with(path + "." + name);
}

Status read_spec(const Json& json, const std::string& path, Node& out) {
  JsonReader in(json, path);
  in.optional("unschedulable", out.unschedulable);
  read_list(in, "taints", 1024, [&](const Json& item, const std::string& at) {
    JsonReader taint(item, at);
    Node::Taint& entry = out.taints.emplace_back();
    taint.required("key", entry.key);
    taint.optional("value", entry.value);
    taint.required("effect", entry.effect);
    return taint.status();
  });
  return in.status();
}

Status read_status(const Json& json, const std::string& path, Node& out) {
  JsonReader in(json, path);
  read_object(in, "allocatable", [&](const Json& map, const std::string& at) -> Status {
    if (map.size() > kMaxResources)
      return Error(ErrorCode::kInvalid, at + ": has too many entries");
    for (const auto& [name, value] : map.items()) {
      MUSTER_RETURN_IF_ERROR(read_amount(name, value, at, out.allocatable));
    }
    return {};
  });
  read_list(in, "conditions", 256, [&](const Json& item, const std::string& at) {
    JsonReader condition(item, at);
    std::string type, status;
    condition.required("type", type);
    condition.required("status", status);
    if (type == "Ready") out.ready = status == "True";
    return condition.status();
  });
  return in.status();
}

}  // namespace

Result<Node> parse_node(const Json& json) {
  Node node;
  MUSTER_RETURN_IF_ERROR(read_meta(json, node.meta));
  JsonReader in(json, "");
  read_object(in, "spec", [&](const Json& object, const std::string& at) {
    return read_spec(object, at, node);
  });
  read_object(in, "status", [&](const Json& object, const std::string& at) {
    return read_status(object, at, node);
  });
  MUSTER_RETURN_IF_ERROR(in.status());
  node.pcie = pcie_of(node.meta);
  return node;
}

Json to_json(const Node& node) {
  Json json = object_json(Kind::kNode, node.meta);
  json["spec"] = Json::object();
  if (node.unschedulable) json["spec"]["unschedulable"] = true;
  for (const auto& taint : node.taints) {
    json["spec"]["taints"].push_back(
        Json{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}});
  }
  Json allocatable = Json::object();
  for (const auto& [name, amount] : node.allocatable) {
    allocatable[name] = std::to_string(amount) + (name == "cpu" ? "m" : "");
  }
  json["status"] =
      Json{{"allocatable", allocatable},
           {"capacity", allocatable},
           {"conditions",
            Json::array({Json{{"type", "Ready"}, {"status", node.ready ? "True" : "False"}}})}};
  return json;
}

}  // namespace muster::api
