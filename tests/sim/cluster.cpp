#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "common/contract.h"
#include "tests/sim/engine_spec.h"

namespace muster::sim {
namespace {

constexpr std::uint64_t kRacksOneIn = 4;
constexpr seconds kSilentMost{40};
/// So long is tried to empty a node of which nothing else is amiss.
constexpr int kRoundsEmptyingMost = 24;
constexpr int kQuietRounds = 12;
/// Of one cohort; each alone has too little for the largest gang.
constexpr const char* kQueues[] = {"left", "right"};
constexpr int kQueueCpus = 3;
constexpr const char* kHighPriority = "high";
constexpr const char* kHostLabel = "kubernetes.io/hostname";

Json container_status(const char* state, Json content) {
  return Json::array({Json{{"name", "worker"}, {"state", {{state, std::move(content)}}}}});
}

/// Of a worker whose checkpoints are never lost.
void tell_step(ProgressReport& report, std::int64_t step) {
  report.step = step;
  report.checkpoint_step = step / 10 * 10;
  if (report.attempt > 0) report.restored_step = report.checkpoint_step;
}

}  // namespace

kube::HttpRequest binding_request(const api::Pod& pod, const std::string& node) {
  const Json binding{{"apiVersion", "v1"},
                     {"kind", "Binding"},
                     {"metadata", {{"name", pod.meta.name}}},
                     {"target", {{"kind", "Node"}, {"name", node}}}};
  kube::HttpRequest request;
  request.method = "POST";
  request.path = api::object_path(api::Kind::kPod, pod.meta.key()) + "/binding";
  request.content_type = "application/json";
  request.body = dump_json(binding);
  return request;
}

Cluster::Cluster(std::uint64_t seed, bool drains, ManualClock& clock, embedded::ApiServer& server)
    : drains_(drains),
      taints_(Rng(seed ^ 1).below(2) == 0),
      rng_(seed),
      kueue_rng_(~seed ^ 1),
      clock_(clock),
      server_(server),
      user_(kube::make_rest_client(server)) {
  // A seed of its own, so that clusters without racks are what they are.
  if (Rng(~seed).below(kRacksOneIn) == 0) {
    racks_.emplace(seed + 1, *user_);
    node_cpus_ = kNodeCpus / 2;
  } else if (drains && Rng(seed).below(3) != 0) {
    node_cpus_ = kNodeCpus * 2;
  }
  for (const auto& name : node_names()) create_node(name);
  for (const char* name : kQueues) create_queue(name);
  create_priority();
  create_disk();
  for (const auto& name : names_) create_job(name);
}

// ---- Objects

const std::vector<std::string>& Cluster::node_names() const {
  static const std::vector<std::string> kWithoutRacks{"a", "b", "c"};
  return racks_ ? Racks::nodes() : kWithoutRacks;
}

std::set<std::string> Cluster::not_installed() const {
  return racks_ ? racks_->not_installed() : std::set<std::string>{};
}

void Cluster::create_node(const std::string& name) {
  const Json amounts{{"cpu", std::to_string(node_cpus_)}, {"memory", "64Gi"}, {"pods", "100"}};
  const Json ready{{"type", "Ready"}, {"status", "True"}};
  Json labels = racks_ ? Racks::labels_of(name) : Json::object();
  labels[kHostLabel] = name;
  const Json node{{"apiVersion", "v1"},
                  {"kind", "Node"},
                  {"metadata", {{"name", name}, {"labels", labels}}},
                  {"status", {{"allocatable", amounts}, {"conditions", Json::array({ready})}}}};
  MUSTER_CHECK(user_->create(api::Kind::kNode, "", node).has_value());
  nodes_[name] = NodeState{};
}

void Cluster::create_queue(const std::string& name) {
  const Json cpu{{"name", "cpu"}, {"nominal", std::to_string(kQueueCpus)}};
  const Json queue{{"apiVersion", contract::kApiVersion},
                   {"kind", contract::kKindTrainingQueue},
                   {"metadata", {{"name", name}}},
                   {"spec",
                    {{"cohort", "sim"},
                     {"resources", Json::array({cpu})},
                     {"preemption", {{"minimumRunSeconds", name == kQueues[0] ? 10 : 0}}}}}};
  // Refused where it is there.
  (void)user_->create(api::Kind::kTrainingQueue, "", queue);
}

// Each is refused where it is there.

void Cluster::create_priority() {
  const Json high{{"apiVersion", "scheduling.k8s.io/v1"},
                  {"kind", "PriorityClass"},
                  {"metadata", {{"name", kHighPriority}}},
                  {"value", 100}};
  (void)user_->create(api::Kind::kPriorityClass, "", high);
}

void Cluster::create_disk() {
  const Json here{{"key", kHostLabel}, {"operator", "In"}, {"values", Json::array({kDiskNode})}};
  const Json term{{"matchExpressions", Json::array({here})}};
  const Json volume{
      {"apiVersion", "v1"},
      {"kind", "PersistentVolume"},
      {"metadata", {{"name", kDisk}}},
      {"spec",
       {{"claimRef", {{"namespace", kNamespace}, {"name", kDisk}}},
        {"nodeAffinity", {{"required", {{"nodeSelectorTerms", Json::array({term})}}}}}}}};
  (void)user_->create(api::Kind::kPersistentVolume, "", volume);
  const Json claim{{"apiVersion", "v1"},
                   {"kind", "PersistentVolumeClaim"},
                   {"metadata", {{"name", kDisk}, {"namespace", kNamespace}}},
                   {"spec", {{"volumeName", kDisk}}}};
  (void)user_->create(api::Kind::kPersistentVolumeClaim, kNamespace, claim);
}

void Cluster::touch(api::Kind kind, const api::ObjectKey& key) {
  const Json annotations{{"example.com/touched", std::to_string(rng_.below(1'000'000))}};
  patch(kind, key, "", Json{{"metadata", {{"annotations", annotations}}}});
}

void Cluster::priority_event() {
  const api::ObjectKey key{"", kHighPriority};
  const std::uint64_t luck = rng_.below(6);
  if (luck == 0) {
    (void)user_->remove(api::Kind::kPriorityClass, key, {});
    return;
  }
  if (luck == 1) return create_priority();
  for (int i = 0; i < 2; ++i) touch(api::Kind::kPriorityClass, key);
}

void Cluster::disk_event() {
  const api::ObjectKey volume{"", kDisk}, claim{kNamespace, kDisk};
  switch (rng_.below(6)) {
    case 0:
      (void)user_->remove(api::Kind::kPersistentVolume, volume, {});
      return;
    case 1:
      (void)user_->remove(api::Kind::kPersistentVolumeClaim, claim, {});
      return;
    case 2:
      return create_disk();
    default:
      for (int i = 0; i < 2; ++i) {
        touch(api::Kind::kPersistentVolume, volume);
        touch(api::Kind::kPersistentVolumeClaim, claim);
      }
  }
}

std::vector<api::TrainingQueue> Cluster::queues() const {
  const auto page = user_->list(api::Kind::kTrainingQueue, {"", "", 0, ""});
  MUSTER_CHECK(page.has_value());
  std::vector<api::TrainingQueue> queues;
  for (const auto& item : page->items) queues.push_back(api::read_training_queue(item).first);
  return queues;
}

std::map<std::string, std::string> Cluster::budgets() const {
  const auto page = user_->list(api::Kind::kPodDisruptionBudget, {kNamespace, "", 0, ""});
  MUSTER_CHECK(page.has_value());
  std::map<std::string, std::string> budgets;
  for (const auto& item : page->items) {
    const Json& meta = item["metadata"];
    budgets[meta["name"]] = meta["ownerReferences"][0]["uid"];
  }
  return budgets;
}

std::string Cluster::everything() const {
  std::string all;
  for (const auto kind :
       {api::Kind::kTrainingJob, api::Kind::kPod, api::Kind::kService, api::Kind::kEvent,
        api::Kind::kPodDisruptionBudget, api::Kind::kTrainingQueue, api::Kind::kPodGroup,
        api::Kind::kWorkload, api::Kind::kLease}) {
    const bool namespaced = api::info_of(kind).namespaced;
    const auto page = user_->list(kind, {namespaced ? kNamespace : "", "", 0, ""});
    MUSTER_CHECK(page.has_value());
    for (const auto& item : page->items) all += dump_json(item);
  }
  return all;
}

/// An administrator who cannot make up his mind.
void Cluster::queue_event() {
  const std::string name = kQueues[rng_.below(std::size(kQueues))];
  const api::ObjectKey key{"", name};
  switch (rng_.below(6)) {
    case 0:
      (void)user_->remove(api::Kind::kTrainingQueue, key, {});
      return;
    case 1:
      return create_queue(name);
    case 2:
      return patch(api::Kind::kTrainingQueue, key, "", Json{{"spec", {{"suspend", true}}}});
    case 3:
      return patch(api::Kind::kTrainingQueue, key, "",
                   Json{{"spec", {{"namespaces", Json::array({"elsewhere"})}}}});
    case 4: {
      const Json cpu{{"name", "cpu"}, {"nominal", std::to_string(rng_.below(5))}};
      return patch(api::Kind::kTrainingQueue, key, "",
                   Json{{"spec", {{"resources", Json::array({cpu})}}}});
    }
    default:
      return patch(api::Kind::kTrainingQueue, key, "",
                   Json{{"spec", {{"suspend", false}, {"namespaces", nullptr}}}});
  }
}

/// Nobody's pods are held back: only what is read of Workloads is tried.
void Cluster::kueue_event() {
  constexpr auto kKind = api::Kind::kKueueWorkload;
  const std::string name = names_[kueue_rng_.below(names_.size())];
  const api::ObjectKey key{kNamespace, "group-" + name};
  const std::uint64_t luck = kueue_rng_.below(8);
  if (luck == 0) return (void)user_->remove(kKind, key, {});
  if (luck < 3) {
    Json meta{{"name", key.name}, {"namespace", kNamespace}};
    const auto all = pods();
    if (!all.empty()) {
      const api::Pod& pod = all[kueue_rng_.below(all.size())];
      const Json owner{
          {"apiVersion", "v1"}, {"kind", "Pod"}, {"name", pod.meta.name}, {"uid", pod.meta.uid}};
      meta["ownerReferences"] = Json::array({owner});
    }
    const api::KindInfo& info = api::info_of(kKind);
    (void)user_->create(
        kKind, kNamespace,
        Json{{"apiVersion", info.api_version}, {"kind", info.kind}, {"metadata", meta}});
    return;
  }
  for (int i = 0; i < 2; ++i) {
    const Json said{{"type", "QuotaReserved"},
                    {"status", "False"},
                    {"reason", "Pending"},
                    {"message", "place " + std::to_string(kueue_rng_.below(1000)) + " in line"}};
    patch(kKind, key, "", Json{{"status", {{"conditions", Json::array({said})}}}});
  }
}

/// How close together the workers of a job shall stand; null: it does not ask.
Json Cluster::drawn_topology() {
  switch (rng_.below(6)) {
    case 0:
    case 1:
    case 2:
      return Json{{"required", "rack"}};
    case 3:
      return Json{{"required", "block"}};
    case 4:
      return Json{{"preferred", "rack"}};
    default:
      return nullptr;
  }
}

void Cluster::create_job(const std::string& name) {
  // Often the first borrows what the second has a right to: so there is something to take back.
  const bool borrows = name == names_[0] && rng_.below(3) != 0;
  const bool owns = name == names_[1] && rng_.below(3) != 0;
  // Where nodes are emptied the third has nobody to spare.
  const bool has_least = drains_ && name == names_[2];
  const int count = borrows     ? kNodeCpus
                    : owns      ? kQueueCpus
                    : has_least ? 1 + static_cast<int>(rng_.below(2))
                                : 1 + static_cast<int>(rng_.below(3));
  Json spec{{"worker", {{"count", count}, {"resources", {{"cpu", "1"}, {"memory", "512Mi"}}}}},
            {"restart", {{"policy", "OnFailure"}, {"maxRestarts", 1000}, {"backoffSeconds", 1}}}};
  const bool engine = has_least || borrows || rng_.below(2) == 0;
  if (engine) {
    spec["training"] = engine_spec();
    if (rng_.below(3) == 0) {
      spec["training"]["checkpoint"] = Json{{"path", "/ckpt"}, {"volumeClaimName", kDisk}};
    }
  } else {
    spec["worker"]["command"] = Json::array({"train"});
  }
  if (has_least || borrows || (!owns && rng_.below(2) == 0)) {
    spec["worker"]["min"] = has_least ? count : 1;
    spec["worker"]["max"] = 4;
  }
  if (rng_.below(6) == 0) spec["scheduling"] = "Unplaced";
  if (rng_.below(4) != 0) spec["ttlSecondsAfterFinished"] = 10;
  if (rng_.below(3) != 0) spec["queueName"] = kQueues[rng_.below(std::size(kQueues))];
  if (borrows || owns) spec["queueName"] = kQueues[owns ? 1 : 0];
  if (rng_.below(3) == 0) spec["priorityClassName"] = kHighPriority;
  if (racks_ && !spec.contains("scheduling")) {
    if (Json topology = drawn_topology(); !topology.is_null()) spec["topology"] = topology;
  }
  const bool strict = rng_.below(6) == 0;
  if (strict) spec["restart"]["maxRestarts"] = 1;
  const Json job{{"apiVersion", contract::kApiVersion},
                 {"kind", contract::kKindTrainingJob},
                 {"metadata", {{"name", name}, {"namespace", kNamespace}}},
                 {"spec", spec}};
  const auto made = user_->create(api::Kind::kTrainingJob, kNamespace, job);
  if (!made) return;  // the last one of that name is still there
  const auto read = api::read_training_job(*made).first;
  if (strict) may_fail_.insert(read.meta.uid);
  // Workers of an earlier release say nothing of memberships.
  if (has_least || (engine && rng_.below(4) != 0)) elastic_.insert(read.meta.uid);
}

std::vector<api::Pod> Cluster::pods() const {
  if (seen_pods_.version == server_.resource_version()) return seen_pods_.objects;
  const auto page = user_->list(api::Kind::kPod, {kNamespace, "", 0, ""});
  MUSTER_CHECK(page.has_value());
  std::vector<api::Pod> pods;
  for (const auto& item : page->items) {
    auto pod = api::parse_pod(item);
    MUSTER_CHECK_MSG(pod.has_value(), "pod");
    pods.push_back(std::move(*pod));
  }
  seen_pods_ = {server_.resource_version(), pods};
  return pods;
}

std::vector<api::TrainingJob> Cluster::jobs() const {
  if (seen_jobs_.version == server_.resource_version()) return seen_jobs_.objects;
  const auto page = user_->list(api::Kind::kTrainingJob, {kNamespace, "", 0, ""});
  MUSTER_CHECK(page.has_value());
  std::vector<api::TrainingJob> jobs;
  for (const auto& item : page->items) jobs.push_back(api::read_training_job(item).first);
  seen_jobs_ = {server_.resource_version(), jobs};
  return jobs;
}

void Cluster::patch(api::Kind kind, const api::ObjectKey& key, const std::string& subresource,
                    const Json& patch) {
  // Whoever lost a race has done nothing.
  (void)user_->merge_patch(kind, key, subresource, patch);
}

void Cluster::patch_spec(const std::string& job, const Json& spec) {
  patch(api::Kind::kTrainingJob, {kNamespace, job}, "", Json{{"spec", spec}});
}

// ---- Nodes

void Cluster::set_ready(const std::string& name, bool ready) {
  const Json condition{{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}};
  patch(api::Kind::kNode, {"", name}, "status",
        Json{{"status", {{"conditions", Json::array({condition})}}}});
}

void Cluster::tell_silent_nodes() {
  for (const auto& [name, state] : nodes_) {
    const bool silent = state.exists && !state.answers;
    if (silent && clock_.mono_now() - state.silent_since >= kSilentMost) set_ready(name, false);
  }
}

void Cluster::node_event() {
  const std::string& name = node_names()[rng_.below(node_names().size())];
  NodeState& state = nodes_[name];
  if (!state.exists) {
    create_node(name);
    return;
  }
  switch (rng_.below(5)) {
    case 0:
      state.answers = !state.answers;
      state.silent_since = clock_.mono_now();
      if (state.answers) set_ready(name, true);
      return;
    case 1: {
      state.exists = false;
      (void)user_->remove(api::Kind::kNode, {"", name}, {});
      const auto all = pods();
      const auto is_lost = [&](const auto& pod) { return pod.node_name == name && !pod.ended(); };
      lost_ += std::any_of(all.begin(), all.end(), is_lost) ? 1 : 0;
      for (const auto& pod : all) {
        // The pod collector's part.
        if (pod.node_name == name) (void)user_->remove(api::Kind::kPod, pod.meta.key(), {"", 0});
      }
      return;
    }
    default:
      state.refuses = !state.refuses;
  }
}

void Cluster::close_node(const std::string& name, bool on) {
  nodes_[name].closed = on;
  const Json taint{{"key", "karpenter.sh/disrupted"}, {"effect", "NoSchedule"}};
  Json spec{{"unschedulable", on}};
  if (taints_) spec = Json{{"taints", on ? Json::array({taint}) : Json::array()}};
  patch(api::Kind::kNode, {"", name}, "", Json{{"spec", spec}});
}

/// Whether the budgets allow it, as the API server reckons.
bool Cluster::lets_go(const api::Pod& pod) const {
  const auto* owner = pod.meta.controller();
  const auto page = user_->list(api::Kind::kPodDisruptionBudget, {kNamespace, "", 0, ""});
  MUSTER_CHECK(page.has_value());
  const auto all = pods();
  for (const auto& budget : page->items) {
    if (owner == nullptr || budget["metadata"]["ownerReferences"][0]["uid"] != owner->uid) continue;
    const auto healthy = std::count_if(all.begin(), all.end(), [&](const api::Pod& other) {
      const auto* of = other.meta.controller();
      return of != nullptr && of->uid == owner->uid && !other.meta.deletion_time &&
             other.phase == api::PodPhase::kRunning;
    });
    if (healthy <= budget["spec"]["minAvailable"].get<int>()) return false;
  }
  return true;
}

void Cluster::drain_event() {
  const std::string& name = node_names()[rng_.below(node_names().size())];
  const NodeState& state = nodes_[name];
  if (!state.exists) return;
  if (!state.closed || rng_.below(12) == 0) return close_node(name, !state.closed);
  for (const auto& pod : pods()) {
    const bool runs = pod.phase == api::PodPhase::kRunning && !pod.meta.deletion_time;
    if (pod.node_name == name && runs && lets_go(pod)) return evict(pod);
  }
}

/// How many of the job's workers train and are not asked to leave.
int Cluster::training(const std::string& uid) const {
  const auto all = pods();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const api::Pod& pod) {
    const auto* owner = pod.meta.controller();
    return owner != nullptr && owner->uid == uid && pod.phase == api::PodPhase::kRunning &&
           !pod.meta.deletion_time && crews_.is_member(uid, pod);
  }));
}

