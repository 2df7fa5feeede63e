// What a structural schema does to an object before it is stored: fields it does not name are
// dropped, absent ones get their defaults. Validation is not here.
// Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions", pruning and
// defaulting.
#pragma once

#include "common/json.h"

namespace muster::embedded {

/// `schema`: openAPIV3Schema of a version; `object`: a whole custom resource, whose apiVersion,
/// kind and metadata stay as they are.
void apply_schema(const Json& schema, Json& object);

}  // namespace muster::embedded
