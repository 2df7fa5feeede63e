// spec.worker.affinity: which nodes workers may stand on, by more than equal labels.
#include "operator/api/fields.h"
#include "operator/api/label_number.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxNodeTerms = 16;
constexpr std::size_t kMaxExpressions = 16;
constexpr std::size_t kMaxNodeFields = 4;
constexpr std::size_t kMaxNodeValues = 64;
constexpr std::size_t kMaxLabelValueBytes = 63;
constexpr std::size_t kMaxNodeNameBytes = 253;

bool is_whole_number(const std::string& text) {
  constexpr std::size_t kMostCharacters = 19;
  return text.size() <= kMostCharacters && label_number(text);
}

/// Source: the operators of core/v1 NodeSelectorRequirement.
void check_values(JsonReader& in, const NodeRequirement& one) {
  const bool takes_none = one.op == "Exists" || one.op == "DoesNotExist";
  const bool compares = one.op == "Gt" || one.op == "Lt";
  if (takes_none && !one.values.empty()) {
    in.fail("values", "must be left out when operator is " + one.op);
  } else if (compares && (one.values.size() != 1 || !is_whole_number(one.values.front()))) {
    in.fail("values", "must be one whole number in quotes when operator is " + one.op);
  } else if (!takes_none && one.values.empty()) {
    in.fail("values", "is required when operator is " + one.op);
  }
}

Status read_expression(const Json& json, const std::string& path, NodeRequirement& out) {
  SpecReader in(json, path);
  required_name(in, "key", out.key, NameRule::kQualified);
  in.required("operator", out.op);
  optional_enum(in, "operator", out.op, {"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"});
  read_strings(in, "values", kMaxNodeValues, kMaxLabelValueBytes, out.values);
  in.no_other_fields();
  if (!in.status()) return in.status();
  const bool compares = out.op == "Gt" || out.op == "Lt";
  for (std::size_t i = 0; i < out.values.size() && !compares; ++i) {
    if (matches(NameRule::kLabelValue, out.values[i])) continue;
    in.fail("values[" + std::to_string(i) + "]",
            "must be a label value: at most 63 letters, digits, '-', '_' or '.'");
  }
  check_values(in, out);
  return in.status();
}

Status read_node_field(const Json& json, const std::string& path, NodeRequirement& out) {
  SpecReader in(json, path);
  in.required("key", out.key);
  optional_enum(in, "key", out.key, {"metadata.name"});
  in.required("operator", out.op);
  optional_enum(in, "operator", out.op, {"In", "NotIn"});
  read_strings(in, "values", 1, kMaxNodeNameBytes, out.values);
  in.no_other_fields();
  if (!in.status()) return in.status();
  if (out.values.size() != 1) {
    in.fail("values", "must be the name of one node; each further one takes a term of its own");
  } else if (!matches(NameRule::kSubdomain, out.values.front())) {
    in.fail("values[0]", "must be the name of one node: lower-case letters, digits, '-' and '.'");
  }
  return in.status();
}

Status read_node_term(const Json& json, const std::string& path, NodeTerm& out) {
  SpecReader in(json, path);
  read_list(in, "matchExpressions", kMaxExpressions, [&](const Json& item, const std::string& at) {
    return read_expression(item, at, out.labels.emplace_back());
  });
  read_list(in, "matchFields", kMaxNodeFields, [&](const Json& item, const std::string& at) {
    return read_node_field(item, at, out.fields.emplace_back());
  });
  in.no_other_fields();
  if (in.status() && out.labels.empty() && out.fields.empty()) {
    in.fail("", "must have matchExpressions or matchFields; a term without any selects no node");
  }
  return in.status();
}

/// `field` is known, and not what Muster's placement goes by.
void refuse(JsonReader& in, const char* field, const char* instead) {
  if (in.has(field)) in.fail(field, std::string("is not taken: ") + instead);
}

Status read_of_nodes(const Json& json, const std::string& path, std::vector<NodeTerm>& out) {
  SpecReader in(json, path);
  refuse(in, "preferredDuringSchedulingIgnoredDuringExecution",
         "the best nodes are chosen by how close together they are (spec.topology.preferred); what "
         "must be of a node is said by requiredDuringSchedulingIgnoredDuringExecution, or "
         "spec.worker.nodeSelector");
  const char* field = "requiredDuringSchedulingIgnoredDuringExecution";
  read_object(in, field, [&](const Json& required, const std::string& at) {
    SpecReader terms(required, at);
    read_list(terms, "nodeSelectorTerms", kMaxNodeTerms,
              [&](const Json& item, const std::string& term) {
                return read_node_term(item, term, out.emplace_back());
              });
    if (terms.status() && out.empty()) {
      terms.fail("nodeSelectorTerms", "is required, and must have one term at least");
    }
    terms.no_other_fields();
    return terms.status();
  });
  in.no_other_fields();
  return in.status();
}

}  // namespace

void read_node_affinity(JsonReader& in, std::vector<NodeTerm>& out) {
  read_object(in, "affinity", [&](const Json& affinity, const std::string& path) {
    SpecReader of(affinity, path);
    for (const char* field : {"podAffinity", "podAntiAffinity"}) {
      refuse(of, field,
             "a gang is placed as a whole; how close together its workers stand is said by "
             "spec.topology, and on which nodes by nodeAffinity or spec.worker.nodeSelector");
    }
    read_object(of, "nodeAffinity", [&](const Json& object, const std::string& at) {
      return read_of_nodes(object, at, out);
    });
    of.no_other_fields();
    return of.status();
  });
}

}  // namespace muster::api
