// The verbs of the embedded API server on its state. The caller holds the state's lock.
#pragma once

#include <optional>
#include <string>

#include "operator/embedded/api_state.h"
#include "operator/embedded/api_types.h"

namespace muster::embedded {

Outcome<VersionPtr> create_object(ApiState& state, const Target& target, Json object);
Outcome<VersionPtr> get_object(ApiState& state, const Target& target);
/// The whole list, or one page of it, as JSON text.
Outcome<std::string> list_objects(ApiState& state, const Target& target);
/// PUT of the main resource or of the status.
Outcome<VersionPtr> update_object(ApiState& state, const Target& target, Json proposed);
/// RFC 7386 on the main resource or on the status.
Outcome<VersionPtr> patch_object(ApiState& state, const Target& target, const Json& patch);
/// `options`: a DeleteOptions or null. Returns the last state; the object may still be there.
Outcome<VersionPtr> delete_object(ApiState& state, const Target& target, const Json& options);
/// POST of a Binding.
std::optional<Refusal> bind_pod(ApiState& state, const Target& target, const Json& binding);

/// A parameter that must be a whole number from 0; `otherwise` when absent.
Outcome<std::int64_t> number_parameter(const Target& target, const std::string& name,
                                       std::int64_t otherwise);

}  // namespace muster::embedded
