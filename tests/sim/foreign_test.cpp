// What others write: into a job while the operator works at it, and into what the operator made.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr milliseconds kWriteEvery{100};
constexpr milliseconds kHalfAnExchange{10};
constexpr int kWorkers = 2;

/// A way to the server on which time passes, and others who write one job meanwhile, each ten times
/// a second: a label, an annotation or a field of the spec in turn.
class Crowd final : public kube::HttpTransport {
 public:
  explicit Crowd(kube::HttpTransport& real) : real_(real), user_(kube::make_rest_client(real)) {}

  void begin(ManualClock& clock, std::size_t writers, const std::string& job) {
    clock_ = &clock;
    job_ = {"default", job};
    for (std::size_t i = 0; i < writers; ++i) {
      due_.push_back(clock.mono_now() + kWriteEvery * i / writers);
    }
  }
  /// The clock goes on, and whoever is due writes.
  void pass(nanoseconds time) {
    if (clock_ == nullptr) return;
    const MonoTime end = clock_->mono_now() + time;
    while (true) {
      const auto next = std::min_element(due_.begin(), due_.end());
      if (*next > end) break;
      clock_->advance(*next - clock_->mono_now());
      *next += kWriteEvery;
      write(std::to_string(next - due_.begin()));
    }
    clock_->advance(end - clock_->mono_now());
  }

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    pass(kHalfAnExchange);
    auto answer = real_.send(request);
    if (request.method == "PATCH" && answer && answer->code == 409) ++conflicts;
    pass(kHalfAnExchange);
    return answer;
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real_.open_stream(request);
  }

  std::map<std::string, std::string> labels, annotations;  ///< as they were written last
  int time_to_live = 0;                                    ///< likewise
  int written = 0, conflicts = 0;

 private:
  void write(const std::string& writer) {
    const std::string name = "example.com/w" + writer, value = std::to_string(++written);
    Json patch = Json::object();
    switch (written % 3) {
      case 0:
        patch["metadata"]["labels"][name] = labels[name] = value;
        break;
      case 1:
        patch["metadata"]["annotations"][name] = annotations[name] = value;
        break;
      default:
        patch["spec"]["ttlSecondsAfterFinished"] = time_to_live = 1000 + written;
    }
    REQUIRE(user_->merge_patch(api::Kind::kTrainingJob, job_, "", patch));
  }

  kube::HttpTransport& real_;
  std::unique_ptr<kube::ApiClient> user_;
  ManualClock* clock_ = nullptr;
  api::ObjectKey job_;
  std::vector<MonoTime> due_;
};

/// Another controller's condition, beside those that there are.
void add_condition(World& world, const std::string& name) {
  auto job = world.user->get(api::Kind::kTrainingJob, {"default", name});
  REQUIRE(job);
  Json conditions = (*job)["status"]["conditions"];
  conditions.push_back({{"type", "example.com/Seen"},
                        {"status", "True"},
                        {"reason", "Seen"},
                        {"message", "by somebody else"},
                        {"lastTransitionTime", "2026-11-30T00:00:00Z"}});
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "status",
                                  Json{{"status", {{"conditions", conditions}}}}));
}

/// Looks at what is deleted and changed, and counts the pods that are asked for.
class Warden final : public kube::HttpTransport {
 public:
  explicit Warden(kube::HttpTransport& real) : real_(real) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const bool is_child = request.path.find("/trainingjobs/") == std::string::npos &&
                          request.path.find("/events") == std::string::npos;
    if (request.method == "POST" && request.path.ends_with("/pods")) ++pods_asked;
    if ((request.method == "DELETE" || request.method == "PATCH") && is_child) {
      if (!is_ours(request.path)) wrong = request.method + " " + request.path;
    }
    return real_.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real_.open_stream(request);
  }

  std::string uid;  ///< of the one job
  std::string wrong;
  int pods_asked = 0;

 private:
  bool is_ours(const std::string& path) {
    kube::HttpRequest read;
    read.path = path.substr(0, path.find('?'));
    const auto answer = real_.send(read);
    if (!answer || answer->code != 200) return true;  // nothing is there to be touched
    const auto object = parse_json(answer->body);
    REQUIRE(object);
    const Json& meta = object->at("metadata");
    if (!meta.contains("ownerReferences")) return false;
    const Json& owners = meta["ownerReferences"];
    return std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
      return owner.value("controller", false) && owner.value("uid", "") == uid;
    });
  }

  kube::HttpTransport& real_;
};

