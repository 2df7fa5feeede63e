// Objects of the cluster as the commands look at them: lenient, bounded, without exceptions. What
// is not there is empty. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace muster::cli {

/// The member at a path as text, of which no more than anybody reads; "" when it is none.
std::string text_at(const nlohmann::json& object, std::initializer_list<std::string_view> path);
/// The same as a time.
std::optional<WallTime> time_at(const nlohmann::json& object,
                                std::initializer_list<std::string_view> path);

/// How the container `worker` ended.
struct PodEnd {
  int exit_code = 0;
  std::string reason;  ///< the kubelet's: "Error", "OOMKilled"
  std::string message;
  std::optional<WallTime> time;
};

struct PodView {
  std::string name, namespace_name, uid, node, phase;
  int slot = -1, attempt = 0;
  std::string image, pull_policy;
  bool is_deleting = false;
  bool is_ready = false;
  bool has_started = false;  ///< its container runs or has run: it has a log
  /// Before the worker has started: that which runs before it now, or has failed; empty: none.
  std::string first_container;
  std::string trouble;  ///< "ImagePullBackOff", "Unschedulable"; empty: none
  std::string trouble_text;
  std::optional<PodEnd> end;
  std::optional<WallTime> created;

  std::vector<std::string> started;  ///< all containers that run or have run
  /// Whose log is asked for; empty: that of the worker, and until it starts first_container's.
  std::string chosen;

  bool has_log() const;
  /// The container whose log is the pod's.
  std::string log_container() const;
  bool is_over() const { return phase == "Succeeded" || phase == "Failed"; }
};

struct EventView {
  std::optional<WallTime> time;  ///< the last one of a series
  bool is_warning = false;
  std::string reason, note, about;  ///< about: "Pod digits-abcde-0-0"
  int count = 1;
};

PodView read_pod(const nlohmann::json& pod);
EventView read_event(const nlohmann::json& event);
/// The objects of a list, or the one object that is not a list.
std::vector<nlohmann::json> items_of(nlohmann::json answer);

/// By slot, then attempt, then name.
void sort_pods(std::vector<PodView>& pods);

/// "45s", "3m12s", "5h", "2d": as kubectl has it, without a space, so that rows can be cut at them.
std::string short_duration(std::chrono::seconds length);
/// How long ago that was, like this; "-" for never.
std::string age_text(std::optional<WallTime> since, WallTime now);
/// "1,234,567".
std::string grouped(std::int64_t number);

}  // namespace muster::cli
