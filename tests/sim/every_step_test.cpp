// One thing goes wrong, at each place in turn: with every write of an operator it dies before it or
// after it, or hears no answer; every event that a watch brings comes late, or only with the list
// that is asked for in its stead. What there is in the end is what there is when nothing goes
// wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "operator/kube/http_transport.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr seconds kAfterEachAct{24};
constexpr seconds kNodesLookEvery{2};
constexpr seconds kLateBy{8};
/// More than there are in any of these lives.
constexpr int kPlacesMost = 500;

enum class Fault { kNone, kDiesBefore, kDiesAfter, kNoAnswer, kLate, kListed };

constexpr std::pair<Fault, const char*> kFaults[] = {
    {Fault::kDiesBefore, "the operator dies before a write"},
    {Fault::kDiesAfter, "the operator dies after a write"},
    {Fault::kNoAnswer, "the answer to a write is lost"},
    {Fault::kLate, "an event is late"},
    {Fault::kListed, "an event is lost, and a list says what is so now"}};

/// What goes wrong, and with the how manieth write or event, from 1 on.
struct OneFault {
  Fault fault = Fault::kNone;
  int place = 0;
};

/// The way between operators and the server, on which that goes wrong.
class BrokenOnce final : public kube::HttpTransport {
 public:
  BrokenOnce(kube::HttpTransport& real, const Clock& clock, const OneFault& fault)
      : real_(real), clock_(clock), fault_(fault) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (is_dead_) return dead();
    if (request.method == "GET") return real_.send(request);
    const bool is_of_writes = fault_.fault != Fault::kLate && fault_.fault != Fault::kListed;
    if (!is_of_writes || !is_its_turn()) return real_.send(request);
    is_dead_ = fault_.fault != Fault::kNoAnswer;
    if (fault_.fault == Fault::kDiesBefore) return dead();
    (void)real_.send(request);
    if (is_dead_) return dead();
    return Error(ErrorCode::kDeadlineExceeded, "the answer was lost");
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override;

  /// Of the operator that uses it; whoever starts another one revives it.
  bool is_dead() const { return is_dead_; }
  void revive() { is_dead_ = false; }
  bool has_happened() const { return fault_.place > 0 && place_ >= fault_.place; }

  const Clock& clock() const { return clock_; }
  Fault fault_of_next_event() {
    const bool is_of_events = fault_.fault == Fault::kLate || fault_.fault == Fault::kListed;
    return is_of_events && is_its_turn() ? fault_.fault : Fault::kNone;
  }

 private:
  static Error dead() { return {ErrorCode::kUnavailable, "this operator is dead"}; }
  bool is_its_turn() { return ++place_ == fault_.place; }

  kube::HttpTransport& real_;
  const Clock& clock_;
  OneFault fault_;
  int place_ = 0;
  bool is_dead_ = false;
};

/// A watch of such an operator.
class LinesBrokenOnce final : public kube::HttpStream {
 public:
  LinesBrokenOnce(std::unique_ptr<kube::HttpStream> real, BrokenOnce& way)
      : real_(std::move(real)), way_(way) {}

  Result<std::optional<std::string>> next_line(milliseconds idle) override {
    if (held_) {
      if (way_.clock().mono_now() < held_until_) {
        return Error(ErrorCode::kDeadlineExceeded, "no line yet");
      }
      return std::exchange(held_, std::nullopt);
    }
    auto line = real_->next_line(idle);
    if (!line || !*line || !is_news(**line)) return line;
    switch (way_.fault_of_next_event()) {
      case Fault::kLate:
        held_ = **line;
        held_until_ = way_.clock().mono_now() + kLateBy;
        return Error(ErrorCode::kDeadlineExceeded, "no line yet");
      case Fault::kListed:
        return std::optional<std::string>(
            R"({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})");
      default:
        return line;
    }
  }
  void close() override { real_->close(); }

 private:
  static bool is_news(const std::string& line) {
    const auto json = parse_json(line);
    if (!json) return false;
    const std::string type = text_at(*json, {"type"});
    return type == "ADDED" || type == "MODIFIED" || type == "DELETED";
  }

  std::unique_ptr<kube::HttpStream> real_;
  BrokenOnce& way_;
  std::optional<std::string> held_;  ///< nothing behind it comes before it
  MonoTime held_until_{};
};

Result<kube::HttpTransport::Stream> BrokenOnce::open_stream(const kube::HttpRequest& request) {
  if (is_dead_) return dead();
  auto opened = real_.open_stream(request);
  if (opened && opened->stream) {
    opened->stream = std::make_unique<LinesBrokenOnce>(std::move(opened->stream), *this);
  }
  return opened;
}

/// What somebody does, one thing after the other, each when the one before has had its effect.
struct Life {
  const char* name;
  std::vector<std::function<void(World&)>> acts;
};

/// A program of somebody's own on a node with so many processors.
void begin_program(World& world, int cpus, const char* name, int count,
                   const std::function<void(Json&)>& more = nullptr) {
  if (cpus > 0) world.add_node("local", cpus);
  world.create_job(name, count, [&](Json& job) {
    job["spec"]["restart"] = {{"policy", "OnFailure"}, {"maxRestarts", 100}, {"backoffSeconds", 1}};
    if (more) more(job);
  });
}

