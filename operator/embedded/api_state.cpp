#include "operator/embedded/api_state.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"

namespace muster::embedded {
namespace {

/// History is bounded in bytes too: 10,000 states of large objects would not fit.
constexpr std::size_t kMaxLogBytes = std::size_t{64} << 20;

std::size_t bytes_of(const LogEntry& entry) { return entry.now->text.size(); }

bool is_bound_and_alive(const Json& pod) {
  const Json* spec = member(pod, "spec");
  const Json* status = member(pod, "status");
  if (spec == nullptr || text_or_empty(member(*spec, "nodeName")).empty()) return false;
  const std::string phase =
      status == nullptr ? std::string() : text_or_empty(member(*status, "phase"));
  return phase != "Succeeded" && phase != "Failed";
}

std::int64_t integer_or(const Json* value, std::int64_t otherwise) {
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
}

/// Seconds a deleted pod may take: asked for, else its own, else Kubernetes' default. Only a pod
/// that a kubelet may still be running waits at all.
std::int64_t grace_of(const ResourceType& type, const Json& object, std::int64_t asked) {
  if (type.kind != api::Kind::kPod || !is_bound_and_alive(object)) return 0;
  if (asked >= 0) return asked;
  const Json* spec = member(object, "spec");
  return std::max<std::int64_t>(0, integer_or(member(*spec, "terminationGracePeriodSeconds"), 30));
}

}  // namespace

const Json& owner_references(const Json& object) {
  static const Json kNone = Json::array();
  const Json* metadata = member(object, "metadata");
  const Json* references = metadata == nullptr ? nullptr : member(*metadata, "ownerReferences");
  return references == nullptr || !references->is_array() ? kNone : *references;
}

bool has_finalizers(const Json& object) {
  const Json* metadata = member(object, "metadata");
  const Json* finalizers = metadata == nullptr ? nullptr : member(*metadata, "finalizers");
  return finalizers != nullptr && finalizers->is_array() && !finalizers->empty();
}

VersionPtr Table::find(const api::ObjectKey& key) const {
  const auto found = objects.find(key);
  return found == objects.end() ? nullptr : found->second;
}

std::optional<std::map<api::ObjectKey, VersionPtr>> Table::at(std::uint64_t revision) const {
  if (revision < compacted) return std::nullopt;
  auto then = objects;
  for (auto entry = log.rbegin(); entry != log.rend() && entry->revision > revision; ++entry) {
    if (entry->before == nullptr) {
      then.erase(entry->now->key);
    } else {
      then.insert_or_assign(entry->before->key, entry->before);
    }
  }
  return then;
}

ApiState::ApiState(const ApiServerOptions& options) : options_(options), rng_(options.seed) {
  MUSTER_CHECK_MSG(options_.clock != nullptr, "the embedded API server needs a clock");
  for (const ResourceType& type : resource_types()) {
    tables_.emplace_back();
    tables_.back().type = &type;
  }
}

Table& ApiState::table_of(const ResourceType& type) {
  return tables_[static_cast<std::size_t>(&type - resource_types().data())];
}

std::size_t ApiState::index_of(const Table& table) const {
  return static_cast<std::size_t>(&table - tables_.data());
}

std::string ApiState::new_uid() {
  static constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string uid;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) uid += '-';
    auto digit = rng_.below(16);
    if (i == 12) digit = 4;              // version: random
    if (i == 16) digit = 8 + digit % 4;  // variant of RFC 4122
    uid += kDigits[digit];
  }
  return uid;
}

std::string ApiState::new_suffix() {
  static constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (int i = 0; i < 5; ++i) suffix += kAlphabet[rng_.below(kAlphabet.size())];
  return suffix;
}

void ApiState::append(Table& table, LogEntry entry) {
  table.log_bytes += bytes_of(entry);
  table.log.push_back(std::move(entry));
  while (table.log.size() > options_.history ||
         (table.log.size() > 1 && table.log_bytes > kMaxLogBytes)) {
    table.log_bytes -= bytes_of(table.log.front());
    table.dropped = table.log.front().revision;
    table.compacted = std::max(table.compacted, table.dropped);
    table.log.pop_front();
  }
  changed.notify_all();
}

void ApiState::index_owners(const Table& table, const VersionPtr& before, const VersionPtr& now) {
  const auto each_uid = [](const VersionPtr& version, const auto& act) {
    if (version == nullptr) return;
    for (const Json& reference : owner_references(version->object)) {
      act(text_or_empty(member(reference, "uid")));
    }
  };
  const auto ref_of = [&](const VersionPtr& version) { return Ref{index_of(table), version->key}; };
  each_uid(before, [&](const std::string& uid) {
    const auto found = dependents_.find(uid);
    if (found == dependents_.end()) return;
    found->second.erase(ref_of(before));
    if (found->second.empty()) dependents_.erase(found);
  });
  each_uid(now, [&](const std::string& uid) { dependents_[uid].insert(ref_of(now)); });
  if (now != nullptr && !owner_references(now->object).empty()) suspects_.insert(ref_of(now));
}

