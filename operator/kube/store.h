// The informer cache of one kind: one writer (the loop), typed objects, atomic swap on a relist. An
// object stays at its address, whatever becomes of it, until it vanishes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/caught.h"
#include "operator/api/object_meta.h"
#include "operator/api/object_meta_json.h"
#include "operator/kube/watcher.h"

namespace muster::kube {

/// Threads: one. T has a member `meta`. Objects that cannot be parsed are skipped and counted; of
/// one that was there before that version what is known stays, also through a list: it has not
/// vanished.
template <typename T>
class Store {
 public:
  using Parse = std::function<Result<T>(const Json&)>;
  /// Marks what is known of an object as no longer true; whether that changed anything.
  using Outdate = bool (*)(T&);
  explicit Store(Parse parse, Outdate outdate = nullptr)
      : parse_(std::move(parse)), outdate_(outdate) {}

  /// Takes one event; returns the keys whose object appeared, changed or vanished.
  std::vector<api::ObjectKey> apply(const WatchEvent& event) {
    using Type = WatchEvent::Type;
    if (event.type == Type::kInitStart) {
      forget_list();
      return {};
    }
    if (event.type == Type::kInitDone) return swap();
    if (event.type == Type::kDelete) return forget_object(event.object);
    // A library may throw at what nobody has thought of: then this object alone cannot be read.
    auto object = run_apart([&] { return parse_(event.object); });
    if (!object) return skip(event, object.error());
    const api::ObjectKey key = object->meta.key();
    unreadable_.erase(key);
    if (event.type == Type::kInitApply) {
      take_listed(key, std::move(*object));
      return {};
    }
    objects_.insert_or_assign(key, std::move(*object));
    return {key};
  }

  bool synced() const { return synced_; }
  std::int64_t skipped() const { return skipped_; }
  /// Objects that cannot be parsed, with the reason: each once, until it can be again.
  std::vector<std::pair<api::ObjectKey, std::string>> take_news_of_unreadable() {
    return std::exchange(untold_, {});
  }
  const std::map<api::ObjectKey, T>& all() const { return objects_; }
  const T* find(const api::ObjectKey& key) const {
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : &found->second;
  }

 private:
  std::vector<api::ObjectKey> skip(const WatchEvent& event, const Error& why) {
    ++skipped_;
    const auto key = api::read_key(event.object);
    if (!key) return {};
    // Who makes one again and again is told of no oftener than somebody hears it.
    const bool has_room = unreadable_.size() < kUnreadableMost && untold_.size() < kUnreadableMost;
    if (has_room && unreadable_.insert(*key).second) untold_.emplace_back(*key, why.message());
    if (unreadable_.contains(*key)) listed_unreadable_.insert(*key);
    const auto known = objects_.find(*key);
    if (known == objects_.end()) return {};
    if (event.type == WatchEvent::Type::kInitApply) unchanged_.insert(*key);
    const bool is_outdated = outdate_ != nullptr && outdate_(known->second);
    return is_outdated ? std::vector<api::ObjectKey>{*key} : std::vector<api::ObjectKey>{};
  }

  /// It may have become one that cannot be parsed before it went.
  std::vector<api::ObjectKey> forget_object(const Json& object) {
    const auto key = api::read_key(object);
    if (!key) {
      ++skipped_;
      return {};
    }
    incoming_.erase(*key);
    unchanged_.erase(*key);
    objects_.erase(*key);
    unreadable_.erase(*key);
    return {*key};
  }

  void forget_list() {
    incoming_.clear();
    unchanged_.clear();
    listed_unreadable_.clear();
  }

  /// What a list brings once more, as most of it, is not held twice.
  void take_listed(const api::ObjectKey& key, T object) {
    const T* old = find(key);
    if (old != nullptr && *old == object) {
      incoming_.erase(key);
      unchanged_.insert(key);
    } else {
      unchanged_.erase(key);
      incoming_.insert_or_assign(key, std::move(object));
    }
  }

  std::vector<api::ObjectKey> swap() {
    std::set<api::ObjectKey> changed;
    for (const auto& [key, object] : objects_) {
      if (!incoming_.contains(key) && !unchanged_.contains(key)) changed.insert(key);
    }
    for (const auto& key : changed) objects_.erase(key);
    std::erase_if(unreadable_, [&](const auto& key) { return !listed_unreadable_.contains(key); });
    while (!incoming_.empty()) {
      auto node = incoming_.extract(incoming_.begin());
      changed.insert(node.key());
      const auto old = objects_.find(node.key());
      if (old == objects_.end()) {
        objects_.insert(std::move(node));  // as it is: a first list is most of all memory
      } else {
        old->second = std::move(node.mapped());
      }
    }
    forget_list();
    synced_ = true;
    return {changed.begin(), changed.end()};
  }

  /// Remembered as told.
  static constexpr std::size_t kUnreadableMost = 1024;

  Parse parse_;
  Outdate outdate_;
  std::map<api::ObjectKey, T> objects_;
  // Of the list that is coming:
  std::map<api::ObjectKey, T> incoming_;  ///< new, or another than before
  std::set<api::ObjectKey> unchanged_;
  std::set<api::ObjectKey> listed_unreadable_;  ///< of unreadable_
  bool synced_ = false;
  std::int64_t skipped_ = 0;
  std::set<api::ObjectKey> unreadable_;
  std::vector<std::pair<api::ObjectKey, std::string>> untold_;  ///< of unreadable_
};

}  // namespace muster::kube
