#include "cli/kube_objects.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "common/contract.h"
#include "common/json.h"
#include "operator/api/waiting.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMaxText = 32'768;

int number_at(const Json& object, std::initializer_list<std::string_view> path, int fallback) {
  const Json& found = member(object, path);
  if (!found.is_number_integer()) return fallback;
  const auto value = found.get<std::int64_t>();
  return value >= -2'000'000'000 && value <= 2'000'000'000 ? static_cast<int>(value) : fallback;
}

int label_number(const Json& pod, std::string_view label, int fallback) {
  const std::string text = text_at(pod, {"metadata", "labels", label});
  int value = fallback;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

const Json& worker_of(const Json& containers) {
  static const Json kNone;
  if (!containers.is_array()) return kNone;
  for (const Json& container : containers) {
    if (text_at(container, {"name"}) == contract::kContainerName) return container;
  }
  return containers.empty() ? kNone : containers.front();
}

void read_waiting(const Json& container, const std::string& head, PodView& view) {
  const Json& waiting = member(container, {"state", "waiting"});
  const std::string reason = text_at(waiting, {"reason"});
  if (!api::says_why(reason) || !view.trouble.empty()) return;
  view.trouble = reason;
  view.trouble_text = head + text_at(waiting, {"message"});
}

/// Whether that container of the pod stays beside the worker: a sidecar, whoever put it there.
bool stays(const Json& pod, const std::string& name) {
  const Json& containers = member(pod, {"spec", "initContainers"});
  return containers.is_array() &&
         std::any_of(containers.begin(), containers.end(), [&](const Json& container) {
           return text_at(container, {"name"}) == name &&
                  text_at(container, {"restartPolicy"}) == "Always";
         });
}

/// Of those that start before the worker, in kubectl's words.
void read_first(const Json& pod, PodView& view) {
  const Json& containers = member(pod, {"status", "initContainerStatuses"});
  if (!containers.is_array()) return;
  for (const Json& container : containers) {
    const std::string name = text_at(container, {"name"});
    const std::string head = "init container " + name + ": ";
    read_waiting(container, head, view);
    const bool runs = member(container, {"state", "running"}).is_object();
    if (stays(pod, name)) {
      const bool is_awaited = runs && member(container, {"started"}) != true;
      if (is_awaited) view.first_container = name;
      continue;
    }
    if (runs) view.first_container = name;
    const Json& ended = member(container, {"state", "terminated"});
    const int code = number_at(ended, {"exitCode"}, 0);
    if (code == 0 || !view.trouble.empty()) continue;
    view.first_container = name;
    const std::string message = text_at(ended, {"message"});
    view.trouble = "Init:Error";
    view.trouble_text =
        head + "exit code " + std::to_string(code) + (message.empty() ? "" : " " + message);
  }
}

void read_started(const Json& containers, PodView& view) {
  if (!containers.is_array()) return;
  for (const Json& container : containers) {
    const bool has_run = member(container, {"state", "running"}).is_object() ||
                         member(container, {"state", "terminated"}).is_object() ||
                         member(container, {"lastState", "terminated"}).is_object();
    if (has_run) view.started.push_back(text_at(container, {"name"}));
  }
}

void read_state(const Json& pod, PodView& view) {
  const Json& status = member(pod, {"status"});
  const Json& container = worker_of(member(status, {"containerStatuses"}));
  const Json& ended = member(container, {"state", "terminated"});
  view.has_started = member(container, {"state", "running"}).is_object() || ended.is_object();
  if (ended.is_object()) {
    view.end = PodEnd{number_at(ended, {"exitCode"}, 0), text_at(ended, {"reason"}),
                      text_at(ended, {"message"}), time_at(ended, {"finishedAt"})};
  }
  read_waiting(container, "", view);
  if (!view.has_started) read_first(pod, view);
  read_started(member(status, {"initContainerStatuses"}), view);
  read_started(member(status, {"containerStatuses"}), view);
}

void read_conditions(const Json& conditions, PodView& view) {
  if (!conditions.is_array()) return;
  for (const Json& condition : conditions) {
    const std::string type = text_at(condition, {"type"});
    const bool is_true = text_at(condition, {"status"}) == "True";
    if (type == "Ready") view.is_ready = is_true;
    if (type == "PodScheduled" && !is_true && view.trouble.empty()) {
      view.trouble = text_at(condition, {"reason"});
      view.trouble_text = text_at(condition, {"message"});
    }
  }
}

}  // namespace

std::string text_at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json& found = member(object, path);
  return found.is_string() ? found.get_ref<const std::string&>().substr(0, kMaxText)
                           : std::string();
}

