// A loop's surroundings, and what a watch tells first: all objects that there are.
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

/// Of a loop that hears of nothing but what is posted.
inline runtime::LoopOptions loop_options(const Clock& clock, runtime::Mailbox& mailbox,
                                         runtime::Executor& executor) {
  runtime::LoopOptions made;
  made.clock = &clock;
  made.mailbox = &mailbox;
  made.executor = &executor;
  made.master_keys.current = std::string(64, '7');
  return made;
}

}  // namespace muster::test
