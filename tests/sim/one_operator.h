// One operator without threads: its watches, its loop and its hands are turned by whoever tests it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/kube/api_client.h"
#include "operator/kube/watch_pump.h"
#include "operator/runtime/loop.h"

namespace muster::sim {

inline constexpr const char* kMasterKey =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Does the work at once, in the caller's thread, unless told to keep it back.
class InlineExecutor final : public runtime::Executor {
 public:
  InlineExecutor(kube::ApiClient& client, runtime::Mailbox& mailbox)
      : client_(client), mailbox_(mailbox) {}
  void execute(runtime::Work work) override {
    if (on_decided) on_decided(work);
    queue_.push_back(std::move(work));
  }
  void stop() override { queue_.clear(); }
  /// Works off what was given; whether there was anything.
  bool work();
  /// Sees each plan when the loop hands it over.
  std::function<void(const runtime::Work&)> on_decided;

 private:
  kube::ApiClient& client_;
  runtime::Mailbox& mailbox_;
  std::deque<runtime::Work> queue_;
  std::atomic<bool> stopping_{false};
};

/// Remembers what the loop told the endpoint.
class FakeEndpoint final : public runtime::WorkersEndpoint {
 public:
  std::string url() const override { return "http://127.0.0.1:1"; }
  void set_gang(runtime::GangInfo gang) override { gangs.insert_or_assign(gang.job, gang); }
  void remove_gang(const std::string& job) override { gangs.erase(job); }
  void stop() override {}
  std::map<std::string, runtime::GangInfo> gangs;
};

struct OneOperatorOptions {
  const api::PriceList* prices = nullptr;
  /// Whether it watches the kinds that tell where nodes stand.
  bool sees_topologies = false;
  /// Whether it watches Kueue's Workloads.
  bool sees_kueue = false;
  /// As which kind the cluster serves PodGroups; none: not at all.
  std::optional<api::Kind> pod_groups{};
  /// False: it decides nothing until a Lead is posted.
  bool is_leader = true;
  /// Sees what its watches bring, before the loop does.
  std::function<void(const runtime::WatchBatch&)> on_told{};
  runtime::Metrics* metrics = nullptr;  ///< outlives it; nullptr: nobody counts
};

/// The parts of an operator that end with it; a new one starts from the API server alone.
struct OneOperator {
  OneOperator(const Clock& clock, kube::HttpTransport& transport, std::uint64_t seed,
              const OneOperatorOptions& sees = {});
  std::unique_ptr<kube::ApiClient> client;
  runtime::Mailbox mailbox;
  FakeEndpoint endpoint;
  InlineExecutor executor;
  std::vector<std::unique_ptr<kube::WatchPump>> pumps;
  std::unique_ptr<runtime::OperatorLoop> loop;
  MonoTime next{};
};

}  // namespace muster::sim
