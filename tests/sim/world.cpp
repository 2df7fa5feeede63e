#include "tests/sim/world.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "tests/sim/cluster.h"

namespace muster::sim {
namespace {
constexpr const char* kOwnNamespace = "default";
constexpr int kMaxRounds = 200'000;
}  // namespace

World::World(std::uint64_t seed, std::function<kube::HttpTransport*(kube::HttpTransport&)> wrap)
    : server({&clock, seed}),
      user(kube::make_rest_client(server)),
      wrap_(std::move(wrap)),
      seed_(seed) {
  restart_operator();
}

void World::restart_operator() {
  op.reset();
  kube::HttpTransport* transport = wrap_ ? wrap_(server) : &server;
  op = std::make_unique<OneOperator>(clock, *transport, ++seed_,
                                     OneOperatorOptions{.prices = prices ? &*prices : nullptr});
}

void World::add_node(const std::string& name, int cpus) {
  const Json amounts{{"cpu", std::to_string(cpus)}, {"memory", "64Gi"}, {"pods", "100"}};
  const Json ready{{"type", "Ready"}, {"status", "True"}};
  const Json node{{"apiVersion", "v1"},
                  {"kind", "Node"},
                  {"metadata", {{"name", name}}},
                  {"status", {{"allocatable", amounts}, {"conditions", Json::array({ready})}}}};
  const auto made = user->create(api::Kind::kNode, "", node);
  REQUIRE_MESSAGE(made.has_value(), made.error().message());
  const Json status{{"status", node["status"]}};
  REQUIRE(user->merge_patch(api::Kind::kNode, {"", name}, "status", status).has_value());
}

api::TrainingJob World::create_job(const std::string& name, int count,
                                   const std::function<void(Json&)>& more) {
  Json job{{"apiVersion", contract::kApiVersion},
           {"kind", contract::kKindTrainingJob},
           {"metadata", {{"name", name}, {"namespace", kOwnNamespace}}},
           {"spec",
            {{"worker",
              {{"count", count},
               {"command", Json::array({"train"})},
               {"resources", {{"cpu", "1"}, {"memory", "512Mi"}}}}}}}};
  if (more) more(job);
  const auto made = user->create(api::Kind::kTrainingJob, kOwnNamespace, job);
  REQUIRE_MESSAGE(made.has_value(), made.error().message());
  return this->job(name);
}

Json World::job_json(const std::string& name) const {
  auto json = user->get(api::Kind::kTrainingJob, {kOwnNamespace, name});
  REQUIRE_MESSAGE(json.has_value(), json.error().message());
  return *json;
}

api::TrainingJob World::job(const std::string& name) const {
  return api::read_training_job(job_json(name)).first;
}

void World::create_queue(const std::string& name, int cpus,
                         const std::function<void(Json&)>& more) {
  const Json cpu{{"name", "cpu"}, {"nominal", std::to_string(cpus)}};
  Json queue{{"apiVersion", contract::kApiVersion},
             {"kind", contract::kKindTrainingQueue},
             {"metadata", {{"name", name}}},
             {"spec", {{"resources", Json::array({cpu})}}}};
  if (more) more(queue);
  const auto made = user->create(api::Kind::kTrainingQueue, "", queue);
  REQUIRE_MESSAGE(made.has_value(), made.error().message());
}

void World::create_priority(const std::string& name, int value) {
  const Json one{{"apiVersion", "scheduling.k8s.io/v1"},
                 {"kind", "PriorityClass"},
                 {"metadata", {{"name", name}}},
                 {"value", value}};
  REQUIRE(user->create(api::Kind::kPriorityClass, "", one).has_value());
}

api::TrainingQueue World::queue(const std::string& name) const {
  auto json = user->get(api::Kind::kTrainingQueue, {"", name});
  REQUIRE_MESSAGE(json.has_value(), json.error().message());
  return api::read_training_queue(*json).first;
}

std::vector<api::Pod> World::pods() const {
  const auto page = user->list(api::Kind::kPod, {kOwnNamespace, "", 0, ""});
  REQUIRE(page.has_value());
  std::vector<api::Pod> pods;
  for (const auto& item : page->items) {
    auto pod = api::parse_pod(item);
    REQUIRE_MESSAGE(pod.has_value(), pod.error().message());
    pods.push_back(*pod);
  }
  return pods;
}

std::int64_t World::status_writes() const {
  const auto counts = server.request_counts();
  const auto found = counts.find("patch trainingjobs/status");
  return found == counts.end() ? 0 : found->second;
}

bool World::has_pod(const std::string& name) const {
  return user->get(api::Kind::kPod, {kOwnNamespace, name}).has_value();
}

void World::stagger(std::uint64_t choice) {
  const std::size_t kinds = op->pumps.size();
  const std::size_t which = choice % (kinds + 2);
  if (which < kinds) {
    (void)op->pumps[which]->step(milliseconds(0));
  } else if (which == kinds) {
    op->next = op->loop->step();
  } else {
    (void)op->executor.work();
  }
}

void World::settle() {
  bool busy = true;
  int rounds = 0;
  while (busy) {
    REQUIRE_MESSAGE(++rounds < kMaxRounds, "the operator never comes to rest");
    busy = false;
    for (auto& pump : op->pumps) {
      while (pump->step(milliseconds(0)) == kube::WatchPump::Did::kWork) {
        busy = true;
        REQUIRE(++rounds < kMaxRounds);
      }
    }
    op->next = op->loop->step();
    if (op->executor.work()) busy = true;
    if (op->next <= clock.mono_now()) busy = true;
  }
}

void World::pass(seconds time) {
  const MonoTime end = clock.mono_now() + time;
  settle();
  while (clock.mono_now() < end) {
    MonoTime wake = std::min(end, clock.mono_now() + seconds(1));
    wake = std::max(std::min(wake, op->next), clock.mono_now() + milliseconds(1));
    clock.advance(wake - clock.mono_now());
    settle();
  }
}

void World::patch_pod(const std::string& name, const Json& status) {
  const auto done =
      user->merge_patch(api::Kind::kPod, {kOwnNamespace, name}, "status", Json{{"status", status}});
  REQUIRE_MESSAGE(done.has_value(), done.error().message());
}

void World::bind_pod(const std::string& name) {
  const auto json = user->get(api::Kind::kPod, {kOwnNamespace, name});
  REQUIRE(json.has_value());
  const auto pod = api::parse_pod(*json);
  REQUIRE(pod.has_value());
  if (!pod->node_name.empty() || pod->required_node.empty()) return;
  const auto answer = server.send(binding_request(*pod, pod->required_node));
  REQUIRE(answer.has_value());
  REQUIRE_MESSAGE(answer->code < 300, answer->body);
}

void World::run_pod(const std::string& name) {
  bind_pod(name);
  const Json running{{"name", "worker"}, {"state", {{"running", Json::object()}}}};
  patch_pod(name, {{"phase", "Running"}, {"containerStatuses", Json::array({running})}});
}

void World::run_all_pods() {
  for (const auto& pod : pods()) {
    if (pod.phase == api::PodPhase::kPending && !pod.meta.deletion_time) run_pod(pod.meta.name);
  }
}

void World::end_pod(const std::string& name, int exit_code, const std::string& message) {
  const Json ended{{"exitCode", exit_code},
                   {"reason", exit_code == 0 ? "Completed" : "Error"},
                   {"message", message}};
  const Json container{{"name", "worker"}, {"state", {{"terminated", ended}}}};
  patch_pod(name, {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                   {"containerStatuses", Json::array({container})}});
}

void World::reap(int exit_code) {
  for (const auto& pod : pods()) {
    if (!pod.meta.deletion_time) continue;
    if (!pod.ended()) end_pod(pod.meta.name, exit_code);
    REQUIRE(user->remove(api::Kind::kPod, pod.meta.key(), {pod.meta.uid, 0}).has_value());
  }
}

}  // namespace muster::sim
