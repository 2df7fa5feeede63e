#include "cli/describe_command.h"

#include <algorithm>

#include "cli/describe_text.h"
#include "cli/kube_query.h"
#include "cli/tell.h"

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

/// Into `taken`; where it cannot be had the page says so, and only an interruption is an error.
template <typename T>
Status take_or_note(Result<T> asked, T& taken, const char* what, Description& about) {
  if (asked) {
    taken = std::move(*asked);
  } else if (asked.error().code() == ErrorCode::kAborted) {
    return asked.error();
  } else {
    about.notes.push_back(what + asked.error().message());
  }
  return {};
}

Result<Description> describe(Kubectl& kubectl, const std::string& name,
                             const StartWords& start_words) {
  Description about;
  MUSTER_ASSIGN_OR_RETURN(JobView view, get_job(kubectl, name));
  about.job = std::move(view.job);
  MUSTER_RETURN_IF_ERROR(
      take_or_note(get_pods(kubectl, about.job), about.pods, "pods cannot be read: ", about));
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
  MUSTER_RETURN_IF_ERROR(take_or_note(start_words(kubectl, about.job), about.expected_start,
                                      "when it is expected to start is not known: ", about));
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