/// An eviction, where the budgets allow it. They are there so that enough train on.
std::string Cluster::evict_if_let(const api::Pod& pod) {
  const bool runs = pod.phase == api::PodPhase::kRunning;
  // Of who does not run Kubernetes' budgets keep nobody.
  if (runs && !lets_go(pod)) return "";
  evict(pod);
  const auto* owner = pod.meta.controller();
  if (!runs || owner == nullptr || was_forged(owner->uid)) return "";
  if (!crews_.is_member(owner->uid, pod)) return "";
  for (const auto& job : jobs()) {
    if (job.meta.uid != owner->uid || job.spec.worker.min == job.spec.worker.max) continue;
    const int left = training(owner->uid);
    if (left < job.spec.worker.min) {
      return "an eviction from job " + job.meta.name + " was let through, and " +
             std::to_string(left) + " of at least " + std::to_string(job.spec.worker.min) +
             " train on";
    }
  }
  return "";
}

/// Of a node that nobody could empty: a job that trains there says what it waits for.
std::string Cluster::why_not_emptied(const std::vector<api::Pod>& left) {
  for (const auto& pod : left) {
    const auto* owner = pod.meta.controller();
    for (const auto& job : jobs()) {
      if (owner == nullptr || job.meta.uid != owner->uid || was_forged(owner->uid)) continue;
      // Of workers of an earlier release nobody knows whether they train.
      if (job.spec.training && training(owner->uid) == 0) continue;
      const auto* running = job.status.condition("Running");
      const std::string said = running == nullptr ? "nothing" : running->message;
      const bool is_said =
          said.find("node " + emptying_) != std::string::npos ||
          said.find(" wait") != std::string::npos;  // "worker 1 waits", "2 workers wait"
      if (!is_said) {
        return "node " + emptying_ + " cannot be emptied, and job " + job.meta.name +
               " does not say why: " + said;
      }
    }
  }
  ++kept_;
  return "";
}

