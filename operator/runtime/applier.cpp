#include "operator/runtime/applier.h"

#include <algorithm>
#include <thread>

#include "common/caught.h"
#include "common/contract.h"
#include "common/log.h"
#include "operator/core/words.h"
#include "operator/runtime/retry.h"

namespace muster::runtime {
namespace {

/// uid of the job that controls an object as the API server gave it; empty when there is none. An
/// owner of another kind is none, whatever its uid: whoever makes an object may name one.
std::string owner_job_of(const Json& object) {
  const Json& owners = member(object, {"metadata", "ownerReferences"});
  if (!owners.is_array()) return "";
  for (const Json& owner : owners) {
    const bool is_job = text_at(owner, {"kind"}) == contract::kKindTrainingJob;
    if (is_job && member(owner, {"controller"}) == true) return text_at(owner, {"uid"});
  }
  return "";
}

std::string version_of(const Json& object) {
  return text_at(object, {"metadata", "resourceVersion"});
}

/// Of an event, before its count stands still.
constexpr int kRepeatsMost = 1'000'000;

class Run {
 public:
  Run(kube::ApiClient& client, const Work& work) : client_(client), work_(work) {
    done_.key = work.key;
    done_.uid = work.uid;
    done_.pass = work.plan.pass;
  }

  Status operator()(const core::CreatePod& action) {
    // core has looked at the job's pods before it gave them places; this is the one that is sent.
    const Status meets = api::check_restricted(action.pod, work_.host_network_namespaces);
    if (!meets) {
      const Error error = meets.error().with("pod " + action.pod.meta.key().text());
      done_.create_failure = {std::string(core::words::kRefused), error.message()};
      return error;
    }
    const Status status = create(api::Kind::kPod, action.pod.meta, api::to_json(action.pod));
    if (status) done_.created.push_back(action.pod.meta.name);
    return status;
  }
  Status operator()(const core::CreateService& action) {
    const Status status =
        create(api::Kind::kService, action.service.meta, api::to_json(action.service));
    if (status) done_.created.push_back(action.service.meta.name);
    return status;
  }
  Status operator()(const core::KeepService& action) {
    constexpr auto kKind = api::Kind::kService;
    const api::ObjectMeta& meta = action.service.meta;
    const auto there = client_.get(kKind, meta.key());
    if (there) return {};
    if (there.error().code() != ErrorCode::kNotFound) {
      return there.error().with("read Service " + meta.key().text());
    }
    log_warning("a gang's Service was gone, and is made again", {{"job", work_.key.text()}});
    const Status made = client_.add(kKind, meta.namespace_name, api::to_json(action.service));
    if (made || made.error().code() == ErrorCode::kAlreadyExists) return {};
    return made.error().with("create Service " + meta.key().text());
  }
  Status operator()(const core::CreatePodGroup& action) {
    const Status status = create_group(action.group);
    if (status) done_.created.push_back(action.group.meta.name);
    // An upgrade of the cluster may take a version away that the chart has found.
    const bool is_unknown = !status && status.error().code() == ErrorCode::kNotFound;
    if (is_unknown && done_.create_delay) {
      done_.create_delay->message +=
          "; if the cluster no longer serves this version of scheduling.k8s.io, helm upgrade "
          "chooses another";
    }
    return status;
  }
  Status operator()(const core::SetDisruptionBudget& action) {
    const Status done = set_budget(action.budget);
    note_budget(done, action.budget.min_available);
    return done ? done : done.error().with("disruption budget " + action.budget.meta.key().text());
  }
  Status operator()(const core::RemoveDisruptionBudget& action) {
    const Status done = remove_budget(action.key);
    note_budget(done, 0);
    return done ? done : done.error().with("remove disruption budget " + action.key.text());
  }
  Status operator()(const core::DeletePod& action) {
    const Status status = client_.remove(api::Kind::kPod, action.key, {action.uid, -1});
    // Gone, or another pod of that name: either way the one that was meant is no more.
    const bool gone = !status && (status.error().code() == ErrorCode::kNotFound ||
                                  status.error().code() == ErrorCode::kConflict);
    if (!status && !gone) {
      const Error error = status.error().with("delete pod " + action.key.text());
      if (is_refused(error.code())) done_.deletions_refused[action.uid] = error.message();
      return error;
    }
    done_.deleted.push_back(action.uid);
    return {};
  }
  Status operator()(const core::PatchStatus& action) {
    for (const auto& key : action.confirm_absent) {
      const auto found = client_.get(api::Kind::kPod, key);
      // One that somebody has taken from the job is none of its gang any more.
      if (found && owner_job_of(*found) == work_.uid) {
        return Error(ErrorCode::kConflict, "pod " + key.text() + " is there after all");
      }
      if (!found && found.error().code() != ErrorCode::kNotFound) {
        return found.error().with("read pod " + key.text());
      }
    }
    auto written = client_.merge_patch(api::Kind::kTrainingJob, action.key, "status", action.patch);
    if (!written) return written.error().with("write the status of " + action.key.text());
    done_.version_before = version_of(action.patch);
    done_.version_after = version_of(*written);
    return {};
  }
  Status operator()(const core::PatchQueueStatus& action) {
    auto written =
        client_.merge_patch(api::Kind::kTrainingQueue, action.key, "status", action.patch);
    if (!written) return written.error().with("write the status of queue " + action.key.text());
    done_.version_before = version_of(action.patch);
    done_.version_after = version_of(*written);
    return {};
  }
  Status operator()(const core::EmitEvent& action) {
    const auto& event = action.event;
    Json object = api::to_json(event);
    if (!work_.reporting_instance.empty()) {
      object["reportingInstance"] = work_.reporting_instance;
    }
    const Status made = run_apart([&] {
      const Status told = client_.add(api::Kind::kEvent, event.meta.namespace_name, object);
      const bool is_there = !told && told.error().code() == ErrorCode::kAlreadyExists;
      return is_there ? count_again(event) : told;
    });
    // Harmless: an event is news about what status says anyway.
    if (!made) {
      log_warning(
          "an event was lost",
          {{"job", work_.key.text()}, {"reason", event.reason}, {"error", made.error().message()}});
    }
    return {};
  }
  Status operator()(const core::DeleteJob& action) {
    const Status status = client_.remove(api::Kind::kTrainingJob, action.key,
                                         {action.uid, -1, action.resource_version});
    if (status || status.error().code() == ErrorCode::kNotFound) return {};
    return status.error().with("delete job " + action.key.text());
  }

