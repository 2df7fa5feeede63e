#include "tests/sim/one_operator.h"

namespace muster::sim {

bool InlineExecutor::work() {
  if (queue_.empty()) return false;
  const runtime::Work work = std::move(queue_.front());
  queue_.pop_front();
  MUSTER_CHECK(mailbox_.try_post(runtime::apply(client_, work, stopping_)));
  return true;
}

OneOperator::OneOperator(const Clock& clock, kube::HttpTransport& transport, std::uint64_t seed,
                         const OneOperatorOptions& sees)
    : client(kube::make_rest_client(transport)), mailbox(100'000), executor(*client, mailbox) {
  std::vector<api::Kind> kinds{
      api::Kind::kTrainingJob,          api::Kind::kPod,           api::Kind::kNode,
      api::Kind::kTrainingQueue,        api::Kind::kPriorityClass, api::Kind::kPersistentVolume,
      api::Kind::kPersistentVolumeClaim};
  using runtime::TopologyBook;
  if (sees.sees_topologies) {
    kinds.insert(kinds.end(), TopologyBook::kKinds.begin(), TopologyBook::kKinds.end());
  }
  if (sees.sees_kueue) kinds.push_back(api::Kind::kKueueWorkload);
  for (const auto kind : kinds) {
    kube::WatchPumpOptions pump;
    pump.client = client.get();
    pump.clock = &clock;
    pump.kind = kind;
    pump.seed = ++seed;
    pump.watcher = kube::lean_watcher(kind);
    pump.is_optional = TopologyBook::knows(kind) || kind == api::Kind::kKueueWorkload;
    pump.sink = [this, on_told = sees.on_told](runtime::WatchBatch batch) {
      if (on_told) on_told(batch);
      MUSTER_CHECK(mailbox.try_post(std::move(batch)));
    };
    pumps.push_back(std::make_unique<kube::WatchPump>(std::move(pump)));
  }
  runtime::LoopOptions options;
  options.clock = &clock;
  options.mailbox = &mailbox;
  options.executor = &executor;
  options.endpoint = &endpoint;
  options.pods.endpoint_url = endpoint.url();
  options.pods.default_image = "muster-worker";
  options.pods.host_network_namespaces = {"default"};
  options.master_keys.current = kMasterKey;
  options.sees_queues = true;
  options.sees_volumes = true;
  options.checks_inventory = true;
  options.sees_topologies = sees.sees_topologies;
  options.pods.pod_groups = sees.pod_groups;
  options.is_leader = sees.is_leader;
  options.prices = sees.prices;
  options.metrics = sees.metrics;
  options.seed = seed;
  loop = std::make_unique<runtime::OperatorLoop>(std::move(options));
}

}  // namespace muster::sim