std::string Cluster::empty_node() {
  if (emptying_.empty()) {
    const auto& names = node_names();
    emptying_ = names[next_to_empty_++ % names.size()];
    rounds_emptying_ = 0;
    close_node(emptying_, true);
    return "";
  }
  std::vector<api::Pod> left;
  for (const auto& pod : pods()) {
    if (pod.node_name == emptying_ && !pod.ended()) left.push_back(pod);
  }
  if (left.empty() || ++rounds_emptying_ > kRoundsEmptyingMost) {
    std::string wrong = left.empty() ? "" : why_not_emptied(left);
    emptied_ += left.empty() ? 1 : 0;
    close_node(emptying_, false);
    emptying_.clear();
    return wrong;
  }
  for (const auto& pod : left) {
    if (pod.meta.deletion_time) continue;
    if (std::string wrong = evict_if_let(pod); !wrong.empty()) return wrong;
  }
  return "";
}

// ---- Scheduler, kubelets, workers

std::map<std::string, int> Cluster::used() const {
  std::map<std::string, int> used;
  for (const auto& pod : pods()) {
    if (!pod.ended() && !pod.node_name.empty()) ++used[pod.node_name];
  }
  return used;
}

bool Cluster::can_act(const api::Pod& pod) const {
  const auto found = nodes_.find(pod.node_name);
  return found != nodes_.end() && found->second.exists && found->second.answers;
}