/// What somebody writes into a child, made from what it is.
struct Change {
  const char* name;
  api::Kind kind;
  std::function<Json(const Json&)> patch;
};

Json of_meta(const char* field, const Json& value) { return {{"metadata", {{field, value}}}}; }

Json stranger(bool controls) {
  return {{"apiVersion", "apps/v1"},
          {"kind", "ReplicaSet"},
          {"name", "somebody"},
          {"uid", "3f3c7e32-0000-4000-8000-000000000000"},
          {"controller", controls}};
}

Json owners_and(const Json& object, const Json& other) {
  Json owners = object["metadata"]["ownerReferences"];
  owners.push_back(other);
  return owners;
}

Json owners_that_control_nothing(const Json& object) {
  Json owners = object["metadata"]["ownerReferences"];
  for (Json& owner : owners) owner["controller"] = false;
  return owners;
}

std::vector<Change> changes() {
  const std::string uid(contract::kLabelJobUid), slot(contract::kLabelSlot);
  const std::string attempt(contract::kLabelAttempt);
  std::vector<Change> all;
  for (const auto kind : {api::Kind::kPod, api::Kind::kService, api::Kind::kPodDisruptionBudget}) {
    all.push_back({"no labels", kind, [](const Json&) { return of_meta("labels", nullptr); }});
    all.push_back({"another job's label", kind,
                   [uid](const Json&) { return of_meta("labels", Json{{uid, "another"}}); }});
    all.push_back(
        {"no owner", kind, [](const Json&) { return of_meta("ownerReferences", nullptr); }});
    all.push_back({"another's", kind, [](const Json&) {
                     return of_meta("ownerReferences", Json::array({stranger(true)}));
                   }});
    all.push_back({"another owner beside ours", kind, [](const Json& object) {
                     return of_meta("ownerReferences", owners_and(object, stranger(false)));
                   }});
    all.push_back({"an owner that controls nothing", kind, [](const Json& object) {
                     return of_meta("ownerReferences", owners_that_control_nothing(object));
                   }});
    all.push_back({"a finalizer", kind, [](const Json&) {
                     return of_meta("finalizers", Json::array({"example.com/keep"}));
                   }});
  }
  all.push_back({"another slot", api::Kind::kPod,
                 [slot](const Json&) { return of_meta("labels", Json{{slot, "7"}}); }});
  all.push_back({"another attempt", api::Kind::kPod,
                 [attempt](const Json&) { return of_meta("labels", Json{{attempt, "99"}}); }});
  all.push_back({"another selector", api::Kind::kService, [uid](const Json&) {
                   return Json{{"spec", {{"selector", {{uid, "another"}}}}}};
                 }});
  all.push_back({"another selector", api::Kind::kPodDisruptionBudget, [uid](const Json&) {
                   return Json{{"spec", {{"selector", {{"matchLabels", {{uid, "another"}}}}}}}};
                 }});
  return all;
}

/// A world whose one job has what somebody then changes.
struct Meddled {
  explicit Meddled(bool is_elastic)
      : world(test::seed(), [this](kube::HttpTransport& real) {
          warden = std::make_unique<Warden>(real);
          return warden.get();
        }) {
    world.add_node("local", 16);
    world.create_job("j", kWorkers, [&](Json& job) {
      job["spec"]["restart"] = {
          {"policy", "OnFailure"}, {"maxRestarts", 100}, {"backoffSeconds", 10}};
      if (!is_elastic) return;
      job["spec"]["worker"].erase("command");
      job["spec"]["worker"]["min"] = 1;
      job["spec"]["worker"]["max"] = 4;
      job["spec"]["training"] = sim::engine_spec();
    });
    warden->uid = world.job("j").meta.uid;
    pass(seconds(90));
  }

