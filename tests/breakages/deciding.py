"""Breakages of what the operator sees, decides and writes: watcher, store, reconcile, loop, applier, election."""
from breakage import Breakage

WATCHER = "operator/kube/watcher.cpp"
STORE = "operator/kube/store.h"
GUARDS = "operator/kube/transport_guards.cpp"
APPLIER = "operator/runtime/applier.cpp"
LOOP = "operator/runtime/loop.cpp"
PASS = "operator/runtime/loop_schedule.cpp"
RECONCILE = "operator/core/reconcile.cpp"
END = "operator/core/end_policy.cpp"
HALF = "operator/core/half_bound.cpp"
EDIT = "operator/core/status_edit.cpp"
ELECTION = "operator/core/leader_election.cpp"
PUMP = "operator/runtime/watch_pump.cpp"
METRICS_JOBS = "operator/runtime/metrics_jobs.cpp"
BOOK = "operator/runtime/topology_book.cpp"
GANG_PLACE = "operator/core/gang_place.cpp"
REPLACE = "operator/core/replace_policy.cpp"

BREAKAGES = [
    # What is seen
    Breakage("versions are compared as text", WATCHER, "return a && b && *a < *b;", "return left < right;", "test_kube"),
    Breakage("a list that turns in a circle goes on", WATCHER,
             "const bool repeats = !is_last && page->continue_token == continue_token_;", "const bool repeats = false;", "test_kube"),
    Breakage("a watch that is told 410 in a word alone resumes where it was", WATCHER,
             "reason == \"Expired\" || reason == \"Gone\"", "reason == \"Gone\"", "test_kube"),
    Breakage("a list whose token has expired goes on with it", WATCHER,
             "page.error().code() == ErrorCode::kGone || page.error().code() == ErrorCode::kInvalid",
             "page.error().code() == ErrorCode::kInvalid", "test_kube"),
    Breakage("a list whose token is called invalid goes on with it", WATCHER,
             "page.error().code() == ErrorCode::kGone || page.error().code() == ErrorCode::kInvalid",
             "page.error().code() == ErrorCode::kGone", "test_kube"),
    Breakage("a poisoned line is read again for ever", WATCHER, "if (++bad_lines_in_a_row_ >= kMaxBadLinesInARow) {",
             "if (++bad_lines_in_a_row_ < 0) {", "test_kube"),
    Breakage("watches that end at once are opened in a tight loop", WATCHER,
             "  if (!progressed_ && now - opened_at_ < options_.backoff_least) back_off(now);\n", "", "test_kube"),
    Breakage("an event from before is taken", WATCHER, "  if (is_older(resource_version, resource_version_)) {\n    // A watch",
             "  if (resource_version.empty()) {\n    // A watch", "test_kube"),
    Breakage("an event from before is taken, and a job goes back", WATCHER,
             "  if (is_older(resource_version, resource_version_)) {\n    // A watch", "  if (resource_version.empty()) {\n    // A watch",
             "sim_seeds"),
    Breakage("failures of long ago still count", WATCHER, "  failures_ = 0;\n  bad_lines_in_a_row_ = 0;", "  bad_lines_in_a_row_ = 0;",
             "test_kube"),
    Breakage("a list that begins again keeps what the last one had", STORE, "      forget_list();\n      return {};",
             "      return {};", "test_kube"),
    Breakage("a deletion that only the list shows is not told", STORE,
             "      if (!incoming_.contains(key) && !unchanged_.contains(key)) changed.insert(key);", "", "test_kube"),
    Breakage("a list that breaks off in its stream is taken for whole by the next bookmark", WATCHER,
             "    if (!ends_list(object)) return {};\n", "", "test_kube"),
    Breakage("an object of a streamed list is taken that is older than a change seen before", WATCHER,
             "if (is_listed && type == \"ADDED\" && resource_version_.empty()) {", "if (is_listed) {", "test_kube"),
    Breakage("a streamed list that never comes to its end is asked for again and again", WATCHER,
             "  pages_next_ = true;\n", "", "test_kube"),
    Breakage("what vanishes while a list comes is in it", STORE, "    incoming_.erase(*key);\n    unchanged_.erase(*key);\n", "",
             "test_kube"),
    Breakage("of many jobs a family of metrics says again and again what it is", METRICS_JOBS, "while (has_head_ && part[begin]",
             "while (false && part[begin]", "test_runtime"),
    Breakage("jobs that ended long ago have all series", METRICS_JOBS, "if (job.is_past(page.now()) && !family.is_of_past) continue;",
             "", "test_runtime"),
    Breakage("of jobs that ended long ago nothing is told", METRICS_JOBS,
             "if (job.is_past(page.now()) && !family.is_of_past) continue;", "if (job.is_past(page.now())) continue;", "test_runtime"),
    # What is decided
    Breakage("a decision is written together with what is deleted", RECONCILE,
             "  if (next.pass == Pass::kDecision) return next;\n", "", "test_core"),
    Breakage("a gang starts where a place for one of its slots was found", RECONCILE,
             "  if (!snapshot.gang || !snapshot.gang->slots.empty()) return plan;", "  if (!snapshot.gang) return plan;", "test_core"),
    Breakage("a gang is placed without a new epoch", RECONCILE, "  status.membership_epoch = next_epoch(status);\n", "", "test_core"),
    Breakage("a gang starts again in the epoch it had", END,
             "  status.membership_epoch = next_epoch(snapshot, gang);\n", "", "test_core"),
    Breakage("a job that is being deleted is placed", RECONCILE,
             "  if (job.meta.deletion_time) return nothing(\"being deleted; its pods go with it\");\n", "", "test_core"),
    Breakage("another controller's job is placed", RECONCILE,
             "  if (job.spec.managed_by != contract::kManagedBy) return nothing(\"managed by another controller\");\n", "", "test_core"),
    Breakage("each report of progress is a write", RECONCILE, "  if (!is_recent(snapshot) || state_changed) {", "  if (is_recent(snapshot) || true) {",
             "test_core"),
    Breakage("the log of who has ended is taken away with its pod", RECONCILE, "    if (!pod->termination) delete_pod(plan, *pod);",
             "    delete_pod(plan, *pod);", "test_core"),
    Breakage("a job whose pods would leave their box gets places", RECONCILE,
             "    return wait || !pods_verdict(snapshot) ? std::nullopt", "    return wait ? std::nullopt", "test_core"),
    Breakage("two gangs that hold each other's nodes let go at the same time", HALF,
             "seconds(static_cast<std::int64_t>(drawn % spread))", "seconds(static_cast<std::int64_t>(drawn % 1))", "test_core"),
    Breakage("a gang that Kueue admits lets go of nodes by itself", HALF, "if (is_in_kueue(job) || trains_on", "if (trains_on", "test_core"),
    Breakage("what a part of a gang held is asked for again at once", RECONCILE,
             " || until_tried_again(snapshot)) {", ") {", "test_core"),
    Breakage("a worker that comes too late for the last step is awaited for ever", END,
             "  if (!is_whole && !has_left_behind(snapshot, gang)) return std::nullopt;\n",
             "  if (!is_whole) return std::nullopt;\n", "test_core"),
    Breakage("restarts are not counted", END, "  if (counts) status.restarts += 1;\n", "", "test_core"),
    Breakage("a pod that is not seen counts as lost unread", END, "    patch->confirm_absent = missing_pods(snapshot, gang);\n", "", "test_core"),
    Breakage("who lost its peer is told as the cause", END, "  if (failure.follower) return 3;\n", "", "test_core"),
    Breakage("a status is written over whatever is there", EDIT,
             "{{\"uid\", job.meta.uid}, {\"resourceVersion\", job.meta.resource_version}}", "{{\"uid\", job.meta.uid}}", "test_core"),
    Breakage("a condition that did not flip has a new time", EDIT,
             "    next.last_transition_time = found->last_transition_time;\n", "", "test_core"),
    Breakage("a key that backs off holds up the others", "operator/core/work_queue.cpp",
             "  if (order_.empty()) return std::nullopt;", "  if (order_.empty() || !failures_.empty()) return std::nullopt;", "test_sim"),
    # The loop
    Breakage("jobs are decided before all is known", LOOP, "  if (!synced() || !is_leader_) return now_ + seconds(1);",
             "  if (!is_leader_) return now_ + seconds(1);", "test_runtime"),
    Breakage("an own write that is not seen yet is not waited for", LOOP, "  if (!memory.unseen) return false;\n", "  return false;\n",
             "test_sim"),
    # Where nodes stand
    Breakage("what objects tell of the network is read once", BOOK, "  is_old_ = is_old_ || changed;", "  is_old_ = is_old_ || !was_synced;",
             "sim_seeds"),
    Breakage("a node that is carried to another rack stays where it was", LOOP,
             "    if (news == News::kPlaces) topology_book_.take_nodes();\n", "", "sim_seeds"),
    Breakage("a gang that asks where it stands is placed before all is told", PASS,
             "    if (asks && options_.sees_topologies && !topology_book_.synced()) continue;\n", "", "sim_seeds"),
    Breakage("a kind that nobody has installed is waited for", PUMP, "  deliver(std::move(none));\n", "", "sim_seeds"),
    Breakage("who joins a gang stands in whatever rack", GANG_PLACE,
             "  if (together && is_known) beside = rooms.beside(beside, gang.required_level);\n", "  if (together && is_known) beside.clear();\n",
             "sim_seeds"),
    # What is written
    Breakage("a stranger's object of our name is taken over", APPLIER,
             "    if (controller_of(*there) == work_.uid) return {};\n    const std::string message",
             "    if (there.has_value()) return {};\n    const std::string message", "test_runtime"),
    Breakage("a pod that would leave its box is asked for", APPLIER, "    if (!meets) {", "    if (action.pod.meta.name.empty()) {",
             "test_runtime"),
    Breakage("whatever pod has the name is deleted", APPLIER, "client_.remove(api::Kind::kPod, action.key, {action.uid, -1});",
             "client_.remove(api::Kind::kPod, action.key, {\"\", -1});", "test_runtime"),
    Breakage("a decision stands though the pod is there after all", APPLIER,
             "      if (found) return Error(ErrorCode::kConflict, \"pod \" + key.text() + \" is there after all\");\n",
             "      if (found) continue;\n", "test_runtime"),
    Breakage("a pod that could not be read counts as absent", APPLIER,
             "      if (found.error().code() != ErrorCode::kNotFound) {", "      if (found.error().code() == ErrorCode::kInternal) {",
             "test_runtime"),
    Breakage("a plan goes on behind what failed", APPLIER, "      run.fail(std::move(status));\n      break;",
             "      run.fail(std::move(status));", "test_runtime"),
    Breakage("a plan is begun though the operator stops", APPLIER, "    if (stopping) {", "    if (work.uid.empty()) {", "test_runtime"),
    Breakage("a stranger's disruption budget is changed", APPLIER,
             "    if (controller_of(*there) != work_.uid) {\n      return Error(ErrorCode::kForbidden",
             "    if (controller_of(*there) == \"nobody\") {\n      return Error(ErrorCode::kForbidden", "test_sim"),
    # Who may write
    Breakage("a fence that has closed lets writes through", GUARDS, "if (!until || now >= *until) {", "if (!until) {", "test_kube"),
    Breakage("a leader that could not renew goes on", ELECTION,
             "  if (role_ == Role::kLeader && now >= deadline()) role_ = Role::kLost;\n", "", "test_core"),
    Breakage("a lease is taken before its time is over", ELECTION, "  return now - seen_at_ >= duration;",
             "  return now - seen_at_ >= duration / 2;", "test_core"),
    Breakage("a lease counts from the answer, not from the question", ELECTION, "    renewed_at_ = sent;", "    renewed_at_ = now;",
             "test_core"),
    # A model that does not fit
    Breakage("a model is split as far as it was split before", REPLACE, "split.processes() > now &&", "split.processes() > 0 &&",
             "test_core"),
    Breakage("a model is split so that workers are left over", REPLACE,
             "split.processes() > now && api::check_divides(job.spec.worker, split, \"\")", "split.processes() > now", "test_core"),
    Breakage("a split that was chosen is forgotten", "operator/api/training_job.cpp",
             "? job.status.split.value_or(Split()) : training.split", "? Split() : training.split", "test_api"),
]
