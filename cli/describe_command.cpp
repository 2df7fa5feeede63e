#include "cli/describe_command.h"

#include <algorithm>

#include "cli/describe_text.h"
#include "cli/kube_query.h"

namespace muster::cli {
namespace {

/// Pods in trouble whose events are asked for; the others' say nothing new.
constexpr std::size_t kMostPods = 4;

void add_events(Kubectl& kubectl, const std::string& uid, Description& about) {
  auto events = get_events(kubectl, uid);
  if (!events) {
    about.has_events = false;
    const std::string note = "events cannot be read: " + events.error().message();
    const bool is_new =
        std::find(about.notes.begin(), about.notes.end(), note) == about.notes.end();
    if (is_new) about.notes.push_back(note);
    return;
  }
  about.events.insert(about.events.end(), events->begin(), events->end());
}

Result<Description> describe(Kubectl& kubectl, const std::string& name,
                             const StartWords& start_words) {
  Description about;
  MUSTER_ASSIGN_OR_RETURN(JobView view, get_job(kubectl, name));
  about.job = std::move(view.job);
  auto pods = get_pods(kubectl, about.job);
  if (pods) {
    about.pods = std::move(*pods);
  } else if (pods.error().code() == ErrorCode::kAborted) {
    return pods.error();
  } else {
    about.notes.push_back("pods cannot be read: " + pods.error().message());
  }
  add_events(kubectl, about.job.meta.uid, about);
  std::size_t asked = 0;
  for (const PodView& pod : about.pods) {
    const bool is_well = pod.phase == "Succeeded" || (pod.has_started && !pod.end);
    if (is_well || asked == kMostPods) continue;
    ++asked;
    add_events(kubectl, pod.uid, about);
  }
  std::stable_sort(about.events.begin(), about.events.end(),
                   [](const EventView& a, const EventView& b) { return a.time < b.time; });
  auto start = start_words(kubectl, about.job);
  if (start) {
    about.expected_start = std::move(*start);
  } else if (start.error().code() == ErrorCode::kAborted) {
    return start.error();
  } else {
    about.notes.push_back("when it is expected to start is not known: " + start.error().message());
  }
  return about;
}

}  // namespace

int describe_command(Kubectl& kubectl, const DescribeOptions& options, const Display& display,
                     const StartWords& start_words) {
  const auto about = describe(kubectl, options.job, start_words);
  if (!about) return tell_error(about.error());
  print(describe_text(*about, display, kubectl.clock().wall_now()));
  return 0;
}

}  // namespace muster::cli
