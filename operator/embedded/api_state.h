// What the embedded API server remembers: objects, their history, and who owns whom. Every change
// goes through put() and erase(), so that revisions, history and the garbage collector cannot
// disagree.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/embedded/api_server.h"
#include "operator/embedded/api_types.h"

namespace muster::embedded {

/// One change of one object.
struct LogEntry {
  enum class Change { kAdded, kModified, kDeleted };
  std::uint64_t revision = 0;
  Change change = Change::kAdded;
  VersionPtr now;     ///< after a deletion: the last state, with the deletion's revision
  VersionPtr before;  ///< nullptr for kAdded
};

/// Objects and history of one kind.
struct Table {
  const ResourceType* type = nullptr;
  std::map<api::ObjectKey, VersionPtr> objects;
  std::deque<LogEntry> log;     ///< ascending revisions
  std::size_t log_bytes = 0;    ///< of the texts held
  std::uint64_t compacted = 0;  ///< a new watch or page from before this is refused with 410
  std::uint64_t dropped = 0;    ///< last entry no longer in the log: who did not see it lost it

  VersionPtr find(const api::ObjectKey& key) const;
  /// The objects as they were at `revision`; nullopt when history no longer reaches back so far.
  std::optional<std::map<api::ObjectKey, VersionPtr>> at(std::uint64_t revision) const;
};

/// Guarded by `mutex`: whoever calls a function or reads a member holds it. Shared by the server
/// and its streams, which may outlive the server.
class ApiState {
 public:
  explicit ApiState(const ApiServerOptions& options);

  std::mutex mutex;
  std::condition_variable changed;  ///< a log grew, or streams must end

  const ApiServerOptions& options() const { return options_; }
  const Clock& clock() const { return *options_.clock; }
  Table& table_of(const ResourceType& type);
  std::uint64_t revision() const { return revision_; }

  std::string new_uid();
  /// Five characters as generateName appends them.
  std::string new_suffix();

  /// Stores a new state of an object; sets metadata.resourceVersion.
  VersionPtr put(Table& table, const api::ObjectKey& key, Json object);
  /// Removes the object for good and remembers its uid for collect_garbage().
  void erase(Table& table, const api::ObjectKey& key);
  /// Deletes what lost its last owner, and frees from their reference what has others left. Call
  /// at the end of every request.
  void collect_garbage();

  enum class Dependents { kDelete, kOrphan };
  /// A delete as asked for: graceful for bound pods, held back by finalizers. `grace_seconds`
  /// negative: the object's own. Returns the object's last state.
  VersionPtr begin_delete(Table& table, const VersionPtr& version, std::int64_t grace_seconds,
                          Dependents dependents);

  void compact();

  /// Raised by cut_streams(); a stream of another generation is dead.
  std::uint64_t stream_generation = 0;
  int open_streams = 0;
  std::map<std::string, std::int64_t> request_counts;

 private:
  struct Ref {
    std::size_t table;
    api::ObjectKey key;
    auto operator<=>(const Ref&) const = default;
  };
  std::size_t index_of(const Table& table) const;
  void append(Table& table, LogEntry entry);
  void index_owners(const Table& table, const VersionPtr& before, const VersionPtr& now);
  bool owner_is_gone(const Json& reference, const std::string& namespace_name) const;
  void check_owners(const Ref& ref);
  void orphan_dependents(const std::string& uid);

  ApiServerOptions options_;
  Rng rng_;
  std::vector<Table> tables_;
  std::uint64_t revision_ = 1;
  std::map<std::string, std::set<Ref>> dependents_;  ///< owner's uid -> who names it
  std::set<Ref> suspects_;                           ///< objects whose owners may be gone
};

/// metadata.ownerReferences, or an empty array.
const Json& owner_references(const Json& object);
bool has_finalizers(const Json& object);

}  // namespace muster::embedded
