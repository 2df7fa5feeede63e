#include "operator/core/node_terms.h"

#include <algorithm>

#include "operator/api/label_number.h"

namespace muster::core {
namespace {

/// Source: the operators of core/v1 NodeSelectorRequirement. An unknown one matches nothing.
bool holds(const api::NodeRequirement& requirement, const std::string* value) {
  const std::vector<std::string>& values = requirement.values;
  const auto is_listed = [&] {
    return std::find(values.begin(), values.end(), *value) != values.end();
  };
  if (requirement.op == "Exists") return value != nullptr;
  if (requirement.op == "DoesNotExist") return value == nullptr;
  if (requirement.op == "In") return value != nullptr && is_listed();
  if (requirement.op == "NotIn") return value == nullptr || !is_listed();
  if (value == nullptr || values.size() != 1) return false;
  const auto have = api::label_number(*value), bound = api::label_number(values.front());
  if (!have || !bound) return false;
  if (requirement.op == "Gt") return *have > *bound;
  return requirement.op == "Lt" && *have < *bound;
}

}  // namespace

FindLabel label_in(const std::map<std::string, std::string>& labels) {
  return [&labels](const std::string& label) {
    const auto found = labels.find(label);
    return found == labels.end() ? nullptr : &found->second;
  };
}

bool selects(const std::vector<api::NodeTerm>& terms, const std::string& name,
             const FindLabel& label) {
  const auto is_met = [&](const api::NodeTerm& term) {
    if (term.labels.empty() && term.fields.empty()) return false;
    return std::all_of(term.labels.begin(), term.labels.end(),
                       [&](const auto& one) { return holds(one, label(one.key)); }) &&
           std::all_of(term.fields.begin(), term.fields.end(), [&](const auto& one) {
             return holds(one, one.key == "metadata.name" ? &name : nullptr);
           });
  };
  return std::any_of(terms.begin(), terms.end(), is_met);
}

bool selects(const std::vector<api::NodeTerm>& terms, const api::Node& node) {
  return selects(terms, node.meta.name, label_in(node.meta.labels));
}

}  // namespace muster::core
