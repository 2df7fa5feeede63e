#include "operator/runtime/operator.h"

#include <malloc.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "operator/runtime/applier.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/loop.h"
#include "operator/runtime/mailbox.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMailboxCapacity = 4096;
/// An exchange is mostly waiting: for the API server, and between the client library's threads.
constexpr int kApplierThreads = 16;
/// A burst leaves holes in the heap that only this gives back; it takes a few milliseconds.
constexpr seconds kTrimEvery{10};
constexpr milliseconds kIdle{90'000};
constexpr nanoseconds kLoopWaitMost = seconds(1);
constexpr nanoseconds kLoopWaitLeast = milliseconds(1);

class RunningOperator final : public Operator {
 public:
  explicit RunningOperator(OperatorOptions options)
      : options_(std::move(options)),
        mailbox_(kMailboxCapacity),
        last_step_(options_.clock->mono_now()) {}
  ~RunningOperator() override { stop(); }

  void start() {
    executor_ = make_thread_executor(*options_.client, mailbox_, kApplierThreads);
    if (options_.metrics != nullptr) options_.metrics->set_concurrency(kApplierThreads);
    std::uint64_t seed = options_.seed;
    std::vector<api::Kind> kinds{api::Kind::kTrainingJob, api::Kind::kPod};
    if (options_.sees_nodes) kinds.push_back(api::Kind::kNode);
    if (options_.sees_volumes) {
      kinds.insert(kinds.end(), {api::Kind::kPersistentVolume, api::Kind::kPersistentVolumeClaim});
    }
    if (options_.sees_queues) {
      kinds.insert(kinds.end(), {api::Kind::kTrainingQueue, api::Kind::kPriorityClass});
    }
    if (options_.sees_topologies) {
      kinds.insert(kinds.end(), TopologyBook::kKinds.begin(), TopologyBook::kKinds.end());
    }
    if (options_.sees_kueue) kinds.push_back(api::Kind::kKueueWorkload);
    for (const auto kind : kinds) {
      kube::WatchPumpOptions pump;
      pump.is_optional = TopologyBook::knows(kind) || kind == api::Kind::kKueueWorkload;
      pump.client = options_.client;
      pump.clock = options_.clock;
      pump.kind = kind;
      pump.namespace_name = options_.namespace_name;
      pump.seed = ++seed;
      pump.watcher = kube::lean_watcher(kind);
      pump.sink = [this](WatchBatch batch) { (void)mailbox_.post(std::move(batch)); };
      if (options_.metrics != nullptr) {
        pump.on_trouble = [this, kind](const kube::Watcher& watcher) {
          options_.metrics->on_watch(kind, watcher.relists(), watcher.bad_lines());
        };
      }
      pumps_.push_back(std::make_unique<kube::WatchPump>(std::move(pump)));
    }
    for (auto& pump : pumps_) {
      threads_.emplace_back([this, one = pump.get()] { watch(*one); });
    }
    threads_.emplace_back([this] { decide(); });
  }

  Status wait_synced(MonoTime deadline) override {
    std::unique_lock lock(mutex_);
    while (!synced_) {
      const auto left = deadline - options_.clock->mono_now();
      if (left <= nanoseconds(0)) {
        return Error(ErrorCode::kDeadlineExceeded,
                     "the API server did not list jobs, pods and nodes in time");
      }
      if (stopping_) return Error(ErrorCode::kAborted, "the operator was stopped");
      changed_.wait_for(lock, std::min<nanoseconds>(left, kLoopWaitMost));
    }
    return {};
  }

  bool post_progress(const ProgressReport& report) override { return mailbox_.try_post(report); }
  void post_witness(const WitnessRequest& request, WitnessAnswer answer) override {
    if (mailbox_.try_post(WitnessPost{request, answer})) return;
    answer(Error(ErrorCode::kUnavailable, "the operator has too much to do; ask again"));
  }
  void lead() override { (void)mailbox_.post(Lead{}); }
  bool synced() const override {
    const std::lock_guard lock(mutex_);
    return synced_;
  }
  MonoTime last_step() const override { return last_step_.load(); }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    // In this order: nobody waits for the mailbox any more, then nothing new is written, then
    // nothing is read.
    mailbox_.close();
    if (executor_) executor_->stop();
    for (auto& pump : pumps_) pump->close();
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void decide() {
    LoopOptions options;
    static_cast<DecidingOptions&>(options) = options_;
    options.mailbox = &mailbox_;
    options.executor = executor_.get();
    OperatorLoop loop(std::move(options));
    MonoTime trimmed = options_.clock->mono_now();
    while (!stopping_) {
      const MonoTime next = loop.step();
      last_step_ = options_.clock->mono_now();
      if (last_step_.load() - trimmed >= kTrimEvery) {
        trimmed = last_step_;
        ::malloc_trim(0);
      }
      if (loop.synced()) tell_synced();
      const nanoseconds wait = next - options_.clock->mono_now();
      mailbox_.wait(std::clamp<nanoseconds>(wait, kLoopWaitLeast, kLoopWaitMost));
    }
  }

  void tell_synced() {
    const std::lock_guard lock(mutex_);
    if (synced_) return;
    synced_ = true;
    changed_.notify_all();
  }

  void watch(kube::WatchPump& pump) {
    while (!stopping_) {
      if (pump.step(kIdle) == kube::WatchPump::Did::kWork) continue;
      const auto wake = pump.wake();
      const nanoseconds wait = wake ? *wake - options_.clock->mono_now() : kLoopWaitLeast;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::clamp<nanoseconds>(wait, kLoopWaitLeast, kLoopWaitMost),
                        [this] { return stopping_.load(); });
    }
  }

  OperatorOptions options_;
  Mailbox mailbox_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<kube::WatchPump>> pumps_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stopping_{false};
  std::atomic<MonoTime> last_step_;
  bool synced_ = false;  // guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<Operator>> Operator::start(OperatorOptions options) {
  MUSTER_CHECK(options.client != nullptr && options.clock != nullptr);
  MUSTER_RETURN_IF_ERROR([&]() -> Status {
    const auto key = key_id(options.master_keys.current);
    return key ? Status() : Status(key.error());
  }());
  auto running = std::make_unique<RunningOperator>(std::move(options));
  running->start();
  return std::unique_ptr<Operator>(std::move(running));
}

}  // namespace muster::runtime
