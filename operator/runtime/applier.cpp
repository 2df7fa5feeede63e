#include "operator/runtime/applier.h"

#include <thread>

#include "common/log.h"
#include "operator/core/words.h"
#include "operator/runtime/retry.h"

namespace muster::runtime {
namespace {

/// uid of the controller of an object as the API server gave it; empty when there is none.
std::string controller_of(const Json& object) {
  if (!object.is_object()) return "";
  const auto meta = object.find("metadata");
  if (meta == object.end() || !meta->is_object()) return "";
  const auto owners = meta->find("ownerReferences");
  if (owners == meta->end() || !owners->is_array()) return "";
  for (const Json& owner : *owners) {
    if (!owner.is_object()) continue;
    const auto controller = owner.find("controller");
    if (controller == owner.end() || *controller != true) continue;
    const auto uid = owner.find("uid");
    if (uid != owner.end() && uid->is_string()) return uid->get<std::string>();
  }
  return "";
}

std::string version_of(const Json& object) {
  if (!object.is_object()) return "";
  const auto meta = object.find("metadata");
  if (meta == object.end() || !meta->is_object()) return "";
  const auto version = meta->find("resourceVersion");
  return version != meta->end() && version->is_string() ? version->get<std::string>() : "";
}

class Run {
 public:
  Run(kube::ApiClient& client, const Work& work) : client_(client), work_(work) {
    done_.key = work.key;
    done_.uid = work.uid;
    done_.pass = work.plan.pass;
  }

  Status operator()(const core::CreatePod& action) {
    const Status status = create(api::Kind::kPod, action.pod.meta, api::to_json(action.pod));
    if (status) done_.acted.push_back(action.pod.meta.name);
    return status;
  }
  Status operator()(const core::CreateService& action) {
    return create(api::Kind::kService, action.service.meta, api::to_json(action.service));
  }
  Status operator()(const core::DeletePod& action) {
    const Status status = client_.remove(api::Kind::kPod, action.key, {action.uid, -1});
    // Gone, or another pod of that name: either way the one that was meant is no more.
    const bool gone = !status && (status.error().code() == ErrorCode::kNotFound ||
                                  status.error().code() == ErrorCode::kConflict);
    if (!status && !gone) return status.error().with("delete pod " + action.key.text());
    done_.acted.push_back(action.uid);
    return {};
  }
  Status operator()(const core::PatchStatus& action) {
    for (const auto& key : action.confirm_absent) {
      const auto found = client_.get(api::Kind::kPod, key);
      if (found) return Error(ErrorCode::kConflict, "pod " + key.text() + " is there after all");
      if (found.error().code() != ErrorCode::kNotFound) {
        return found.error().with("read pod " + key.text());
      }
    }
    auto written = client_.merge_patch(api::Kind::kTrainingJob, action.key, "status", action.patch);
    if (!written) return written.error().with("write the status of " + action.key.text());
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
    const auto made = client_.create(api::Kind::kEvent, event.meta.namespace_name, object);
    // Harmless: an event is news about what status says anyway.
    if (!made) {
      log_warning(
          "an event was lost",
          {{"job", work_.key.text()}, {"reason", event.reason}, {"error", made.error().message()}});
    }
    return {};
  }
  Status operator()(const core::DeleteJob& action) {
    const Status status = client_.remove(api::Kind::kTrainingJob, action.key, {action.uid, -1});
    if (status || status.error().code() == ErrorCode::kNotFound) return {};
    return status.error().with("delete job " + action.key.text());
  }

  ApplyDone take() { return std::move(done_); }
  void fail(Status status) { done_.status = std::move(status); }

 private:
  Status create(api::Kind kind, const api::ObjectMeta& meta, const Json& object) {
    const std::string what = std::string(api::info_of(kind).kind) + " " + meta.key().text();
    const auto made = client_.create(kind, meta.namespace_name, object);
    if (made) return {};
    if (made.error().code() == ErrorCode::kAlreadyExists) return take_over(kind, meta, what);
    const Error error = made.error().with("create " + what);
    if (retry_of(error.code()) == Retry::kRefused) {
      const bool quota = error.message().find("exceeded quota") != std::string::npos;
      done_.create_failure = {
          std::string(quota ? core::words::kQuotaExceeded : core::words::kCreateFailed),
          error.message()};
    }
    return error;
  }

  /// Names are a function of the job, so one that exists is ours from an earlier try, or a
  /// stranger's.
  Status take_over(api::Kind kind, const api::ObjectMeta& meta, const std::string& what) {
    const auto there = client_.get(kind, meta.key());
    if (!there) return there.error().with("read " + what);
    if (controller_of(*there) == work_.uid) return {};
    const std::string message =
        what + " exists and belongs to something else; delete it, or give the job another name";
    done_.create_failure = {std::string(core::words::kNameConflict), message};
    return Error(ErrorCode::kAlreadyExists, message);
  }

  kube::ApiClient& client_;
  const Work& work_;
  ApplyDone done_;
};

class ThreadExecutor final : public Executor {
 public:
  ThreadExecutor(kube::ApiClient& client, Mailbox& mailbox, int threads)
      : client_(client), mailbox_(mailbox) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~ThreadExecutor() override { stop(); }

  void execute(Work work) override {
    const std::lock_guard lock(mutex_);
    // Bounded by the number of jobs: the loop gives one work per job at a time.
    queue_.push_back(std::move(work));
    news_.notify_one();
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
      news_.notify_all();
    }
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void run() {
    while (true) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        while (!stopping_ && queue_.empty()) news_.wait_for(lock, seconds(1));
        if (stopping_) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      (void)mailbox_.post(apply(client_, work, stopping_));
    }
  }

  kube::ApiClient& client_;
  Mailbox& mailbox_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Work> queue_;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

ApplyDone apply(kube::ApiClient& client, const Work& work, const std::atomic<bool>& stopping) {
  Run run(client, work);
  for (const auto& action : work.plan.actions) {
    if (stopping) {
      run.fail(Error(ErrorCode::kAborted, "the operator is stopping"));
      break;
    }
    Status status = std::visit(run, action);
    if (!status) {
      run.fail(std::move(status));
      break;
    }
  }
  return run.take();
}

std::unique_ptr<Executor> make_thread_executor(kube::ApiClient& client, Mailbox& mailbox,
                                               int threads) {
  return std::make_unique<ThreadExecutor>(client, mailbox, threads);
}

}  // namespace muster::runtime