  /// Pods run when they are there and leave when they are asked to.
  void pass(seconds time) {
    constexpr seconds kRound{5};
    for (seconds left = time; left.count() > 0; left -= kRound) {
      world.pass(kRound);
      world.reap(143);
      world.run_all_pods();
      world.settle();
      asked.push_back(warden->pods_asked);
      if (asked.size() > 13) asked.pop_front();
      const int in_a_minute = asked.back() - asked.front();
      CHECK_MESSAGE(in_a_minute <= 2 * kWorkers, in_a_minute << " pods in a minute");
    }
  }

  std::vector<Json> children(api::Kind kind) {
    const auto page = world.user->list(kind, {"default", "", 0, ""});
    REQUIRE(page);
    return page->items;
  }

  void patch(api::Kind kind, const Json& object, const Json& patch) {
    const api::ObjectKey key{"default", object["metadata"]["name"]};
    REQUIRE(world.user->merge_patch(kind, key, "", patch));
  }

  void fail_one() {
    for (const auto& pod : world.pods()) {
      const auto* owner = pod.meta.controller();
      const bool is_ours = owner != nullptr && owner->uid == warden->uid;
      if (is_ours && pod.phase == api::PodPhase::kRunning) return world.end_pod(pod.meta.name, 1);
    }
  }

  std::unique_ptr<Warden> warden;
  World world;
  std::deque<int> asked;  ///< every five seconds, for a minute
};

void check_meddled(const Change& change) {
  Meddled meddled(change.kind == api::Kind::kPodDisruptionBudget);
  World& world = meddled.world;
  const auto before = meddled.children(change.kind);
  REQUIRE_FALSE(before.empty());
  std::vector<std::string> others;  // of which somebody has made something that is not ours
  for (const Json& object : before) {
    meddled.patch(change.kind, object, change.patch(object));
    const auto& name = object["metadata"]["name"].get_ref<const std::string&>();
    const auto after = world.user->get(change.kind, {"default", name});
    REQUIRE(after);
    bool is_ours = false;
    for (const Json& owner : (*after)["metadata"].value("ownerReferences", Json::array())) {
      is_ours = is_ours ||
                (owner.value("controller", false) && owner.value("uid", "") == meddled.warden->uid);
    }
    if (!is_ours) others.push_back(name);
  }
  meddled.pass(seconds(180));
  meddled.fail_one();  // It has to work with what was changed.
  meddled.pass(seconds(300));
  for (const auto& name : others) {
    CHECK_MESSAGE(world.user->get(change.kind, {"default", name}).has_value(), name << " is gone");
    // A Service that is another's keeps its name, and so the gang, until somebody deletes it.
    if (change.kind != api::Kind::kService) continue;
    CHECK(world.job("j").status.condition("Admitted")->reason == "NameConflict");
    REQUIRE(world.user->remove(change.kind, {"default", name}, {}));
  }
  for (const Json& object : meddled.children(change.kind)) {
    if (!object["metadata"].contains("finalizers")) continue;
    meddled.patch(change.kind, object, of_meta("finalizers", nullptr));
  }
  meddled.pass(seconds(300));
  const auto version = world.server.resource_version();
  world.pass(seconds(600));
  CHECK_MESSAGE(world.server.resource_version() == version, "it never comes to rest");
  CHECK_MESSAGE(meddled.warden->wrong.empty(), meddled.warden->wrong << " of a stranger");
  int live = 0;
  for (const auto& pod : world.pods()) {
    const auto* owner = pod.meta.controller();
    const bool is_ours = owner != nullptr && owner->uid == meddled.warden->uid;
    live += is_ours && !pod.ended() && !pod.meta.deletion_time ? 1 : 0;
  }
  CHECK(live == kWorkers);
}

}  // namespace

