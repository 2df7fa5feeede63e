// `muster simulate`: traces, virtual time, the operator's rules and the models of others'.
#include "operator/runtime/simulation.h"

#include <doctest/doctest.h>

#include <set>

#include "cli/simulation_text.h"
#include "cli/simulation_trace.h"
#include "operator/runtime/simulation_room.h"
#include "tests/unit/cli/cluster_objects.h"

namespace muster::cli {
namespace {

using namespace runtime;

Json node(const std::string& name, int gpus, const std::string& rack) {
  return racked_node(name, rack,
                     {{"cpu", "64"},
                      {"memory", "512Gi"},
                      {"pods", "110"},
                      {"nvidia.com/gpu", std::to_string(gpus)}});
}

/// Two racks of two nodes with 8 GPUs each.
std::vector<Json> cluster() {
  return {node("n0", 8, "r0"), node("n1", 8, "r0"), node("n2", 8, "r1"), node("n3", 8, "r1")};
}

std::vector<TraceJob> trace(const std::string& rows) {
  auto read = read_trace("submit,duration,workers,gpus,cpu,memory\n" + rows);
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  return std::move(*read);
}

Simulation play(SimulatedScheduler& scheduler, const std::vector<TraceJob>& jobs) {
  return simulate(scheduler, cluster(), jobs, std::chrono::minutes(30), ManualClock());
}

double start_of(const Simulation& simulation, std::size_t job) {
  return simulation.jobs[job].started ? seconds_of(*simulation.jobs[job].started) : -1;
}

double end_of(const Simulation& simulation, std::size_t job) {
  return simulation.jobs[job].ended ? seconds_of(*simulation.jobs[job].ended) : -1;
}

/// Of two workers with 8 GPUs each.
Json recorded_job(const std::string& name, const std::string& created, const Json& status) {
  const Json worker{
      {"count", 2}, {"image", "a"}, {"command", Json::array({"b"})}, {"resources", {{"gpus", 8}}}};
  return Json{{"apiVersion", "muster.dev/v1alpha1"},
              {"kind", "TrainingJob"},
              {"metadata",
               {{"name", name},
                {"namespace", "lab"},
                {"uid", "uid-" + name},
                {"finalizers", Json::array({"somebody.example/waits"})},
                {"creationTimestamp", created}}},
              {"spec", {{"worker", worker}, {"queueName", "q"}}},
              {"status", status}};
}

std::string refusal(const std::string& text) {
  const auto read = read_trace(text);
  return read ? "" : read.error().message();
}

}  // namespace

TEST_CASE("a trace is read by the names of its columns, in the order of submission") {
  const auto read = read_trace(
      "name, duration ,submit,other,workers,gpus,cpu,memory,queue\r\n"
      "b,60,100,x,2,8,4,32Gi,\r\n"
      "\n"
      "a,30.5,5,y,1,1,500m,1Gi,lab\n");
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  const TraceJob& first = (*read)[0];
  CHECK(first.job.meta.name == "a");
  CHECK(first.submit == seconds(5));
  CHECK(first.duration == milliseconds(30'500));
  CHECK(first.job.spec.worker.resources.cpu_millis == 500);
  CHECK(first.job.spec.queue_name == "lab");
  CHECK((*read)[1].job.spec.worker.count == 2);
  CHECK((*read)[1].job.spec.worker.resources.gpus == 8);
  const auto elastic = read_trace("submit,duration,workers,min\n0,1,5,2\n0,1,5,5\n0,1,5,\n");
  REQUIRE(elastic);
  CHECK((*elastic)[0].job.spec.worker.min == 2);
  CHECK((*elastic)[0].job.spec.worker.max == 5);
  CHECK((*elastic)[0].job.spec.training.has_value());
  CHECK_FALSE((*elastic)[1].job.spec.training.has_value());
  CHECK_FALSE((*elastic)[2].job.spec.training.has_value());
}

TEST_CASE("a trace that is not one is refused with its row and column") {
  CHECK(refusal("") == "has no job");
  CHECK(refusal("submit,duration\n") == "has no job");
  CHECK(refusal("submit,workers\n1,2\n") == "row 2: duration: is required");
  CHECK(refusal("submit,duration\n1,2,3\n") == "row 2: has 3 columns, the header 2");
  CHECK(refusal("submit,duration\n1,soon\n") ==
        "row 2: duration is 'soon', not a number from 0 to 315360000");
  CHECK(refusal("submit,duration\n1,-2\n").starts_with("row 2: duration is '-2'"));
  CHECK(refusal("submit,duration\n1,nan\n").starts_with("row 2: duration is 'nan'"));
  CHECK(refusal("submit,duration,workers\n1,2,0\n") == "row 2: workers: must be at least 1");
  for (const char* min : {"0", "3"}) {
    CHECK(refusal("submit,duration,workers,min\n1,2,2," + std::string(min) + "\n") ==
          "row 2: min: must be from 1 to workers");
  }
  CHECK(refusal("submit,duration,memory\n1,2,lots\n").starts_with("row 2: spec.worker.resources"));
  CHECK(refusal("submit,duration,deadline\n1,2,1.5\n") == "row 2: deadline: is less than duration");
  CHECK(refusal("submit,duration,name\n1,2,a\n3,4,a\n") == "row 3: name is a, as in row 2");
  CHECK(refusal("\nsubmit,duration,gpus,duration\n1,2,3,4\n") ==
        "row 2: has the column duration twice");
}

TEST_CASE("a part of a GPU or of a worker is refused with its row and column") {
  const std::string columns = "submit,duration,workers,min,gpus\n";
  CHECK(refusal(columns + "1,2,2.5,,\n") ==
        "row 2: workers is '2.5', not a whole number from 0 to 4096");
  CHECK(refusal(columns + "1,2,2,1.5,\n") ==
        "row 2: min is '1.5', not a whole number from 0 to 4096");
  CHECK(refusal(columns + "1,2,2,1,0.5\n") ==
        "row 2: gpus is '0.5', not a whole number from 0 to 64");
  CHECK(refusal(columns + "1,2,2,2,0.5\n") ==
        "row 2: gpus is '0.5', not a whole number from 0 to 64");
  CHECK(refusal(columns + "1,2,2.0,2.0,1.0\n").empty());
}

TEST_CASE("a trace may begin with a byte order mark, and have columns without a name") {
  const auto read = read_trace("\xEF\xBB\xBFsubmit,duration,,\n1,2,,\n");
  REQUIRE_MESSAGE(read, read.error().message());
  CHECK((*read)[0].submit == seconds(1));
}

TEST_CASE("of a recorded cluster the jobs that have ended are a trace") {
  auto objects = cluster();
  CHECK(recorded_trace(objects).error().message() == "has no TrainingJob that has ended");
  const Json ended{{"startTime", "2026-11-27T00:20:00Z"},
                   {"completionTime", "2026-11-27T01:20:00Z"}};
  objects.push_back(recorded_job("late", "2026-11-27T00:10:00Z", ended));
  objects.push_back(recorded_job(
      "early", "2026-11-27T00:00:00Z",
      {{"startTime", "2026-11-27T00:00:01Z"}, {"completionTime", "2026-11-27T00:00:31Z"}}));
  objects.push_back(
      recorded_job("runs", "2026-11-27T00:00:00Z", {{"startTime", "2026-11-27T00:00:01Z"}}));
  objects.push_back(recorded_job("never-ran", "2026-11-27T00:00:00Z",
                                 {{"completionTime", "2026-11-27T00:00:01Z"}}));
  objects.push_back(recorded_job(
      "overdue", "2026-11-27T00:30:00Z",
      {{"startTime", "2026-11-27T02:00:00Z"}, {"completionTime", "2026-11-27T02:00:20Z"}}));
  objects.back()["spec"]["activeDeadlineSeconds"] = 10;
  objects.push_back(recorded_job("others", "2026-11-27T00:00:00Z", ended));
  objects.back()["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  objects.push_back(Json{{"kind", "TrainingJob"}, {"spec", 5}});
  const auto read = recorded_trace(objects);
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  REQUIRE(read->size() == 3);
  CHECK((*read)[0].job.meta.key().text() == "lab/early");
  CHECK((*read)[0].submit == seconds(0));
  CHECK((*read)[0].duration == seconds(30));
  CHECK((*read)[1].submit == seconds(600));
  CHECK((*read)[1].duration == seconds(3600));
  CHECK((*read)[1].job.spec.worker.count == 2);
  CHECK((*read)[1].job.spec.queue_name == "q");
  objects.push_back(training_queue("q", "nvidia.com/gpu", "32"));
  // Nothing of how it went is left: each starts anew, and on time where there is room.
  const Simulation told = play(*make_operator(objects, *read), *read);
  CHECK(start_of(told, 1) == doctest::Approx(600).epsilon(0.01));
  CHECK(end_of(told, 1) == doctest::Approx(4200).epsilon(0.01));
  CHECK(end_of(told, 2) == doctest::Approx(1820).epsilon(0.001));
  objects.push_back(recorded_job("late", "2026-11-27T00:10:00Z", ended));
  CHECK(recorded_trace(objects).error().message() == "has lab/late twice");
}

TEST_CASE("recorded jobs that others placed take room on the recorded nodes") {
  auto objects = cluster();
  objects.resize(2);  // room for one of them
  const Json ended{{"startTime", "2026-11-27T00:00:01Z"},
                   {"completionTime", "2026-11-27T00:01:41Z"}};
  for (const char* name : {"a", "b"}) {
    objects.push_back(recorded_job(name, "2026-11-27T00:00:00Z", ended));
    objects.back()["spec"]["scheduling"] = "Unplaced";
    objects.back()["spec"].erase("queueName");
  }
  const auto read = recorded_trace(objects);
  REQUIRE(read);
  const Simulation told = play(*make_operator(objects, *read), *read);
  CHECK(std::set{end_of(told, 0), end_of(told, 1)}.size() == 2);
  CHECK(seconds_of(told.end) == doctest::Approx(200).epsilon(0.02));
}

TEST_CASE("recorded jobs whose workers become one run as long as they did, and take as much room") {
  auto objects = cluster();
  objects.resize(1);  // room for one of them
  const Json ended{{"startTime", "2026-11-27T00:00:01Z"},
                   {"completionTime", "2026-11-27T00:01:41Z"}};
  for (const char* name : {"a", "b"}) {
    objects.push_back(recorded_job(name, "2026-11-27T00:00:00Z", ended));
    Json& spec = objects.back()["spec"];
    spec.erase("queueName");
    spec["worker"]["count"] = 4;
    spec["worker"]["shape"] = "Free";
    spec["worker"]["resources"]["gpus"] = 2;
  }
  const auto read = recorded_trace(objects);
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  const auto scheduler = make_operator(objects, *read);
  scheduler->submit(0);
  scheduler->run(seconds(1));
  const auto changes = scheduler->take_changes();
  REQUIRE(changes.size() == 1);
  CHECK(changes.front().workers == 4);
  CHECK(changes.front().nodes == std::vector<std::string>(4, "n0"));
  const Simulation told = play(*make_operator(objects, *read), *read);
  CHECK(seconds_of(told.end) == doctest::Approx(200).epsilon(0.02));
}

TEST_CASE("recorded jobs that keep their checkpoints on one claim run one after the other") {
  auto objects = cluster();
  objects.push_back(Json{{"apiVersion", "v1"},
                         {"kind", "PersistentVolumeClaim"},
                         {"metadata", {{"name", "disk"}, {"namespace", "lab"}}},
                         {"spec", Json::object()}});
  const Json ended{{"startTime", "2026-11-27T00:00:01Z"},
                   {"completionTime", "2026-11-27T00:01:41Z"}};
  for (const char* name : {"a", "b"}) {
    objects.push_back(recorded_job(name, "2026-11-27T00:00:00Z", ended));
    Json& spec = objects.back()["spec"];
    spec.erase("queueName");
    spec["worker"].erase("command");
    spec["training"] = *parse_json(R"({"steps": 5, "model": {"mlp": {"hidden": [3]}},
      "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
      "optimizer": {"sgd": {"learningRate": "1"}}, "checkpoint": {"volumeClaimName": "disk"}})");
  }
  const auto read = recorded_trace(objects);
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  const Simulation told = play(*make_operator(objects, *read), *read);
  CHECK(std::set{end_of(told, 0), end_of(told, 1)}.size() == 2);
  CHECK(seconds_of(told.end) == doctest::Approx(200).epsilon(0.02));
}

TEST_CASE("jobs run for as long as they did, one after the other where there is no room") {
  const auto jobs = trace("0,100,4,8,1,1Gi\n10,50,2,8,1,1Gi\n20,30,2,8,1,1Gi\n");
  for (const bool is_operator : {true, false}) {
    CAPTURE(is_operator);
    const auto objects = cluster();
    const auto scheduler = is_operator ? make_operator(objects, jobs)
                                       : make_peer(PeerRule::kStrictFifo, objects, jobs);
    const Simulation told = play(*scheduler, jobs);
    CHECK(end_of(told, 0) == doctest::Approx(100).epsilon(0.02));
    CHECK(start_of(told, 1) == doctest::Approx(100).epsilon(0.02));
    CHECK(end_of(told, 1) == doctest::Approx(150).epsilon(0.02));
    CHECK(end_of(told, 2) == doctest::Approx(130).epsilon(0.02));
    CHECK(told.end == *told.jobs[1].ended);
    CHECK(told.jobs[1].stops == 0);
    // The network is known: two workers of a node each stand in one rack.
    CHECK(told.jobs[1].leaves == 1);
  }
}

TEST_CASE("the models of others differ where their rules do") {
  // The second needs everything; the third would fit beside the first.
  const auto jobs = trace("0,100,3,8,1,1Gi\n1,10,4,8,1,1Gi\n2,500,1,8,1,1Gi\n");
  const auto objects = cluster();
  const auto starts = [&](PeerRule rule) {
    const auto scheduler = make_peer(rule, objects, jobs);
    const Simulation told = play(*scheduler, jobs);
    return std::pair(start_of(told, 1), start_of(told, 2));
  };
  CHECK(starts(PeerRule::kStrictFifo) == std::pair(100.0, 110.0));
  CHECK(starts(PeerRule::kAnyThatFits) == std::pair(502.0, 2.0));
  // The second holds the one node that is left, and waits for the others with it.
  CHECK(starts(PeerRule::kPods) == std::pair(100.0, 110.0));
}

TEST_CASE("by best fit a gang stands in the tightest domain that holds it, else in the largest") {
  // The first is on n0, so that the rack of n0 has room for one more.
  const auto jobs = trace("0,100,1,8,1,1Gi\n1,10,2,8,1,1Gi\n20,10,3,8,1,1Gi\n40,10,1,8,1,1Gi\n");
  const auto objects = cluster();
  const auto leaves = [&](PeerRule rule) {
    const Simulation told = play(*make_peer(rule, objects, jobs), jobs);
    std::vector<int> all;
    for (const SimulatedJob& job : told.jobs) all.push_back(job.leaves);
    return all;
  };
  CHECK(leaves(PeerRule::kAnyThatFits) == std::vector<int>{1, 2, 2, 1});
  CHECK(leaves(PeerRule::kBestFit) == std::vector<int>{1, 1, 2, 1});
}

TEST_CASE("by best fit what is tight is filled first, of domains and of nodes") {
  const auto objects = cluster();
  // When the first has ended its rack is free; the third stands in the other one all the same.
  const auto racks = trace("0,5,2,8,1,1Gi\n1,100,1,8,1,1Gi\n10,100,1,8,1,1Gi\n11,100,2,8,1,1Gi\n");
  Simulation told = play(*make_peer(PeerRule::kBestFit, objects, racks), racks);
  CHECK(start_of(told, 3) == 11);
  CHECK(told.jobs[3].leaves == 1);
  // Of the rack that is left two halves of a node are taken, of one and the same.
  const auto halves = trace("0,100,2,8,1,1Gi\n0,100,1,4,1,1Gi\n1,100,1,4,1,1Gi\n2,9,1,8,1,1Gi\n");
  told = play(*make_peer(PeerRule::kBestFit, objects, halves), halves);
  CHECK(start_of(told, 3) == 2);
}

TEST_CASE("by best fit pods of a gang share nodes, and those that are closed take none") {
  auto objects = cluster();
  objects[0]["spec"]["taints"] = Json::array({{{"key", "others"}, {"effect", "NoSchedule"}}});
  const auto jobs = trace("0,100,4,4,1,1Gi\n0,100,4,2,1,1Gi\n0,100,1,8,1,1Gi\n");
  const Simulation told = play(*make_peer(PeerRule::kBestFit, objects, jobs), jobs);
  // Two nodes of the open rack, and all of the other rack's open node; then nothing is left.
  CHECK(told.jobs[0].leaves == 1);
  CHECK(told.jobs[1].leaves == 1);
  CHECK(start_of(told, 1) == 0);
  CHECK(start_of(told, 2) == 100);
}

TEST_CASE("in a model whoever asks for less than one that waits is tried, alike or not") {
  // Two nodes are left, and the second and third want three.
  const auto jobs = trace(
      "0,100,2,8,1,1Gi\n1,10,3,8,1,1Gi\n1,10,3,8,1,1Gi\n2,10,4,8,1,1Gi\n2,10,1,8,1,1Gi\n"
      "2,10,3,4,1,1Gi\n");
  const auto objects = cluster();
  const auto starts = [&](PeerRule rule) {
    const Simulation told = play(*make_peer(rule, objects, jobs), jobs);
    std::vector<double> all;
    for (std::size_t job = 1; job < jobs.size(); ++job) all.push_back(start_of(told, job));
    return all;
  };
  CHECK(starts(PeerRule::kAnyThatFits) == std::vector<double>{100, 110, 120, 2, 12});
  // The first of three holds what is left, so that nobody else finds anything.
  CHECK(starts(PeerRule::kPods) == std::vector<double>{100, 110, 120, 130, 130});
}

TEST_CASE("deadlines let jobs of a queue go ahead of the first that waits for more") {
  const std::string head = "submit,duration,workers,gpus,cpu,memory,queue,deadline\n";
  const std::string rows = "0,1000,3,8,1,1Gi,q,2000\n1,10,4,8,1,1Gi,q,20\n2,100,1,8,1,1Gi,q,";
  auto objects = cluster();
  objects.push_back(training_queue("q", "nvidia.com/gpu", "32"));
  for (const bool is_bounded : {true, false}) {
    CAPTURE(is_bounded);
    const auto read = read_trace(head + rows + (is_bounded ? "200\n" : "\n"));
    REQUIRE(read);
    const auto scheduler = make_operator(objects, *read);
    const Simulation told = play(*scheduler, *read);
    CHECK(start_of(told, 1) == doctest::Approx(1000).epsilon(0.02));
    CHECK(start_of(told, 2) == doctest::Approx(is_bounded ? 2 : 1010).epsilon(0.02));
  }
}

TEST_CASE("taints keep the same jobs off the same nodes under all rules") {
  const auto jobs = trace("0,10,4,8,1,1Gi\n0,10,1,0,1,1Gi\n");
  // A pod that asks for the node's GPUs bears the first, whatever its job says.
  const auto ends = [&](const char* key, const char* effect) {
    auto objects = cluster();
    for (Json& object : objects) {
      object["spec"]["taints"] = Json::array({{{"key", key}, {"effect", effect}}});
    }
    std::vector<std::unique_ptr<SimulatedScheduler>> rules;
    rules.push_back(make_operator(objects, jobs));
    for (const auto rule :
         {PeerRule::kStrictFifo, PeerRule::kAnyThatFits, PeerRule::kBestFit, PeerRule::kPods}) {
      rules.push_back(make_peer(rule, objects, jobs));
    }
    std::set<std::pair<bool, bool>> ended;
    for (const auto& rule : rules) {
      const Simulation told = play(*rule, jobs);
      ended.emplace(told.jobs[0].ended.has_value(), told.jobs[1].ended.has_value());
    }
    return ended;
  };
  using Ended = std::set<std::pair<bool, bool>>;
  CHECK(ends("nvidia.com/gpu", "NoSchedule") == Ended{{true, false}});
  CHECK(ends("others", "PreferNoSchedule") == Ended{{true, true}});
  CHECK(ends("others", "NoExecute") == Ended{{false, false}});
}

TEST_CASE("models count what a worker's pod takes, sidecars included") {
  auto jobs = trace("0,100,4,0,30,1Gi\n0,100,4,0,30,1Gi\n");
  // Of 64 processors of a node two workers alone would take 60.
  for (TraceJob& one : jobs) {
    one.manifest["spec"]["worker"]["initContainers"] =
        Json::array({{{"name", "proxy"},
                      {"image", "a"},
                      {"restartPolicy", "Always"},
                      {"resources", {{"cpu", 5}, {"memory", "1Gi"}}}}});
    auto [job, verdict] = api::read_training_job(one.manifest);
    REQUIRE(verdict);
    one.job = std::move(job);
  }
  const auto objects = cluster();
  const auto scheduler = make_peer(PeerRule::kStrictFifo, objects, jobs);
  CHECK(start_of(play(*scheduler, jobs), 1) == 100);
}

TEST_CASE("half-placed gangs of pods may wait for each other for ever") {
  const auto jobs = trace("0,10,2,8,1,1Gi\n0,10,2,8,1,1Gi\n1,10,3,8,1,1Gi\n2,10,3,8,1,1Gi\n");
  const auto objects = cluster();
  const auto scheduler = make_peer(PeerRule::kPods, objects, jobs);
  const Simulation told = play(*scheduler, jobs);
  CHECK(end_of(told, 0) == 10);
  CHECK(end_of(told, 1) == 10);
  const int ended = static_cast<int>(told.jobs[2].ended.has_value()) +
                    static_cast<int>(told.jobs[3].ended.has_value());
  CHECK(ended == 2);
}

TEST_CASE("a job that never fits does not stop the others, and has no end") {
  const auto jobs = trace("0,10,9,8,1,1Gi\n1,10,1,8,1,1Gi\n");
  auto objects = cluster();
  for (const char* stray : {"5", "null", R"({"kind": 5})", R"({"kind": {}})"}) {
    objects.push_back(Json::parse(stray));  // is passed over
  }
  const auto scheduler = make_operator(objects, jobs);
  const Simulation told = play(*scheduler, jobs);
  CHECK_FALSE(told.jobs[0].started.has_value());
  CHECK(end_of(told, 1) == doctest::Approx(11).epsilon(0.1));
}

TEST_CASE("a job that has to give its room back goes on from its last checkpoint") {
  auto read = read_trace(
      "submit,duration,workers,gpus,cpu,memory,queue\n"
      "0,10000,4,8,1,1Gi,research\n5000,100,2,8,1,1Gi,product\n");
  REQUIRE(read);
  auto objects = cluster();
  for (const auto& [name, gpus] : {std::pair("product", "32"), std::pair("research", "0")}) {
    objects.push_back(training_queue(name, "nvidia.com/gpu", gpus, "lab"));
  }
  const auto scheduler = make_operator(objects, *read);
  const Simulation told = play(*scheduler, *read);
  CHECK(start_of(told, 0) == doctest::Approx(0));
  CHECK(start_of(told, 1) == doctest::Approx(5000).epsilon(0.01));
  CHECK(end_of(told, 1) == doctest::Approx(5100).epsilon(0.01));
  CHECK(told.jobs[0].stops == 1);
  // It ran 1,400 seconds since its checkpoint after an hour.
  CHECK(seconds_of(told.jobs[0].lost) == doctest::Approx(1400).epsilon(0.02));
  CHECK(end_of(told, 0) == doctest::Approx(5100 + 10'000 - 3600).epsilon(0.02));
}

TEST_CASE("a job that its deadline ends early has no end, and leaves its room to others") {
  const auto read = read_trace(
      "submit,duration,workers,min,gpus,cpu,memory,deadline\n"
      "0,1000,3,,8,1,1Gi,\n"
      "1,100,4,1,8,1,1Gi,150\n"
      "160,100,1,,8,1,1Gi,\n");
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  const auto scheduler = make_operator(cluster(), *read);
  const Simulation told = play(*scheduler, *read);
  CHECK(start_of(told, 1) == doctest::Approx(1));
  CHECK_FALSE(told.jobs[1].ended);
  CHECK(start_of(told, 2) == doctest::Approx(160).epsilon(0.01));
  CHECK(seconds_of(told.end) == doctest::Approx(1000).epsilon(0.01));
}

TEST_CASE("an elastic job starts with the room there is, grows, and gives back what it was lent") {
  const auto read = read_trace(
      "submit,duration,workers,min,gpus,cpu,memory,queue\n"
      "0,1000,3,,8,1,1Gi,research\n"
      "1,1000,4,1,8,1,1Gi,research\n"
      "1400,100,2,,8,1,1Gi,product\n");
  REQUIRE_MESSAGE(read, (read ? "" : read.error().message()));
  auto objects = cluster();
  for (const auto& [name, gpus] : {std::pair("product", "32"), std::pair("research", "0")}) {
    objects.push_back(training_queue(name, "nvidia.com/gpu", gpus, "lab"));
  }
  const auto scheduler = make_operator(objects, *read);
  const Simulation told = play(*scheduler, *read);
  CHECK(start_of(told, 1) == doctest::Approx(1));
  CHECK(start_of(told, 2) == doctest::Approx(1400).epsilon(0.001));
  CHECK(end_of(told, 2) == doctest::Approx(1500).epsilon(0.001));
  // A quarter of its pace until the first has ended, half of it while two nodes are wanted back;
  // room counts once it has lasted 30 s.
  CHECK(told.jobs[1].stops == 0);
  CHECK(told.jobs[1].lost == seconds(0));
  CHECK(end_of(told, 1) == doctest::Approx(1000 + 750 + 50 + 22.5 + 15).epsilon(0.002));
  CHECK(told.jobs[1].resizes == 3);
}

TEST_CASE("what a simulation came to is a row a rule") {
  const auto jobs = trace("0,100,4,8,1,1Gi\n0,100,4,8,1,1Gi\n");
  const auto objects = cluster();
  const auto scheduler = make_peer(PeerRule::kStrictFifo, objects, jobs);
  const std::vector<RuleResult> results{{"strict-fifo", play(*scheduler, jobs), true},
                                        {"muster", play(*make_operator(objects, jobs), jobs)}};
  const Json told = simulation_json(results, jobs, objects);
  CHECK(told[0]["ended"] == 2);
  CHECK(told[0]["completionSeconds"]["mean"] == 150.0);
  CHECK(told[0]["waitSeconds"]["mean"] == 50.0);
  CHECK(told[0]["waitSeconds"]["p95"] == 100.0);
  // 1 and 2: of the squares of both the sum's square is 9 / 10.
  CHECK(told[0]["slowdown"]["mean"] == 1.5);
  CHECK(told[0]["fairness"].get<double>() == doctest::Approx(0.9));
  CHECK(told[0]["used"] == 1.0);
  CHECK(told[0]["jobs"][1]["started"] == 100.0);
  CHECK(told[0]["model"] == true);
  CHECK(told[1]["model"] == false);
  const std::string text = simulation_text(results, jobs, objects, {});
  CHECK(text.find("strict-fifo (model)    2/2") != std::string::npos);
  CHECK(text.find("muster                 2/2") != std::string::npos);
  CHECK(text.find("100.0%") != std::string::npos);
}

TEST_CASE("without a network room is lost where too little of it lies on one node for a worker") {
  auto objects = cluster();
  for (Json& object : objects) object["metadata"].erase("labels");
  // Gangs of any size may stand anywhere; workers have 2 and 8 GPUs.
  const std::vector<TraceJob> jobs = trace("0,100,3,2,1,1Gi\n0,100,4,8,1,1Gi\n");
  RoomMeter meter(objects, jobs);
  meter.place(0, {"n0", "n0", "n1"}, seconds(0));
  meter.place(0, {}, seconds(10));
  // 4 and 6 GPUs are of use to a worker of 2 alone, 8 and 8 to both.
  CHECK(meter.lost().value() == doctest::Approx((4 + 6) / 2.0 / 26));
}

TEST_CASE("a scheduler decides when it is let to, so that what that takes can be told") {
  const auto jobs = trace("0,100,1,8,1,1Gi\n0,100,4,8,1,1Gi\n");
  for (const auto& scheduler :
       {make_operator(cluster(), jobs), make_peer(PeerRule::kStrictFifo, cluster(), jobs)}) {
    scheduler->submit(0);
    scheduler->submit(1);
    CHECK(scheduler->take_changes().empty());
    CHECK(scheduler->run(seconds(1)) < seconds(1));
    CHECK_FALSE(scheduler->take_changes().empty());
  }
}

TEST_CASE("room is lost where too little of it lies together for gangs of the trace's sizes") {
  // Of 8 and of 16 GPUs; a rack has 16.
  const std::vector<TraceJob> jobs = trace("0,100,1,8,1,1Gi\n0,100,2,8,1,1Gi\n");
  RoomMeter meter(cluster(), jobs);
  CHECK_FALSE(meter.lost());
  meter.place(0, {"n0"}, seconds(0));
  // For 10 s 8 of 24 are of use to one of the two alone; then 8 of 8.
  meter.place(1, {"n2", "n3"}, seconds(10));
  meter.place(0, {}, seconds(20));
  CHECK(meter.lost().value() == doctest::Approx((40.0 + 40) / (240 + 80)));
  // A rack that nobody is on is whole.
  meter.place(1, {}, seconds(30));
  CHECK(meter.lost().value() == doctest::Approx(80.0 / (320 + 160)));
  RoomMeter none({}, jobs);
  none.place(0, {"n0"}, seconds(0));
  none.place(0, {}, seconds(9));
  CHECK_FALSE(none.lost());
  for (const auto& scheduler :
       {make_operator(cluster(), jobs), make_peer(PeerRule::kAnyThatFits, cluster(), jobs)}) {
    const Simulation told = play(*scheduler, jobs);
    CHECK(told.room_lost.value() == doctest::Approx(0.5).epsilon(0.02));
  }
}

}  // namespace muster::cli
