// The informer cache of one kind: one writer (the loop), typed objects, atomic swap on a relist. An
// object stays at its address, whatever becomes of it, until it vanishes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "operator/api/object_meta.h"
#include "operator/kube/watcher.h"

namespace muster::kube {

/// Threads: one. T has a member `meta`. Objects that cannot be parsed are skipped and counted.
template <typename T>
class Store {
 public:
  using Parse = std::function<Result<T>(const Json&)>;
  explicit Store(Parse parse) : parse_(std::move(parse)) {}

  /// Takes one event; returns the keys whose object appeared, changed or vanished.
  std::vector<api::ObjectKey> apply(const WatchEvent& event) {
    using Type = WatchEvent::Type;
    if (event.type == Type::kInitStart) {
      incoming_.clear();
      return {};
    }
    if (event.type == Type::kInitDone) return swap();
    auto object = parse_(event.object);
    if (!object) {
      ++skipped_;
      return {};
    }
    const api::ObjectKey key = object->meta.key();
    if (event.type == Type::kInitApply) {
      incoming_.insert_or_assign(key, std::move(*object));
      return {};
    }
    if (event.type == Type::kDelete) {
      objects_.erase(key);
    } else {
      objects_.insert_or_assign(key, std::move(*object));
    }
    return {key};
  }

  bool synced() const { return synced_; }
  std::int64_t skipped() const { return skipped_; }
  const std::map<api::ObjectKey, T>& all() const { return objects_; }
  const T* find(const api::ObjectKey& key) const {
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<api::ObjectKey> swap() {
    std::set<api::ObjectKey> changed;
    for (const auto& [key, object] : objects_) {
      if (!incoming_.contains(key)) changed.insert(key);
    }
    for (const auto& key : changed) objects_.erase(key);
    for (auto& [key, object] : incoming_) {
      const auto [old, is_new] = objects_.try_emplace(key, std::move(object));
      if (is_new || !(old->second == object)) changed.insert(key);
      if (!is_new) old->second = std::move(object);
    }
    incoming_.clear();
    synced_ = true;
    return {changed.begin(), changed.end()};
  }

  Parse parse_;
  std::map<api::ObjectKey, T> objects_, incoming_;
  bool synced_ = false;
  std::int64_t skipped_ = 0;
};

}  // namespace muster::kube