std::optional<WallTime> time_at(const Json& object, std::initializer_list<std::string_view> path) {
  const std::string text = text_at(object, path);
  if (text.empty()) return std::nullopt;
  const auto time = parse_time(text);
  return time ? std::optional(*time) : std::nullopt;
}

bool PodView::has_log() const {
  if (chosen.empty()) return has_started || !first_container.empty();
  return std::find(started.begin(), started.end(), chosen) != started.end();
}

std::string PodView::log_container() const {
  if (!chosen.empty()) return chosen;
  const bool is_first = !has_started && !first_container.empty();
  return is_first ? first_container : std::string(contract::kContainerName);
}

PodView read_pod(const Json& pod) {
  PodView view;
  view.name = text_at(pod, {"metadata", "name"});
  view.namespace_name = text_at(pod, {"metadata", "namespace"});
  view.uid = text_at(pod, {"metadata", "uid"});
  view.created = time_at(pod, {"metadata", "creationTimestamp"});
  view.is_deleting = member(pod, {"metadata", "deletionTimestamp"}).is_string();
  view.slot = label_number(pod, contract::kLabelSlot, -1);
  view.attempt = label_number(pod, contract::kLabelAttempt, 0);
  view.node = text_at(pod, {"spec", "nodeName"});
  view.phase = text_at(pod, {"status", "phase"});
  const Json& container = worker_of(member(pod, {"spec", "containers"}));
  view.image = text_at(container, {"image"});
  view.pull_policy = text_at(container, {"imagePullPolicy"});
  read_state(pod, view);
  if (!view.is_over()) read_conditions(member(pod, {"status", "conditions"}), view);
  if (view.trouble.empty() && !view.end) {
    // Of the pod as a whole: "Evicted", "NodeLost", "UnexpectedAdmissionError".
    view.trouble = text_at(pod, {"status", "reason"});
    view.trouble_text = text_at(pod, {"status", "message"});
  }
  return view;
}

EventView read_event(const Json& event) {
  EventView view;
  // lastTimestamp has whole seconds, and who writes through events.k8s.io sets none; others set
  // nothing else. An absent time is before every other.
  view.time = std::max({time_at(event, {"series", "lastObservedTime"}),
                        time_at(event, {"lastTimestamp"}), time_at(event, {"eventTime"})});
  if (!view.time) view.time = time_at(event, {"metadata", "creationTimestamp"});
  view.is_warning = text_at(event, {"type"}) == "Warning";
  view.reason = text_at(event, {"reason"});
  view.note = text_at(event, {"message"});
  view.about =
      text_at(event, {"involvedObject", "kind"}) + " " + text_at(event, {"involvedObject", "name"});
  view.count =
      std::max({1, number_at(event, {"series", "count"}, 1), number_at(event, {"count"}, 1)});
  return view;
}

std::vector<Json> items_of(Json answer) {
  if (const auto found = answer.is_object() ? answer.find("items") : answer.end();
      found != answer.end() && found->is_array()) {
    return std::move(found->get_ref<Json::array_t&>());
  }
  std::vector<Json> one;
  if (answer.is_object()) one.push_back(std::move(answer));
  return one;
}

void sort_pods(std::vector<PodView>& pods) {
  std::sort(pods.begin(), pods.end(), [](const PodView& a, const PodView& b) {
    return std::tie(a.slot, a.attempt, a.name) < std::tie(b.slot, b.attempt, b.name);
  });
}

std::string short_duration(seconds length) {
  const std::int64_t s = std::max<std::int64_t>(0, length.count());
  const std::int64_t minutes = s / 60, hours = s / 3600, days = s / 86'400;
  const auto two = [](std::int64_t large, const char* unit, std::int64_t small,
                      const char* small_unit) {
    std::string text = std::to_string(large) + unit;
    return small == 0 ? text : text + std::to_string(small) + small_unit;
  };
  if (s < 120) return std::to_string(s) + "s";
  if (minutes < 10) return two(minutes, "m", s % 60, "s");
  if (hours < 3) return std::to_string(minutes) + "m";
  if (hours < 8) return two(hours, "h", minutes % 60, "m");
  if (hours < 48) return std::to_string(hours) + "h";
  if (days < 8) return two(days, "d", hours % 24, "h");
  return std::to_string(days) + "d";
}

std::string age_text(std::optional<WallTime> since, WallTime now) {
  return since ? short_duration(std::chrono::duration_cast<seconds>(now - *since)) : "-";
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > 3 + sign; at -= 3) text.insert(at - 3, ",");
  return text;
}

}  // namespace muster::cli