void Cluster::refuse(const api::Pod& pod) {
  const Json condition{{"type", "PodScheduled"},
                       {"status", "False"},
                       {"reason", "Unschedulable"},
                       {"message", "0/3 nodes are available"}};
  patch(api::Kind::kPod, pod.meta.key(), "status",
        Json{{"status", {{"conditions", Json::array({condition})}}}});
}

void Cluster::bind(const api::Pod& pod) {
  if (!pod.node_name.empty() || pod.meta.deletion_time) return;
  const auto taken = used();
  for (const auto& [name, state] : nodes_) {
    if (!pod.required_node.empty() && pod.required_node != name) continue;
    const auto found = taken.find(name);
    const int count = found == taken.end() ? 0 : found->second;
    const bool takes = state.exists && state.answers && !state.closed && !state.refuses;
    if (!takes || count >= node_cpus_) continue;
    (void)server_.send(binding_request(pod, name));
    return;
  }
  refuse(pod);
}

void Cluster::run(const api::Pod& pod) {
  if (pod.phase != api::PodPhase::kPending || pod.meta.deletion_time) return;
  patch(api::Kind::kPod, pod.meta.key(), "status",
        Json{{"status",
              {{"phase", "Running"},
               {"containerStatuses", container_status("running", Json::object())}}}});
}