VersionPtr ApiState::put(Table& table, const api::ObjectKey& key, Json object) {
  auto version = std::make_shared<Version>();
  version->key = key;
  version->revision = ++revision_;
  object["metadata"]["resourceVersion"] = std::to_string(version->revision);
  version->text = dump_json(object);
  version->object = std::move(object);
  const VersionPtr before = table.find(key);
  const VersionPtr now = std::move(version);
  table.objects.insert_or_assign(key, now);
  index_owners(table, before, now);
  append(table,
         {now->revision, before == nullptr ? LogEntry::Change::kAdded : LogEntry::Change::kModified,
          now, before});
  return now;
}

void ApiState::erase(Table& table, const api::ObjectKey& key) {
  const VersionPtr before = table.find(key);
  MUSTER_CHECK(before != nullptr);
  auto last = std::make_shared<Version>(*before);
  last->revision = ++revision_;
  last->object["metadata"]["resourceVersion"] = std::to_string(last->revision);
  last->text = dump_json(last->object);
  table.objects.erase(key);
  index_owners(table, before, nullptr);
  append(table, {last->revision, LogEntry::Change::kDeleted, last, before});
  const auto found = dependents_.find(metadata_text(before->object, "uid"));
  if (found != dependents_.end()) suspects_.insert(found->second.begin(), found->second.end());
}

bool ApiState::owner_is_gone(const Json& reference, const std::string& namespace_name) const {
  const std::string group_version = text_or_empty(member(reference, "apiVersion"));
  const std::string kind = text_or_empty(member(reference, "kind"));
  for (const Table& table : tables_) {
    if (table.type->group_version != group_version || table.type->kind_name != kind) continue;
    const VersionPtr owner = table.find({table.type->namespaced ? namespace_name : std::string(),
                                         text_or_empty(member(reference, "name"))});
    return owner == nullptr ||
           metadata_text(owner->object, "uid") != text_or_empty(member(reference, "uid"));
  }
  return false;  // Nothing is known about owners of foreign kinds.
}

void ApiState::check_owners(const Ref& ref) {
  Table& table = tables_[ref.table];
  const VersionPtr version = table.find(ref.key);
  if (version == nullptr) return;
  const Json& references = owner_references(version->object);
  Json left = Json::array();
  for (const Json& reference : references) {
    if (!owner_is_gone(reference, ref.key.namespace_name)) left.push_back(reference);
  }
  if (left.size() == references.size()) return;
  if (left.empty()) {
    // The references stay: they say whose the object was.
    const Json* metadata = member(version->object, "metadata");
    if (member(*metadata, "deletionTimestamp") == nullptr) {
      begin_delete(table, version, -1, Dependents::kDelete);
    }
    return;
  }
  Json object = version->object;
  object["metadata"]["ownerReferences"] = std::move(left);
  put(table, ref.key, std::move(object));
}

void ApiState::collect_garbage() {
  while (!suspects_.empty()) {
    const Ref ref = *suspects_.begin();
    suspects_.erase(suspects_.begin());
    check_owners(ref);
  }
}

void ApiState::orphan_dependents(const std::string& uid) {
  const auto found = dependents_.find(uid);
  if (found == dependents_.end()) return;
  const std::set<Ref> refs = found->second;
  for (const Ref& ref : refs) {
    Table& table = tables_[ref.table];
    const VersionPtr version = table.find(ref.key);
    MUSTER_CHECK(version != nullptr);
    Json left = Json::array();
    for (const Json& reference : owner_references(version->object)) {
      if (text_or_empty(member(reference, "uid")) != uid) left.push_back(reference);
    }
    Json object = version->object;
    if (left.empty()) {
      object["metadata"].erase("ownerReferences");
    } else {
      object["metadata"]["ownerReferences"] = std::move(left);
    }
    put(table, ref.key, std::move(object));
  }
}

VersionPtr ApiState::begin_delete(Table& table, const VersionPtr& version,
                                  std::int64_t grace_seconds, Dependents dependents) {
  if (dependents == Dependents::kOrphan) orphan_dependents(metadata_text(version->object, "uid"));
  const std::int64_t grace = grace_of(*table.type, version->object, grace_seconds);
  const Json* metadata = member(version->object, "metadata");
  const bool is_deleting = member(*metadata, "deletionTimestamp") != nullptr;
  const bool ends_now = grace == 0 && !has_finalizers(version->object);
  const bool is_hurried =
      !is_deleting || grace < integer_or(member(*metadata, "deletionGracePeriodSeconds"), 0);
  // A pod is always seen terminating before it is seen gone, however short its grace.
  if (ends_now && !(table.type->kind == api::Kind::kPod && is_hurried)) {
    erase(table, version->key);
    return version;
  }
  if (!is_hurried) return version;  // A delete may be hurried, never put off.
  Json object = version->object;
  Json& changed_metadata = object["metadata"];
  changed_metadata["deletionTimestamp"] = format_time(clock().wall_now() + seconds(grace));
  changed_metadata["deletionGracePeriodSeconds"] = grace;
  const std::int64_t generation = integer_or(member(*metadata, "generation"), 0);
  if (!is_deleting && generation > 0) changed_metadata["generation"] = generation + 1;
  VersionPtr terminating = put(table, version->key, std::move(object));
  if (ends_now) erase(table, version->key);
  return terminating;
}

void ApiState::compact() {
  for (Table& table : tables_) {
    if (!table.log.empty()) table.dropped = table.log.back().revision;
    table.log.clear();
    table.log_bytes = 0;
    table.compacted = revision_;
  }
  changed.notify_all();
}

}  // namespace muster::embedded
