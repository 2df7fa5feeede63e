// Reading objects that others wrote, as a node does: what is missing or of another type is absent.
#pragma once

#include <string>

#include "common/json.h"

namespace muster::embedded {

/// The member `name`; null where `object` is null, no object, or has none.
inline const Json* member(const Json* object, const std::string& name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() ? nullptr : &*found;
}

/// The text; empty where `value` is null or no string.
inline std::string text(const Json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

}  // namespace muster::embedded