  ApplyDone take() { return std::move(done_); }
  void fail(Status status, bool is_only_deletion) {
    done_.status = std::move(status);
    done_.only_deletions_refused = is_only_deletion;
  }

 private:
  Status create(api::Kind kind, const api::ObjectMeta& meta, const Json& object) {
    const std::string what = std::string(api::info_of(kind).kind) + " " + meta.key().text();
    const Status made = client_.add(kind, meta.namespace_name, object);
    if (made) return {};
    if (made.error().code() == ErrorCode::kAlreadyExists) return take_over(kind, meta, what);
    const Error error = made.error().with("create " + what);
    const bool refused = is_refused(error.code());
    const bool quota = refused && error.message().find("exceeded quota") != std::string::npos;
    auto& why = refused ? done_.create_failure : done_.create_delay;
    why = {std::string(quota ? core::words::kQuotaExceeded : core::words::kCreateFailed),
           error.message()};
    // It asks the webhooks of a cluster before it answers, and names none then.
    const bool is_late = error.code() == ErrorCode::kDeadlineExceeded;
    if (is_late) why->message += "; an admission webhook may be the cause";
    return error;
  }

  Status create_group(const api::PodGroup& group) {
    MUSTER_RETURN_IF_ERROR(
        create(api::workload_kind(group), group.meta, api::workload_json(group)));
    return create(group.kind, group.meta, api::to_json(group));
  }

  /// One event tells of all that is alike, and how often and when last it was. The API server
  /// forgets it an hour after it was made; then it is told anew. One of an operator that wrote
  /// through events.k8s.io counts in its series alone.
  Status count_again(const api::Event& event) {
    constexpr auto kKind = api::Kind::kEvent;
    const auto there = client_.get(kKind, event.meta.key());
    if (!there) return there.error();
    int count = 1;
    if (const Json& told = member(*there, {"series", "count"}); told.is_number_integer()) {
      count = static_cast<int>(std::clamp<std::int64_t>(told.get<std::int64_t>(), 1, kRepeatsMost));
    }
    api::Event repeated = event;
    repeated.series_count = count + 1;
    Json patch{{"metadata", {{"resourceVersion", version_of(*there)}}}};
    const Json again = api::to_json(repeated);
    for (const char* field : {"series", "count", "lastTimestamp"}) patch[field] = again[field];
    const auto written = client_.merge_patch(kKind, event.meta.key(), "", patch);
    return written ? Status() : written.error();
  }