void Cluster::end(const api::Pod& pod, int code, const std::string& message) {
  if (pod.ended()) return;
  const Json content{
      {"exitCode", code}, {"reason", code == 0 ? "Completed" : "Error"}, {"message", message}};
  patch(api::Kind::kPod, pod.meta.key(), "status",
        Json{{"status",
              {{"phase", code == 0 ? "Succeeded" : "Failed"},
               {"containerStatuses", container_status("terminated", content)}}}});
}

void Cluster::leave(const api::Pod& pod) {
  if (!pod.meta.deletion_time) return;
  end(pod, contract::exit_code::kPlannedLeave, "");
  (void)user_->remove(api::Kind::kPod, pod.meta.key(), {pod.meta.uid, 0});
}

void Cluster::evict(const api::Pod& pod) {
  const Json condition{
      {"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}};
  patch(api::Kind::kPod, pod.meta.key(), "status",
        Json{{"status", {{"conditions", Json::array({condition})}}}});
  (void)user_->remove(api::Kind::kPod, pod.meta.key(), {pod.meta.uid, -1});
}

int Cluster::code_of_failure(const api::Pod& pod) {
  const auto* owner = pod.meta.controller();
  if (owner != nullptr && rng_.below(40) == 0) {
    may_fail_.insert(owner->uid);
    return contract::exit_code::kNumerics;
  }
  constexpr int kCodes[] = {1, 137, contract::exit_code::kPeerLost,
                            contract::exit_code::kPlannedLeave, 255};
  return kCodes[rng_.below(std::size(kCodes))];
}

const api::Pod* Cluster::any_pod() {
  seen_ = pods();
  return seen_.empty() ? nullptr : &seen_[rng_.below(seen_.size())];
}

bool Cluster::hears(const api::Pod& pod) const {
  return can_act(pod) && !cut_.contains(pod.meta.name);
}

bool Cluster::is_elastic(const api::Pod& pod) const {
  const auto* owner = pod.meta.controller();
  return owner != nullptr && elastic_.contains(owner->uid);
}

void Cluster::advance_crews() {
  const auto pods_now = pods();
  for (const auto& job : jobs()) {
    if (!elastic_.contains(job.meta.uid)) continue;
    crews_.advance(job, pods_now, [this](const api::Pod& pod) { return hears(pod); });
  }
}

std::vector<ProgressReport> Cluster::honest_reports() {
  advance_crews();
  std::vector<ProgressReport> reports;
  for (const auto& pod : pods()) {
    const auto* owner = pod.meta.controller();
    if (owner == nullptr || !is_elastic(pod) || !can_act(pod)) continue;
    if (pod.phase != api::PodPhase::kRunning) continue;
    ProgressReport report;
    report.job = std::string(kNamespace) + "/" + owner->name;
    report.slot = std::max(pod.slot(), 0);
    report.attempt = std::max(pod.attempt(), 0);
    tell_step(report, steps_[owner->uid]);
    crews_.tell(report, pod, owner->uid);
    reports.push_back(std::move(report));
  }
  return reports;
}

std::optional<std::pair<std::string, WitnessRequest>> Cluster::question() {
  const auto pods_now = pods();
  const bool other_side = rng_.below(2) == 0;
  for (const auto& job : jobs()) {
    if (!elastic_.contains(job.meta.uid)) continue;
    auto asked = crews_.question(
        job, pods_now, [this](const api::Pod& pod) { return hears(pod); }, other_side);
    if (!asked) continue;
    if (rng_.below(8) == 0) asked->attempt += 1;  // one that was replaced
    return std::pair{job.meta.uid, std::move(*asked)};
  }
  return std::nullopt;
}

void Cluster::event() {
  tell_silent_nodes();
  if (rng_.below(2) == 0) advance_crews();
  if (rng_.below(25) == 0) return node_event();
  const api::Pod* pod = any_pod();
  if (pod == nullptr) return;
  if (pod->node_name.empty()) return bind(*pod);
  if (rng_.below(40) == 0) return evict(*pod);
  if (!can_act(*pod)) return;
  if (pod->meta.deletion_time) return leave(*pod);
  if (pod->phase == api::PodPhase::kPending) return run(*pod);
  if (is_elastic(*pod)) {
    // They live longer, so that others can come and go meanwhile.
    if (rng_.below(8) == 0 && !cut_.erase(pod->meta.name)) cut_.insert(pod->meta.name);
    if (rng_.below(3) != 0) return;
  }
  if (rng_.below(3) == 0) return end(*pod, 0, rng_.below(4) == 0 ? "\xff{\"slot\":0" : "");
  if (rng_.below(4) == 0) return end(*pod, code_of_failure(*pod), "it \x01 broke");
}

// ---- People

void Cluster::foreign_write(const std::string& path) {
  for (const auto& name : names_) {
    if (path.find("/" + name + "/") == std::string::npos) continue;
    touch(api::Kind::kTrainingJob, {kNamespace, name});
  }
}

/// Statuses that others write, labels that others edit.
void Cluster::meddle(const std::string& job) {
  const auto read = user_->get(api::Kind::kTrainingJob, {kNamespace, job});
  if (!read) return;
  const auto known = api::read_training_job(*read).first;
  const Json before = read->value("status", Json::object());
  Json status = Json::object();
  switch (rng_.below(5)) {
    case 0:
      for (const auto& [key, value] : before.items()) status[key] = nullptr;
      break;
    case 1:
      status = Json{{"placement", Json::array()}};
      break;
    case 2:
      status = Json{{"phase", "Nonsense"}, {"workers", "9/9"}, {"targetWorkers", 77}};
      break;
    case 3:
      status = Json{{"conditions", Json::array()}};
      break;
    default: {
      const api::Pod* pod = any_pod();
      if (pod == nullptr) return;
      const Json labels{{std::string(contract::kLabelAttempt), "7"},
                        {std::string(contract::kLabelSlot), nullptr}};
      patch(api::Kind::kPod, pod->meta.key(), "", Json{{"metadata", {{"labels", labels}}}});
      return;
    }
  }
  forged_.insert(known.meta.uid);
  may_fail_.insert(known.meta.uid);
  patch(api::Kind::kTrainingJob, {kNamespace, job}, "status", Json{{"status", status}});
}

void Cluster::count_event(const std::string& job) {
  const auto read = user_->get(api::Kind::kTrainingJob, {kNamespace, job});
  if (!read) return;
  const int wish = 1 + static_cast<int>(rng_.below(kNodeCpus));
  const bool has_least = (*read)["spec"]["worker"].contains("min");
  const int least = has_least ? api::read_training_job(*read).first.spec.worker.min : 1;
  patch_spec(job, {{"worker", {{"count", std::max(least, wish)}}}});
}

/// Another least size of a job that has one, of one with places if there is any. Of a job of one
/// size alone there is no budget.
void Cluster::least_event() {
  const api::TrainingJob* chosen = nullptr;
  const auto all = jobs();
  for (const auto& job : all) {
    const bool has_room = job.spec.worker.max == kNodeCpus && job.spec.worker.min < kNodeCpus;
    const bool was_rigid = job.spec.worker.min == kNodeCpus && elastic_.contains(job.meta.uid);
    if (!has_room && !was_rigid) continue;
    if (chosen == nullptr || !job.status.placement.empty()) chosen = &job;
  }
  if (chosen == nullptr) return;
  constexpr int kLeasts[] = {1, 2, kNodeCpus, kNodeCpus};
  const int least = kLeasts[rng_.below(std::size(kLeasts))];
  patch_spec(chosen->meta.name, {{"worker",
                                  {{"min", least},
                                   {"max", kNodeCpus},
                                   {"count", std::max(least, chosen->spec.worker.count)}}}});
}

void Cluster::racks_event() {
  racks_->event();
  const auto all = jobs();
  if (all.empty() || rng_.below(8) != 0) return;
  const auto& job = all[rng_.below(all.size())];
  // Of one that nobody places nothing can be required.
  if (job.spec.scheduling == "Unplaced") return;
  Json topology = drawn_topology();
  if (!topology.is_null()) {
    for (const char* level : {"required", "preferred"}) {
      if (!topology.contains(level)) topology[level] = nullptr;
    }
  }
  // Refused unless it is suspended.
  patch_spec(job.meta.name, {{"topology", topology}});
}

void Cluster::user_event() {
  const std::string& job = names_[rng_.below(names_.size())];
  switch (rng_.below(14)) {
    case 12:
      return priority_event();
    case 13:
      return disk_event();
    case 10:
      return queue_event();
    case 11:
      if (rng_.below(3) != 0) {
        return patch_spec(
            job, {{"priorityClassName", rng_.below(2) == 0 ? Json(nullptr) : Json(kHighPriority)}});
      }
      return patch_spec(job, {{"queueName", kQueues[rng_.below(std::size(kQueues))]}});
    case 0:
    case 1:
      return patch_spec(job, {{"suspend", true}});
    case 2:
    case 3:
    case 4:
      return patch_spec(job, {{"suspend", false}});
    case 5:
      return count_event(job);
    case 6: {
      const api::Pod* pod = any_pod();
      if (pod == nullptr) return;
      const int grace = rng_.below(2) == 0 ? 0 : -1;
      (void)user_->remove(api::Kind::kPod, pod->meta.key(), {pod->meta.uid, grace});
      return;
    }
    case 7:
      if (rng_.below(4) == 0) meddle(job);
      return;
    case 8:
      if (rng_.below(3) == 0) (void)user_->remove(api::Kind::kTrainingJob, {kNamespace, job}, {});
      return;
    default:
      create_job(job);  // of the same name, with another uid, where it was deleted
  }
}

ProgressReport Cluster::report() {
  ProgressReport report;
  const std::string& name = names_[rng_.below(names_.size())];
  report.job = std::string(kNamespace) + "/" + name;
  const auto pods_now = pods();
  for (const auto& pod : pods_now) {
    const auto* owner = pod.meta.controller();
    if (owner == nullptr || owner->name != name || pod.phase != api::PodPhase::kRunning) continue;
    report.slot = std::max(pod.slot(), 0);
    report.attempt = std::max(pod.attempt(), 0);
    auto& step = steps_[owner->uid];
    tell_step(report, step += static_cast<std::int64_t>(rng_.below(20)));
    report.checkpoint_durable = pod.meta.uid.back() % 2 == 0;
    report.loss = "0.5";
    report.membership_epoch = 0;
    report.members.clear();
    report.changes.clear();
    if (elastic_.contains(owner->uid)) crews_.tell(report, pod, owner->uid);
  }
  if (rng_.below(8) == 0) {
    // A liar: slots and attempts that are not its own, numbers and texts without sense.
    report.slot = static_cast<int>(rng_.below(9)) - 1;
    report.attempt = static_cast<int>(rng_.below(5));
    report.step = -5;
    report.loss = "\xfe not a number";
    report.checkpoint_path = std::string(3000, '\x01');
    report.samples_per_second = 1e300;
    report.membership_epoch = static_cast<std::int64_t>(rng_.below(3)) << 40;
    report.members = {0, 1, 2, 3};
  }
  return report;
}

// ---- The end of all trouble

void Cluster::calm() {
  cut_.clear();
  for (const auto& name : node_names()) {
    NodeState& state = nodes_[name];
    if (!state.exists) create_node(name);
    if (state.closed) close_node(name, false);
    nodes_[name] = NodeState{};
    set_ready(name, true);
  }
  if (racks_) racks_->calm();
  create_priority();
  create_disk();
  for (const char* name : kQueues) {
    create_queue(name);
    const Json cpu{{"name", "cpu"}, {"nominal", std::to_string(kQueueCpus)}};
    patch(api::Kind::kTrainingQueue, {"", name}, "",
          Json{{"spec",
                {{"suspend", false}, {"namespaces", nullptr}, {"resources", Json::array({cpu})}}}});
  }
  for (const auto& name : names_) {
    create_job(name);
    // Whoever has a right to what others borrow sometimes comes when they already train.
    const bool is_late = name == names_[1] && rng_.below(2) == 0;
    patch_spec(name, {{"suspend", is_late}});
  }
}

/// Whether others of its job have ended with 0: so does it, within moments.
bool Cluster::is_at_end(const api::Pod& pod) const {
  const auto* owner = pod.meta.controller();
  const auto all = pods();
  return std::any_of(all.begin(), all.end(), [&](const api::Pod& other) {
    const auto* of = other.meta.controller();
    return owner != nullptr && of != nullptr && of->uid == owner->uid &&
           other.phase == api::PodPhase::kSucceeded;
  });
}

/// A worker that does its part: a member ends its work with the others, one that nobody can let in
/// gives up.
void Cluster::finish(const api::Pod& pod) {
  const auto* owner = pod.meta.controller();
  if (!is_elastic(pod)) return end(pod, 0, "");
  for (const auto& job : jobs()) {
    if (job.meta.uid != owner->uid) continue;
    const bool starts = pod.attempt() <= job.status.start_attempt || job.status.start_attempt < 0;
    const bool member = crews_.is_member(owner->uid, pod);
    // A while of training, so that there is something to join.
    if (rng_.below(3) == 0) end(pod, starts || member ? 0 : contract::exit_code::kPeerLost, "");
  }
}

void Cluster::good_round() {
  if (++good_rounds_ == 3) patch_spec(names_[1], {{"suspend", false}});
  if (!emptying_.empty()) close_node(std::exchange(emptying_, ""), false);
  do_part(true);
}

std::string Cluster::drain_round() {
  // First all that failed before is tried again.
  std::string wrong = drain_rounds_ >= kQuietRounds ? empty_node() : "";
  if (drain_rounds_++ == 0) {
    for (const auto& job : jobs()) {
      const bool has_budget = job.spec.worker.min < job.spec.worker.max;
      if (job.meta.name != names_[2] || !has_budget) continue;
      patch_spec(names_[2], {{"worker", {{"count", job.spec.worker.min}}}});
    }
  }
  do_part(false);
  return wrong;
}

void Cluster::do_part(bool ends) {
  advance_crews();
  for (const auto& pod : pods()) {
    if (pod.node_name.empty()) {
      bind(pod);
    } else if (pod.meta.deletion_time) {
      leave(pod);
    } else if (pod.phase == api::PodPhase::kPending) {
      run(pod);
    } else if (pod.phase == api::PodPhase::kRunning && (ends || is_at_end(pod))) {
      finish(pod);
    }
  }
}

}  // namespace muster::sim
