// What a watch tells first: all objects that there are.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "operator/runtime/loop.h"

namespace muster::test {

inline runtime::WatchBatch listed(api::Kind kind, std::vector<Json> objects) {
  using Type = kube::WatchEvent::Type;
  runtime::WatchBatch batch{kind, {{Type::kInitStart, nullptr}}};
  for (Json& object : objects) batch.events.push_back({Type::kInitApply, std::move(object)});
  batch.events.push_back({Type::kInitDone, nullptr});
  return batch;
}

/// Of their texts.
inline runtime::WatchBatch listed(api::Kind kind, const std::vector<std::string>& texts) {
  std::vector<Json> objects;
  for (const std::string& text : texts) objects.push_back(*parse_json(text));
  return listed(kind, std::move(objects));
}

}  // namespace muster::test
