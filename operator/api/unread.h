// What nobody here reads of the objects that are watched. Of a pod that is most of it, and an
// operator is told of each pod five times before it runs: nothing is built of what is named here.
#pragma once

#include <array>
#include <span>

#include "common/json.h"
#include "operator/api/object_meta.h"

namespace muster::api {

/// Who wrote what is half of many an object of any kind.
inline constexpr LeftOut kManagedFields{"metadata", "managedFields"};
inline constexpr std::array kUnreadOfAny{kManagedFields};

/// What the kind's parser passes over, metadata.managedFields among it, and labels and annotations
/// that it would read and nobody asks for. Lives for ever.
std::span<const LeftOut> unread_of(Kind kind);

}  // namespace muster::api