void change_spec(World& world, const char* name, const Json& spec) {
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "",
                                  Json{{"spec", spec}}));
}

void kill_worker_1(World& world) {
  for (const auto& pod : world.pods()) {
    if (pod.slot() == 1 && pod.phase == api::PodPhase::kRunning) {
      return world.end_pod(pod.meta.name, 137);
    }
  }
  FAIL("worker 1 does not run");
}

std::vector<Life> lives() {
  std::vector<Life> all;
  all.push_back({"a gang starts", {[](World& world) { begin_program(world, 8, "j", 3); }}});
  all.push_back({"a gang starts again, because a worker died",
                 {[](World& world) { begin_program(world, 8, "j", 2); }, kill_worker_1}});
  all.push_back(
      {"a gang starts again in another size",
       {[](World& world) {
          begin_program(world, 8, "j", 2, [](Json& job) {
            job["spec"]["worker"]["min"] = 1;
            job["spec"]["worker"]["max"] = 4;
          });
        },
        [](World& world) { change_spec(world, "j", Json{{"worker", {{"count", 3}}}}); }}});
  all.push_back({"a gang is suspended for another one, which is deleted",
                 {[](World& world) {
                    begin_program(world, 3, "a", 2);
                    world.clock.advance(seconds(1));  // b is younger
                    begin_program(world, 0, "b", 2);
                  },
                  [](World& world) { change_spec(world, "a", Json{{"suspend", true}}); },
                  [](World& world) {
                    REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "b"}, {}));
                  },
                  [](World& world) { change_spec(world, "a", Json{{"suspend", false}}); }}});
  return all;
}

/// Without what differs between any two lives: times and durations, what the server draws and
/// counts, and the order of conditions.
Json without_moments(const Json& value) {
  if (value.is_string()) return parse_time(value.get<std::string>()) ? Json("a time") : value;
  if (value.is_array()) {
    Json list = Json::array();
    for (const Json& item : value) list.push_back(without_moments(item));
    const auto type_of = [](const Json& item) { return text_at(item, {"type"}); };
    std::stable_sort(list.begin(), list.end(),
                     [&](const Json& a, const Json& b) { return type_of(a) < type_of(b); });
    return list;
  }
  if (!value.is_object()) return value;
  Json object = Json::object();
  for (const auto& [key, item] : value.items()) {
    const bool differs = key == "uid" || key == "resourceVersion" || key == "pastActiveSeconds";
    if (!differs) object[key] = without_moments(item);
  }
  return object;
}

/// Every object but events, which may be lost and told twice, and whom the endpoint would let in.
Json all_there_is(const World& world) {
  Json found = Json::object();
  for (const auto kind : {api::Kind::kTrainingJob, api::Kind::kPod, api::Kind::kService,
                          api::Kind::kPodDisruptionBudget}) {
    const auto page = world.user->list(kind, {"default", "", 0, ""});
    REQUIRE(page.has_value());
    Json& objects = found[std::string(api::info_of(kind).plural)] = Json::object();
    for (const Json& item : page->items) {
      objects[text_at(item, {"metadata", "name"})] = without_moments(item);
    }
  }
  for (const auto& [job, gang] : world.op->endpoint.gangs) {
    for (const auto& [slot, pod] : gang.pod_of_slot) {
      found["gangs"][job][std::to_string(slot)] = pod.name;
    }
  }
  return found;
}

struct Outcome {
  Json end;
  bool has_happened = false;  ///< what was to go wrong
};

Outcome live(const Life& life, const OneFault& fault) {
  std::unique_ptr<BrokenOnce> way;  // outlives the operators
  World world(test::seed(), [&](kube::HttpTransport& real) -> kube::HttpTransport* {
    if (!way) way = std::make_unique<BrokenOnce>(real, world.clock, fault);
    way->revive();
    return way.get();
  });
  for (const auto& act : life.acts) {
    act(world);
    for (seconds passed{0}; passed < kAfterEachAct; passed += kNodesLookEvery) {
      world.pass(kNodesLookEvery);
      if (way->is_dead()) world.restart_operator();
      world.reap(143);
      world.run_all_pods();
    }
  }
  world.settle();
  return {all_there_is(world), way->has_happened()};
}

}  // namespace

TEST_CASE("whatever goes wrong once, and wherever, what there is in the end is the same") {
  configure_log(LogLevel::kError, {});
  for (const Life& life : lives()) {
    CAPTURE(std::string(life.name));
    const Json expected = live(life, {}).end;
    REQUIRE(live(life, {}).end == expected);
    REQUIRE_FALSE(expected["pods"].empty());
    for (const auto& [fault, name] : kFaults) {
      CAPTURE(std::string(name));
      int place = 1;
      for (; place < kPlacesMost; ++place) {
        const Outcome outcome = live(life, {fault, place});
        if (!outcome.has_happened) break;
        CHECK_MESSAGE(outcome.end == expected,
                      place << ": " << dump_json(Json::diff(expected, outcome.end)));
      }
      CHECK(place > 6);
      CHECK(place < kPlacesMost);
      MESSAGE(std::string(life.name)
              << ", " << std::string(name) << ": at " << place - 1 << " places");
    }
  }
}
