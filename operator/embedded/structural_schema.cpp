#include "operator/embedded/structural_schema.h"

#include <vector>

#include "operator/embedded/api_types.h"

namespace muster::embedded {
namespace {

bool is_true(const Json* value) {
  return value != nullptr && value->is_boolean() && *value == true;
}

/// Drops what the schema does not name; recursion is bounded by the depth of parsed JSON.
void prune(const Json& schema, Json& value, bool is_root) {
  if (value.is_array()) {
    if (const Json* items = member(schema, "items")) {
      for (Json& item : value) prune(*items, item, false);
    }
    return;
  }
  if (!value.is_object() || is_true(member(schema, "x-kubernetes-preserve-unknown-fields"))) return;
  const Json* properties = member(schema, "properties");
  const Json* additional = member(schema, "additionalProperties");
  std::vector<std::string> unknown;
  for (auto& [name, field] : value.items()) {
    if (is_root && (name == "apiVersion" || name == "kind" || name == "metadata")) continue;
    const Json* known = properties == nullptr ? nullptr : member(*properties, name.c_str());
    if (known != nullptr) {
      prune(*known, field, false);
    } else if (additional != nullptr && additional->is_object()) {
      prune(*additional, field, false);
    } else if (!is_true(additional)) {
      unknown.push_back(name);
    }
  }
  for (const auto& name : unknown) value.erase(name);
}

/// Defaults stand in for absent fields, and for null where null is no value.
void fill_defaults(const Json& schema, Json& value) {
  if (value.is_array()) {
    if (const Json* items = member(schema, "items")) {
      for (Json& item : value) fill_defaults(*items, item);
    }
    return;
  }
  if (!value.is_object()) return;
  if (const Json* properties = member(schema, "properties")) {
    for (const auto& [name, property] : properties->items()) {
      const Json* otherwise = member(property, "default");
      const Json* given = member(value, name.c_str());
      const bool lacks =
          given == nullptr || (given->is_null() && !is_true(member(property, "nullable")));
      if (lacks && otherwise != nullptr) value[name] = *otherwise;
      if (const auto field = value.find(name); field != value.end())
        fill_defaults(property, *field);
    }
  }
  const Json* additional = member(schema, "additionalProperties");
  if (additional == nullptr || !additional->is_object()) return;
  for (auto& [name, field] : value.items()) fill_defaults(*additional, field);
}

}  // namespace

void apply_schema(const Json& schema, Json& object) {
  prune(schema, object, true);
  fill_defaults(schema, object);
}

}  // namespace muster::embedded