  /// Asks first, because a new operator finds most of them as they should be.
  Status set_budget(const api::DisruptionBudget& budget) {
    constexpr auto kKind = api::Kind::kPodDisruptionBudget;
    const auto there = client_.get(kKind, budget.meta.key());
    if (!there && there.error().code() == ErrorCode::kNotFound) {
      return client_.add(kKind, budget.meta.namespace_name, api::to_json(budget));
    }
    if (!there) return there.error();
    if (owner_job_of(*there) != work_.uid) {
      return Error(ErrorCode::kForbidden, "it exists and belongs to something else");
    }
    const Json spec = there->value("spec", Json::object());
    if (spec.is_object() && spec.contains("minAvailable") &&
        spec["minAvailable"] == budget.min_available) {
      return {};
    }
    const auto written =
        client_.merge_patch(kKind, budget.meta.key(), "",
                            Json{{"metadata", {{"resourceVersion", version_of(*there)}}},
                                 {"spec", {{"minAvailable", budget.min_available}}}});
    return written ? Status() : written.error();
  }

  /// A write that failed for want of an answer may have been done, and is tried again soon.
  void note_budget(const Status& done, int left) {
    if (!done && is_refused(done.error().code())) {
      done_.budget_failed = true;
    } else {
      done_.budget = done ? left : core::kBudgetUnsure;
    }
  }

  Status remove_budget(const api::ObjectKey& key) {
    constexpr auto kKind = api::Kind::kPodDisruptionBudget;
    const auto there = client_.get(kKind, key);
    const bool is_gone = !there && there.error().code() == ErrorCode::kNotFound;
    if (is_gone || (there && owner_job_of(*there) != work_.uid)) return {};
    if (!there) return there.error();
    const std::string uid = (*there)["metadata"].value("uid", "");
    const Status removed = client_.remove(kKind, key, {uid, -1});
    return removed || removed.error().code() == ErrorCode::kNotFound ? Status() : removed;
  }

  /// Names are a function of the job, so one that exists is ours from an earlier try, or a
  /// stranger's.
  Status take_over(api::Kind kind, const api::ObjectMeta& meta, const std::string& what) {
    const auto there = client_.get(kind, meta.key());
    if (!there) return there.error().with("read " + what);
    if (owner_job_of(*there) == work_.uid) return {};
    const std::string message =
        what + " exists and belongs to something else; delete it, or give the job another name";
    done_.create_failure = {std::string(core::words::kNameConflict), message};
    return Error(ErrorCode::kAlreadyExists, message);
  }

  kube::ApiClient& client_;
  const Work& work_;
  ApplyDone done_;
};

/// Plans whose events wait; those of further ones are lost.
constexpr std::size_t kEventsMost = 4096;

bool makes_pods(const Work& work) {
  return std::any_of(work.plan.actions.begin(), work.plan.actions.end(), [](const auto& action) {
    return std::holds_alternative<core::CreatePod>(action);
  });
}

/// Whether it gives a gang its places, so that its pods come next.
bool begins_gang(const core::Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const auto& action) {
    const auto* const patch = std::get_if<core::PatchStatus>(&action);
    return patch != nullptr && member(patch->patch, {"status", "startAttempt"}).is_number();
  });
}

/// Takes the events out of a plan: they can wait, and what waits for the plan cannot.
Work split_events(Work& work) {
  Work events{work.key, work.uid, {}, work.reporting_instance};
  auto& actions = work.plan.actions;
  const auto is_event = [](const core::Action& action) {
    return std::holds_alternative<core::EmitEvent>(action);
  };
  std::copy_if(actions.begin(), actions.end(), std::back_inserter(events.plan.actions), is_event);
  std::erase_if(actions, is_event);
  return events;
}

