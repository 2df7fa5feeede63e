// An open watch of the embedded server. It holds no events of its own: it reads the history from
// where it stands, so a slow reader costs nothing, and one that history has overtaken is ended.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/embedded/api_state.h"
#include "operator/embedded/selector.h"

namespace muster::embedded {

struct StreamOptions {
  std::string namespace_name;  ///< empty = all
  Selector selector;
  std::uint64_t from = 0;  ///< revision after which events are sent
  bool bookmarks = false;
  seconds timeout{1800};
  std::deque<VersionPtr> initial;        ///< sent first, as ADDED
  bool tells_initial_end = false;        ///< by a bookmark of its own
  std::optional<Refusal> error_at_once;  ///< sent as the only event
};

/// Threads: next_line one, close any.
class ApiStream final : public kube::HttpStream {
 public:
  /// The caller holds the state's lock.
  ApiStream(std::shared_ptr<ApiState> state, Table& table, StreamOptions options);
  ~ApiStream() override;

  Result<std::optional<std::string>> next_line(milliseconds idle) override;
  void close() override;

 private:
  std::optional<std::string> next_event();
  std::optional<std::string> event_of(const LogEntry& entry) const;
  std::string bookmark(bool ends_initial = false);

  const std::shared_ptr<ApiState> state_;
  Table& table_;  // of *state_
  // Guarded by the state's lock.
  StreamOptions options_;
  const std::uint64_t generation_;
  const MonoTime ends_at_;
  MonoTime next_bookmark_;
  std::uint64_t position_;  ///< every event up to here was sent or does not match
  std::uint64_t bookmarked_ = 0;
  bool closed_ = false;
  bool ended_ = false;
};

}  // namespace muster::embedded
