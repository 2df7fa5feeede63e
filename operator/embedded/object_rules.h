// What the embedded API server demands of an object before it is stored.
#pragma once

#include <optional>
#include <string>

#include "operator/embedded/api_types.h"

namespace muster::embedded {

/// 422 naming kind, object and field, as a real server words it.
Refusal invalid(const ResourceType& type, const std::string& name, const std::string& what);

/// apiVersion and kind are absent (then filled in) or right, and metadata is an object.
std::optional<Refusal> check_type(const ResourceType& type, Json& object);
/// Name, labels, annotations, ownerReferences and finalizers, by type and bounds.
std::optional<Refusal> check_metadata(const ResourceType& type, const Json& object);
/// What the kind itself demands: a TrainingJob must parse, a pod needs an object for a spec.
std::optional<Refusal> check_kind(const ResourceType& type, const Json& object);
/// Whether the kind lets `before` become `after`: most of a pod's spec is fixed, and so are some
/// fields of a TrainingJob.
std::optional<Refusal> check_change(const ResourceType& type, const Json& before,
                                    const Json& after);
bool is_dns_label(const std::string& text);

}  // namespace muster::embedded