class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(kube::ApiClient& client, Mailbox& mailbox, int threads)
      : client_(client), mailbox_(mailbox), turns_(threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~ThreadExecutor() override { stop(); }

  void execute(Work work) override {
    const std::lock_guard lock(mutex_);
    turns_.push(std::move(work));
    news_.notify_one();
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      turns_.clear();
      news_.notify_all();
    }
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void run() {
    while (std::optional<WorkTurns::Turn> turn = next_turn()) {
      if (turn->is_news) {
        (void)apply(client_, turn->work, stopping_);  // Has told of what was lost.
        continue;
      }
      Work events = split_events(turn->work);
      ApplyDone done = apply(client_, turn->work, stopping_);
      if (turn->makes_pods) let_another_make_pods();
      // Before the loop hears of it, so that a job's events stay in order.
      const bool is_done = done.status || done.only_deletions_refused;
      if (is_done && !events.plan.actions.empty()) put_events(std::move(events));
      (void)mailbox_.post(std::move(done));
    }
  }

  /// Blocks: until there is something to do. Nothing: it ends.
  std::optional<WorkTurns::Turn> next_turn() {
    std::unique_lock lock(mutex_);
    std::optional<WorkTurns::Turn> turn;
    while (!stopping_ && !(turn = turns_.pop())) news_.wait_for(lock, seconds(1));
    // A gang may have waited for that.
    if (turn && turn->makes_pods) news_.notify_one();
    return turn;
  }

  void let_another_make_pods() {
    const std::lock_guard lock(mutex_);
    turns_.let_another_make_pods();
    news_.notify_one();
  }

  void put_events(Work events) {
    const std::string job = events.key.text();
    const std::lock_guard lock(mutex_);
    if (!turns_.push_news(std::move(events))) {
      log_warning("events were lost: too many wait", {{"job", job}});
      return;
    }
    news_.notify_one();
  }

  kube::ApiClient& client_;
  Mailbox& mailbox_;
  std::mutex mutex_;
  std::condition_variable news_;
  WorkTurns turns_;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

WorkTurns::WorkTurns(int threads) : making_pods_most_(std::max(threads * 3 / 4, 1)) {}

WorkTurns::Urgency WorkTurns::urgency_of(const core::Plan& plan) {
  switch (plan.pass) {
    case core::Pass::kObservation:
    case core::Pass::kProgress:
      return Urgency::kObservation;
    case core::Pass::kNone:
      return Urgency::kActions;
    case core::Pass::kDecision:
      break;
  }
  return begins_gang(plan) ? Urgency::kStart : Urgency::kDecision;
}

void WorkTurns::push(Work work) {
  const std::string namespace_name = work.key.namespace_name;
  Waiting& waiting = waiting_of(urgency_of(work.plan));
  (makes_pods(work) ? waiting.making_pods : waiting.rest).push(namespace_name, std::move(work));
}

bool WorkTurns::push_news(Work events) {
  FairQueue<Work>& queue = waiting_of(Urgency::kEvents).rest;
  if (queue.size() >= kEventsMost) return false;
  const std::string namespace_name = events.key.namespace_name;
  queue.push(namespace_name, std::move(events));
  return true;
}

std::optional<WorkTurns::Turn> WorkTurns::pop() {
  for (const Urgency urgency : kByUrgency) {
    Waiting& waiting = waiting_of(urgency);
    const bool may_make = making_pods_ < making_pods_most_ && !waiting.making_pods.empty();
    if (!may_make || waiting.is_rest_next) {
      if (std::optional<Work> rest = pop_rest(urgency)) {
        waiting.is_rest_next = false;
        return Turn{*std::move(rest), urgency == Urgency::kEvents};
      }
    }
    if (!may_make) continue;
    waiting.is_rest_next = true;
    ++making_pods_;
    return Turn{waiting.making_pods.pop(), false, true};
  }
  return std::nullopt;
}

/// What makes no pods. The decision that begins a gang waits while its namespace has enough plans
/// of begun ones: they have their pods whole, and those of a burst would fill the memory.
std::optional<Work> WorkTurns::pop_rest(Urgency urgency) {
  FairQueue<Work>& begun = waiting_of(Urgency::kActions).making_pods;
  return waiting_of(urgency).rest.pop_if([&](const std::string& namespace_name) {
    const auto* const line = begun.line(namespace_name);
    return urgency != Urgency::kStart || line == nullptr || line->size() < kPodPlansMost;
  });
}

void WorkTurns::clear() {
  for (Waiting& waiting : waiting_) {
    waiting.making_pods.clear();
    waiting.rest.clear();
  }
}

ApplyDone apply(kube::ApiClient& client, const Work& work, const std::atomic<bool>& stopping) {
  Run run(client, work);
  for (const auto& action : work.plan.actions) {
    if (stopping) {
      run.fail(Error(ErrorCode::kAborted, "the operator is stopping"), false);
      break;
    }
    // What a library throws is this job's alone, and what was asked for may have been done.
    Status status = run_apart([&] { return std::visit(run, action); });
    if (status) continue;
    // A policy may refuse it for good. Nothing behind it in a plan rests on it: what needs a pod's
    // place is planned once that pod has been seen to be gone.
    const bool goes_on =
        std::holds_alternative<core::DeletePod>(action) && is_refused(status.error().code());
    run.fail(std::move(status), goes_on);
    if (!goes_on) break;
  }
  return run.take();
}

std::unique_ptr<Executor> make_thread_executor(kube::ApiClient& client, Mailbox& mailbox,
                                               int threads) {
  return std::make_unique<ThreadExecutor>(client, mailbox, threads);
}

}  // namespace muster::runtime