TEST_CASE("others who write a job ten times a second hold it up for no half minute") {
  for (const std::size_t writers : {1, 2, 3}) {
    CAPTURE(writers);
    std::unique_ptr<Crowd> crowd;
    World world(test::seed(), [&](kube::HttpTransport& real) {
      crowd = std::make_unique<Crowd>(real);
      return crowd.get();
    });
    world.add_node("local", 4);
    world.create_job("j", 3);
    const MonoTime began = world.clock.mono_now();
    crowd->begin(world.clock, writers, "j");
    std::optional<MonoTime> ended;
    bool is_watched = false;
    while (world.clock.mono_now() < began + seconds(30)) {
      crowd->pass(milliseconds(50));
      world.settle();
      world.run_all_pods();
      const auto status = world.job("j").status;
      if (!is_watched && status.is_true("Admitted")) {
        add_condition(world, "j");
        is_watched = true;
      }
      if (status.is_true("Running")) {
        for (const auto& pod : world.pods()) {
          if (!pod.ended()) world.end_pod(pod.meta.name, 0);
        }
      }
      if (status.is_true("Complete") && !ended) ended = world.clock.mono_now();
    }
    CHECK(ended);
    CHECK((writers == 1 || crowd->conflicts > 0));  // One alone keeps out of the way, by its phase.
    CHECK(crowd->written >= 290 * static_cast<int>(writers));
    CHECK(world.server.request_counts()["create pods"] == 3);
    const auto job = world.user->get(api::Kind::kTrainingJob, {"default", "j"});
    REQUIRE(job);
    for (const auto& [name, value] : crowd->labels) {
      CHECK((*job)["metadata"]["labels"].value(name, "") == value);
    }
    for (const auto& [name, value] : crowd->annotations) {
      CHECK((*job)["metadata"]["annotations"].value(name, "") == value);
    }
    CHECK((*job)["spec"]["ttlSecondsAfterFinished"] == crowd->time_to_live);
    const auto last = world.job("j");
    const auto* seen = last.status.condition("example.com/Seen");
    REQUIRE(seen != nullptr);
    CHECK(seen->message == "by somebody else");
    MESSAGE(writers << " writers: " << crowd->written << " writes, " << crowd->conflicts
                    << " conflicts");
  }
}

TEST_CASE("whatever somebody changes in what the operator made, nothing of others is touched") {
  for (const Change& change : changes()) {
    CAPTURE(change.name);
    CAPTURE(std::string(api::info_of(change.kind).plural));
    check_meddled(change);
  }
}

TEST_CASE("a status that somebody else wrote makes no more pods than the job may have") {
  constexpr int kForged = 100;
  Meddled meddled(false);
  World& world = meddled.world;
  REQUIRE(world.job("j").status.is_true("Running"));
  Json places = Json::array();
  for (int slot = 0; slot < kForged; ++slot) {
    places.push_back({{"slot", slot}, {"attempt", 0}, {"node", "local"}});
  }
  REQUIRE(world.user->merge_patch(
      api::Kind::kTrainingJob, {"default", "j"}, "status",
      Json{{"status", {{"placement", places}, {"targetWorkers", kForged}}}}));
  world.create_job("other", kWorkers);
  meddled.pass(seconds(60));
  CHECK(world.job("other").status.is_true("Running"));
  const auto job = world.job("j");
  CHECK(job.status.is_true("Running"));
  CHECK(job.status.placement.size() == kWorkers);
  CHECK(job.status.target_workers == kWorkers);
}

TEST_CASE("a Service that somebody deletes under its gang is made again, and nothing else is") {
  Meddled meddled(false);
  World& world = meddled.world;
  REQUIRE(world.job("j").status.is_true("Running"));
  const auto uids = [&] {
    std::vector<std::string> all;
    for (const auto& pod : world.pods()) all.push_back(pod.meta.uid);
    return all;
  };
  const auto pods = uids();
  const auto version = world.job("j").meta.resource_version;
  const auto services = meddled.children(api::Kind::kService);
  REQUIRE(services.size() == 1);
  const api::ObjectKey key{"default", services[0]["metadata"]["name"]};
  REQUIRE(world.user->remove(api::Kind::kService, key, {}).has_value());
  meddled.pass(seconds(605));  // two resyncs
  const auto again = world.user->get(api::Kind::kService, key);
  REQUIRE(again);
  CHECK((*again)["spec"] == services[0]["spec"]);
  // By whichever leader.
  world.restart_operator();
  REQUIRE(world.user->remove(api::Kind::kService, key, {}).has_value());
  meddled.pass(seconds(605));
  CHECK(world.user->get(api::Kind::kService, key).has_value());
  meddled.pass(seconds(3600));
  CHECK(world.server.request_counts()["create services"] == 3);
  CHECK(world.job("j").meta.resource_version == version);
  CHECK(uids() == pods);
}
