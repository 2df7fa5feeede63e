// `muster plan`: what the operator's rules say about a job that is not there yet.
#include <doctest/doctest.h>

#include "cli/expected_start.h"
#include "cli/plan_forecast.h"
#include "cli/plan_text.h"
#include "common/contract.h"
#include "operator/api/pod.h"
#include "operator/runtime/what_if.h"
#include "tests/unit/cli/cluster_objects.h"

namespace muster::cli {
namespace {

const WallTime kReadAt = *parse_time("2026-11-21T12:00:00Z");

struct SavedCluster {
  PlanCluster cluster{{}, kReadAt};

  void node(const std::string& name, const std::string& rack, int cpu = 4) {
    cluster.objects.push_back(racked_node(
        name, rack, {{"cpu", std::to_string(cpu)}, {"memory", "64Gi"}, {"pods", "110"}}));
  }

  /// A job of one-processor workers that has run on one node for an hour.
  void running(const std::string& name, const std::string& node, int workers,
               std::int64_t eta_seconds, const std::string& queue = "") {
    api::TrainingJob job = *api::parse_training_job(manifest(name, workers, queue));
    job.meta.namespace_name = "lab";
    job.meta.uid = "uid-" + name;
    job.meta.resource_version = "7";
    job.meta.generation = 1;
    job.meta.creation_time = kReadAt - seconds(3600);
    api::TrainingJobStatus& status = job.status;
    status.observed_generation = 1;
    status.membership_epoch = 1;
    status.target_workers = workers;
    status.start_time = kReadAt - seconds(3600);
    for (const char* type : {"Admitted", "Running"}) {
      status.conditions.push_back({type, "True", "Test", "", 1, kReadAt - seconds(3600)});
    }
    if (eta_seconds >= 0) {
      status.progress.emplace();
      status.progress->eta_seconds = eta_seconds;
      status.progress->updated_at = kReadAt - seconds(60);
    }
    for (int slot = 0; slot < workers; ++slot) status.placement.push_back({slot, 0, node, ""});
    for (int slot = 0; slot < workers; ++slot) {
      api::Pod pod = api::make_pod(job, status.placement[static_cast<std::size_t>(slot)], {});
      pod.meta.uid = "pod-" + name + "-" + std::to_string(slot);
      Json json = api::to_json(pod);
      json["spec"]["nodeName"] = node;
      json["status"] = {{"phase", "Running"}};
      cluster.objects.push_back(std::move(json));
    }
    cluster.objects.push_back(api::to_json(job));
  }

  void queue(const std::string& name, int cpu, const std::string& cohort = "") {
    cluster.objects.push_back(training_queue(name, "cpu", std::to_string(cpu), cohort));
  }

  static Json manifest(const std::string& name, int workers, const std::string& queue = "") {
    Json json{{"apiVersion", "muster.dev/v1alpha1"},
              {"kind", "TrainingJob"},
              {"metadata", {{"name", name}, {"namespace", "lab"}}},
              {"spec",
               {{"worker",
                 {{"count", workers},
                  {"command", Json::array({"train"})},
                  {"resources", {{"cpu", "1"}, {"memory", "1Gi"}}}}}}}};
    if (!queue.empty()) json["spec"]["queueName"] = queue;
    return json;
  }

  PlanForecast plan(const Json& manifest) const {
    auto told = forecast(cluster, manifest);
    REQUIRE_MESSAGE(told.has_value(), told.error().message());
    return std::move(*told);
  }
};

std::string nodes_of(const PlanForecast& told) {
  std::string text;
  for (const auto& slot : told.job.status.placement) text += (text.empty() ? "" : " ") + slot.node;
  return text;
}

TEST_CASE("a job that fits starts now, where the operator would put it") {
  SavedCluster saved;
  for (const char* name : {"a", "b"}) saved.node(name, "r1");
  for (const char* name : {"c", "d"}) saved.node(name, "r2");
  saved.running("old", "a", 3, 100);
  Json job = SavedCluster::manifest("big", 8);
  job["spec"]["topology"] = {{"required", "rack"}};

  const PlanForecast told = saved.plan(job);

  CHECK(told.starts_now);
  CHECK(nodes_of(told) == "c c c c d d d d");
  CHECK(told.job.status.placement.front().domain.find("r2") != std::string::npos);
  CHECK(told.displaced.empty());
  const std::string page = plan_text(told, {}, kReadAt);
  CHECK(page.find("big in namespace lab: would start now\n") == 0);
  CHECK(page.find("c           4  0-3") != std::string::npos);
}

TEST_CASE("a pod that leaves is not awaited, unless it should have left long ago") {
  SavedCluster saved;
  saved.node("a", "r1");
  const auto left_by = [&](WallTime time) {
    Json pod{{"apiVersion", "v1"},
             {"kind", "Pod"},
             {"metadata", {{"name", "gone"}, {"namespace", "lab"}, {"uid", "1"}}},
             {"spec", {{"nodeName", "a"}, {"containers", Json::array()}}},
             {"status", {{"phase", "Running"}}}};
    pod["metadata"]["deletionTimestamp"] = format_time(time);
    pod["spec"]["containers"].push_back(
        {{"name", "c"}, {"resources", {{"requests", {{"cpu", "4"}}}}}});
    SavedCluster with_pod = saved;
    with_pod.cluster.objects.push_back(std::move(pod));
    return with_pod.plan(SavedCluster::manifest("next", 4)).starts_now;
  };
  CHECK(left_by(kReadAt + seconds(20)));
  CHECK_FALSE(left_by(kReadAt - seconds(40)));
}

TEST_CASE("a job that lacks room starts when enough of the others have ended") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.node("b", "r2");
  saved.running("first", "a", 4, 160);   // a minute old: 100 s are left
  saved.running("second", "b", 4, 660);  // 600 s

  SUBCASE("the first end is enough") {
    const PlanForecast told = saved.plan(SavedCluster::manifest("next", 4));
    CHECK_FALSE(told.starts_now);
    CHECK(told.why.find("needs 4") != std::string::npos);
    REQUIRE(told.starts_at);
    CHECK(*told.starts_at >= kReadAt + seconds(100));
    CHECK(*told.starts_at <= kReadAt + seconds(101));
    CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "first"}});
    CHECK(nodes_of(told) == "a a a a");
    CHECK(plan_text(told, {}, kReadAt).find("in 1 min 40 s") != std::string::npos);
  }
  SUBCASE("both must end") {
    const PlanForecast told = saved.plan(SavedCluster::manifest("next", 6));
    REQUIRE(told.starts_at);
    CHECK(*told.starts_at >= kReadAt + seconds(600));
    CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "first"}, {"lab", "second"}});
  }
  SUBCASE("no end would help") {
    const PlanForecast told = saved.plan(SavedCluster::manifest("next", 9));
    CHECK_FALSE(told.starts_now);
    CHECK_FALSE(told.starts_at);
    CHECK(told.awaited.empty());
    CHECK(told.why_never.find("needs 9") != std::string::npos);
    CHECK(plan_json(told)["never"] == told.why_never);
    const std::string page = plan_text(told, {}, kReadAt);
    CHECK(page.find("next in namespace lab: would never start as it is\n") == 0);
    CHECK(page.find("never on these nodes as they are, even if nothing else were on them: ") !=
          std::string::npos);
  }
  SUBCASE("not even one worker fits, of a job that says nothing of workers") {
    Json job = SavedCluster::manifest("next", 1);
    job["spec"] = *parse_json(R"({"training": {"steps": 1, "model": {"mlp": {"hidden": [1]}},
        "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
        "optimizer": {"sgd": {"learningRate": "0.1"}}}})");
    CHECK(saved.plan(job).why_never.empty());
    for (Json& object : saved.cluster.objects) {
      if (object["kind"] == "Node") object["spec"]["unschedulable"] = true;
    }
    CHECK_FALSE(saved.plan(job).why_never.empty());
  }
  SUBCASE("no end is known, and yet these nodes could hold it") {
    saved.running("endless", "a", 1, -1);
    const PlanForecast told = saved.plan(SavedCluster::manifest("next", 8));
    CHECK_FALSE(told.starts_at);
    CHECK(told.why_never.empty());
    CHECK(plan_text(told, {}, kReadAt).find("would wait\n") != std::string::npos);
    CHECK_FALSE(plan_json(told).contains("never"));
  }
}

TEST_CASE("of a job that waits already the start is foretold with those before it") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.running("first", "a", 4, 160);
  for (const char* name : {"older", "younger"}) {
    Json job = SavedCluster::manifest(name, 3);
    job["metadata"]["uid"] = std::string("uid-") + name;
    job["metadata"]["resourceVersion"] = "9";
    job["metadata"]["generation"] = 1;
    job["metadata"]["creationTimestamp"] =
        format_time(kReadAt - seconds(name == std::string("older") ? 200 : 100));
    saved.cluster.objects.push_back(std::move(job));
  }

  const auto older = forecast_waiting(saved.cluster, {"lab", "older"});
  REQUIRE(older);
  REQUIRE(older->starts_at);
  CHECK(*older->starts_at >= kReadAt + seconds(100));
  CHECK(start_words(*older, kReadAt).find("lab/first has ended") != std::string::npos);
  const auto younger = forecast_waiting(saved.cluster, {"lab", "younger"});
  REQUIRE(younger);
  CHECK_FALSE(younger->starts_at);
  CHECK(start_words(*younger, kReadAt) ==
        "expected start: not known; lab/older do not say when they end");
  const auto gone = forecast_waiting(saved.cluster, {"lab", "gone"});
  REQUIRE_FALSE(gone);
  CHECK(gone.error().code() == ErrorCode::kNotFound);
}

TEST_CASE("a start is foretold to a job that waits for room, and to no other") {
  api::TrainingJob job;
  job.spec.managed_by = contract::kManagedBy;
  job.status.conditions = {{"Admitted", "False", "GangWaiting", "no room", 1, kReadAt}};
  CHECK(waits_for_room(job));
  for (const char* reason : {"NameConflict", "CreateFailed", "QuotaExceeded", "Refused",
                             "InvalidSpec", "KueueDeactivated"}) {
    job.status.conditions.front().reason = reason;
    CHECK_MESSAGE(!waits_for_room(job), reason);
  }
  job.status.conditions.front().reason = "HalfBound";
  CHECK(waits_for_room(job));
  job.status.placement = {{0, 0, "n", ""}};
  CHECK_FALSE(waits_for_room(job));
}

TEST_CASE("a job starts when the one is over that has the claim of its checkpoints") {
  SavedCluster saved;
  saved.node("a", "r1");
  const auto put_on_disk = [](Json& job) {
    job["spec"]["worker"].erase("command");
    job["spec"]["training"] = *parse_json(R"({"steps": 5, "model": {"mlp": {"hidden": [3]}},
      "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
      "optimizer": {"sgd": {"learningRate": "1"}}, "checkpoint": {"volumeClaimName": "disk"}})");
  };
  saved.running("first", "a", 1, 160);
  put_on_disk(saved.cluster.objects.back());
  saved.cluster.objects.push_back(Json{{"apiVersion", "v1"},
                                       {"kind", "PersistentVolumeClaim"},
                                       {"metadata", {{"name", "disk"}, {"namespace", "lab"}}},
                                       {"spec", Json::object()}});
  Json next = SavedCluster::manifest("next", 1);
  put_on_disk(next);

  const PlanForecast told = saved.plan(next);

  CHECK_FALSE(told.starts_now);
  CHECK_MESSAGE(told.why.find("claim disk is for the checkpoints of job first") == 0, told.why);
  REQUIRE(told.starts_at);
  CHECK(*told.starts_at >= kReadAt + seconds(100));
  CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "first"}});
}

TEST_CASE("a job that does not say when it ends is over by its deadline") {
  SavedCluster saved;
  saved.node("a", "r1", 5);
  saved.running("bounded", "a", 4, -1);
  saved.cluster.objects.back()["spec"]["activeDeadlineSeconds"] = 4000;  // an hour of it is over

  PlanForecast told = saved.plan(SavedCluster::manifest("next", 2));

  REQUIRE(told.starts_at);
  CHECK(*told.starts_at >= kReadAt + seconds(400));
  CHECK(*told.starts_at <= kReadAt + seconds(401));
  saved.running("sooner", "a", 1, 160);
  saved.cluster.objects.back()["spec"]["activeDeadlineSeconds"] = 9000;
  told = saved.plan(SavedCluster::manifest("next", 1));
  CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "sooner"}});
}

TEST_CASE("of jobs that do not say when they end nothing is foretold") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.running("silent", "a", 4, -1);

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 2));

  CHECK_FALSE(told.starts_at);
  CHECK(told.unending == std::vector<api::ObjectKey>{{"lab", "silent"}});
  CHECK(plan_text(told, {}, kReadAt).find("lab/silent do not say when they end") !=
        std::string::npos);
}

TEST_CASE("who waits already is given what becomes free first") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.queue("q", 4);
  saved.running("holder", "a", 4, 160, "q");
  Json earlier = SavedCluster::manifest("earlier", 4, "q");
  earlier["metadata"]["uid"] = "uid-earlier";
  earlier["metadata"]["resourceVersion"] = "3";
  earlier["metadata"]["creationTimestamp"] = "2026-11-21T11:30:00Z";
  saved.cluster.objects.push_back(earlier);

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 4, "q"));

  CHECK_FALSE(told.starts_now);
  CHECK(told.why.find("2nd in queue q") != std::string::npos);
  // `earlier` takes what `holder` leaves, and nothing is known of its end.
  CHECK_FALSE(told.starts_at);
}

TEST_CASE("who would have to give way is named") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.queue("product", 4, "lab");
  saved.queue("research", 0, "lab");
  saved.running("borrower", "a", 4, 600, "research");

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 3, "product"));

  CHECK(told.starts_now);
  CHECK(nodes_of(told) == "a a a");
  REQUIRE(told.displaced.size() == 1);
  CHECK(told.displaced[0].job == api::ObjectKey{"lab", "borrower"});
  CHECK(told.displaced[0].workers_before == 4);
  CHECK(told.displaced[0].workers_after == 0);
  const std::string page = plan_text(told, {}, kReadAt);
  CHECK_MESSAGE(
      page.find("lab/borrower would be stopped: queue product takes back") != std::string::npos,
      page);
}

TEST_CASE("a job starts when another may be made to give way, and not with the next known end") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.node("b", "r2");
  saved.queue("product", 4, "lab");
  saved.queue("research", 0, "lab");
  // Of these 100 s are left to run.
  saved.cluster.objects.back()["spec"]["preemption"] = {{"minimumRunSeconds", 3700}};
  saved.running("borrower", "a", 4, -1, "research");

  SUBCASE("an end is known") { saved.running("other", "b", 4, 7200); }
  SUBCASE("none is") { saved.running("other", "b", 4, -1); }

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 3, "product"));
  CHECK_FALSE(told.starts_now);
  REQUIRE(told.starts_at);
  CHECK(*told.starts_at >= kReadAt + seconds(100));
  CHECK(*told.starts_at <= kReadAt + seconds(110));
  CHECK(told.awaited.empty());
  CHECK(start_words(told, kReadAt).find("when the rules of queues make room") != std::string::npos);
  CHECK(nodes_of(told) == "a a a");
  REQUIRE(told.displaced.size() == 1);
  CHECK(told.displaced[0].job == api::ObjectKey{"lab", "borrower"});
}

TEST_CASE("a job that gives way ends later, by as long as it waits to start again") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.queue("product", 4, "lab");
  saved.queue("research", 0, "lab");
  SUBCASE("it gives way at once") {}
  SUBCASE("it gives way later") {
    // Of these 100 s are left to run.
    saved.cluster.objects.back()["spec"]["preemption"] = {{"minimumRunSeconds", 3700}};
  }
  saved.running("borrower", "a", 4, 600, "research");  // 540 s are left of it
  Json own = SavedCluster::manifest("own", 4, "product");
  own["metadata"].update({{"uid", "uid-own"},
                          {"resourceVersion", "3"},
                          {"generation", 1},
                          {"creationTimestamp", "2026-11-21T11:59:00Z"}});
  own["spec"]["activeDeadlineSeconds"] = 300;
  saved.cluster.objects.push_back(std::move(own));

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 4, "research"));

  REQUIRE(told.starts_at);
  CHECK(*told.starts_at >= kReadAt + seconds(835));
  CHECK(*told.starts_at <= kReadAt + seconds(860));
  CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "own"}, {"lab", "borrower"}});
}

TEST_CASE("a pod that is starting will have started, however far a plan looks ahead") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.node("b", "r2");
  saved.running("starting", "a", 4, -1);
  for (Json& object : saved.cluster.objects) {
    if (object["kind"] == "Pod") object["status"] = {{"phase", "Pending"}};
    if (object["kind"] != "TrainingJob") continue;
    std::erase_if(object["status"]["conditions"].get_ref<Json::array_t&>(),
                  [](const Json& one) { return one["type"] == "Running"; });
    object["status"]["startTime"] = format_time(kReadAt - seconds(60));
  }
  saved.running("other", "b", 4, 7200);

  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 4));
  REQUIRE(told.starts_at);
  CHECK(*told.starts_at >= kReadAt + seconds(7140));
  CHECK(nodes_of(told) == "b b b b");
  CHECK(told.awaited == std::vector<api::ObjectKey>{{"lab", "other"}});
  CHECK(told.displaced.empty());
}

TEST_CASE("a plan says the same each time, and changes nothing of what it was given") {
  SavedCluster saved;
  saved.node("a", "r1");
  saved.running("first", "a", 4, 160);
  const auto objects = saved.cluster.objects;
  const Json once = plan_json(saved.plan(SavedCluster::manifest("next", 4)));
  CHECK(once == plan_json(saved.plan(SavedCluster::manifest("next", 4))));
  CHECK(saved.cluster.objects == objects);
  CHECK(once["expectedStart"].is_string());
  CHECK(once["after"] == Json::array({"lab/first"}));
}

TEST_CASE("what is decided is seen, so that it is decided once") {
  SavedCluster saved;
  saved.node("a", "r1");
  Json job = SavedCluster::manifest("once", 2);
  job["metadata"]["uid"] = "uid-once";
  job["metadata"]["resourceVersion"] = "1";
  runtime::WhatIf what_if(kReadAt);
  for (const Json& object : saved.cluster.objects) CHECK(what_if.put(object));
  CHECK(what_if.put(job));
  CHECK_FALSE(
      what_if.put({{"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", "s"}}}}));
  what_if.run(seconds(20));
  const auto decided = what_if.job({"lab", "once"});
  REQUIRE(decided);
  CHECK(decided->status.placement.size() == 2);
  what_if.run(seconds(280));
  CHECK(what_if.now() == kReadAt + seconds(300));
  CHECK(what_if.job({"lab", "once"})->meta.resource_version == decided->meta.resource_version);
  what_if.end_job({"lab", "once"});
  CHECK_FALSE(what_if.job({"lab", "once"}));
}

/// Two an hour and processor in rack r1, half of it by night (from 20 to 6); r2 has no price.
void price_of_r1(SavedCluster& saved) {
  auto prices = api::parse_price_list(*parse_json(R"({"currency": "EUR", "tiers": [
    {"name": "r1", "nodes": {"oci.oraclecloud.com/host.rack_id": "r1"},
     "prices": [{"resource": "cpu", "perHour": "2"}],
     "hours": [{"from": "06:00", "to": "20:00", "factor": "1"},
               {"from": "20:00", "to": "06:00", "factor": "0.5"}]}]})"));
  REQUIRE_MESSAGE(prices.has_value(), prices.error().message());
  saved.cluster.prices = std::move(*prices);
}

TEST_CASE("with a price list the plan tells what the job costs where it would stand") {
  SavedCluster saved;
  saved.node("a", "r1");
  price_of_r1(saved);
  Json job = SavedCluster::manifest("next", 4);

  SUBCASE("an hour, and in all by its deadline") {
    job["spec"]["activeDeadlineSeconds"] = 10 * 3600;
    const PlanForecast told = saved.plan(job);
    REQUIRE(told.starts_now);
    // Ten hours from twenty seconds after noon on: eight at 8 but for these, two at 4 and these.
    const std::string page = plan_text(told, {}, kReadAt);
    CHECK_MESSAGE(page.find("cost: 8.00 EUR an hour; at most 71.98 EUR by its deadline "
                            "(2026-11-21T22:00:20Z), with these workers\n") != std::string::npos,
                  page);
    const Json json = plan_json(told);
    CHECK(json["cost"] == Json{{"currency", "EUR"}, {"perHour", "8"}, {"atMost", "71.977777778"}});
  }
  SUBCASE("without a deadline nothing says when it ends") {
    const PlanForecast told = saved.plan(job);
    CHECK(plan_json(told)["cost"] ==
          Json{{"currency", "EUR"}, {"perHour", "8"}, {"atMost", nullptr}});
    CHECK(plan_text(told, {}, kReadAt).find("in all not known") != std::string::npos);
  }
  SUBCASE("of a job that waits, from its expected start on") {
    saved.running("first", "a", 4, 9 * 3600 + 60);
    const PlanForecast told = saved.plan(job);
    REQUIRE(told.starts_at);
    CHECK(plan_json(told)["cost"]["perHour"] == "4");
  }
  SUBCASE("on a node without a price it is unknown") {
    saved.cluster.objects.clear();
    saved.node("b", "r2");
    job["spec"]["activeDeadlineSeconds"] = 3600;
    const PlanForecast told = saved.plan(job);
    REQUIRE(told.starts_now);
    CHECK(plan_json(told)["cost"]["perHour"] == nullptr);
    CHECK(plan_json(told)["cost"]["atMost"] == nullptr);
    CHECK(plan_text(told, {}, kReadAt)
              .find("cost: not known: node b is in no tier of the price list; one must have its "
                    "labels\n") != std::string::npos);
  }
  SUBCASE("a job that never has a place has no cost") {
    CHECK_FALSE(plan_json(saved.plan(SavedCluster::manifest("huge", 9))).contains("cost"));
  }
}

TEST_CASE("without a price list the plan says nothing of cost") {
  SavedCluster saved;
  saved.node("a", "r1");
  const PlanForecast told = saved.plan(SavedCluster::manifest("next", 4));
  CHECK_FALSE(plan_json(told).contains("cost"));
  CHECK(plan_text(told, {}, kReadAt).find("cost") == std::string::npos);
}

Json training(const std::string& name, int workers) {
  Json json = SavedCluster::manifest(name, workers);
  json["spec"]["worker"].erase("command");
  json["spec"]["training"] = *parse_json(R"({"steps": 1000, "batchSize": 32,
    "model": {"gpt": {"layers": 6, "heads": 12, "width": 192, "contextLength": 64}},
    "data": {"train": {"text": {"file": "a"}}, "test": {"text": {"file": "b"}}},
    "optimizer": {"adamw": {"learningRate": "0.001"}}})");
  return json;
}

/// Of 500 ms a step 400 were computing, when it was last heard of.
Json trained(const std::string& name, int workers, const std::string& heard_at) {
  Json json = training(name, workers);
  json["metadata"].update({{"uid", "uid-" + name},
                           {"resourceVersion", "7"},
                           {"generation", 1},
                           {"creationTimestamp", "2026-11-21T09:00:00Z"}});
  Json complete{{"type", "Complete"},
                {"status", "True"},
                {"reason", "Completed"},
                {"message", ""},
                {"lastTransitionTime", heard_at}};
  json["status"] = {{"observedGeneration", 1},
                    {"membershipEpoch", 1},
                    {"targetWorkers", workers},
                    {"conditions", Json::array({std::move(complete)})},
                    {"completionTime", heard_at},
                    {"model", {{"parameters", 1'000'000}}},
                    {"progress",
                     {{"step", 1000},
                      {"stepMilliseconds", "500"},
                      {"exchangeMilliseconds", "100"},
                      {"updatedAt", heard_at}}}};
  return json;
}

TEST_CASE("the step is predicted where a job has trained the same with as many workers") {
  SavedCluster saved;
  for (const char* name : {"a", "b"}) saved.node(name, "r1", 2);
  saved.cluster.objects.push_back(trained("old", 4, "2026-11-21T10:00:00Z"));
  saved.cluster.objects.push_back(trained("older", 4, "2026-11-21T09:30:00Z"));
  Json job = training("next", 4);
  const auto page_of = [&](const PlanForecast& told) { return plan_text(told, {}, kReadAt); };
  const std::string unknown = "predicted step: not known; that takes a job here";

  SUBCASE("what they compute, and the exchange where this one would stand") {
    job["spec"]["training"]["seed"] = 7;  // no difference
    job["spec"]["training"]["steps"] = 5;
    const PlanForecast told = saved.plan(job);
    REQUIRE(told.step);
    const double milliseconds = std::stod(told.step->milliseconds);
    CHECK(milliseconds > 400);
    CHECK(milliseconds < 410);
    CHECK_MESSAGE(page_of(told).find("predicted step: " + told.step->milliseconds +
                                     " ms, if its workers compute as fast as lab/old's and nobody "
                                     "else sends\n") != std::string::npos,
                  page_of(told));
    CHECK(plan_json(told)["predictedStepMilliseconds"] == told.step->milliseconds);
    CHECK_FALSE(plan_json(told).contains("predictedExchangeMilliseconds"));
  }
  SUBCASE("also of one that is over before this one starts") {
    saved.running("first", "a", 2, 100);
    const PlanForecast told = saved.plan(job);
    REQUIRE(told.starts_at);
    CHECK(told.step);
  }
  SUBCASE("other batches, or other workers, take another time") {
    job["spec"]["training"]["batchSize"] = 64;
    const PlanForecast batch = saved.plan(job);
    CHECK_FALSE(batch.step);
    CHECK(page_of(batch).find(unknown) != std::string::npos);
    CHECK(plan_json(batch)["predictedStepMilliseconds"] == nullptr);
    // What nobody has trained is exchanged all the same: of 11 MB half goes from node to node.
    REQUIRE(batch.exchange);
    CHECK(std::stod(*batch.exchange) > 0);
    CHECK(std::stod(*batch.exchange) < 100);
    CHECK(page_of(batch).find(". Its exchange alone would take " + *batch.exchange + " ms") !=
          std::string::npos);
    CHECK(plan_json(batch)["predictedExchangeMilliseconds"] == *batch.exchange);
    job["spec"]["training"]["model"]["gpt"]["layers"] = 12;
    CHECK(std::stod(*saved.plan(job).exchange) > 1.5 * std::stod(*batch.exchange));
    CHECK_FALSE(saved.plan(training("next", 2)).step);
    job = training("next", 4);
    job["spec"]["worker"]["threads"] = 2;
    CHECK_FALSE(saved.plan(job).step);
  }
  SUBCASE("a gang that lacks members computes more per worker, and is no example") {
    saved.node("c", "r1", 4);
    for (Json& object : saved.cluster.objects) {
      if (object["metadata"]["name"] != "old") continue;
      object["status"].erase("completionTime");
      object["status"]["conditions"][0]["type"] = "Running";
    }
    for (const int training : {2, 4}) {
      for (Json& object : saved.cluster.objects) {
        if (object["metadata"]["name"] == "old") object["status"]["replicas"] = training;
      }
      const PlanForecast told = saved.plan(job);
      REQUIRE(told.step);
      CHECK(told.step->measured.name == (training == 4 ? "old" : "older"));
    }
  }
  SUBCASE("where nothing is known of the network nobody knows") {
    for (Json& object : saved.cluster.objects) object["metadata"].erase("labels");
    const PlanForecast told = saved.plan(job);
    CHECK(told.starts_now);
    CHECK_FALSE(told.step);
    CHECK_FALSE(told.exchange);
    CHECK(told.why.find("no topology is known") != std::string::npos);
  }
  SUBCASE("of a program of one's own, and of who gets no place, nothing is said") {
    for (const Json& other : {SavedCluster::manifest("own", 4), training("huge", 16)}) {
      const PlanForecast told = saved.plan(other);
      CHECK(page_of(told).find("predicted step:") == std::string::npos);
      CHECK_FALSE(plan_json(told).contains("predictedStepMilliseconds"));
    }
  }
}

TEST_CASE("without a node there is nothing to plan with") {
  const auto told =
      forecast(PlanCluster{{Json::object()}, kReadAt}, SavedCluster::manifest("x", 1));
  REQUIRE_FALSE(told);
  CHECK(told.error().message().find("no Node") != std::string::npos);
}

TEST_CASE("a saved cluster was read when its newest object was written") {
  std::vector<Json> objects{
      {{"metadata", {{"creationTimestamp", "2026-11-21T10:00:00Z"}}}},
      {{"status",
        {{"conditions", Json::array({{{"lastHeartbeatTime", "2026-11-21T12:00:00Z"}}})},
         {"restartAt", "2027-01-01T00:00:00Z"}}}}};
  CHECK(*newest_time(objects) == kReadAt);
  CHECK_FALSE(newest_time({Json::object()}));
}

}  // namespace
}  // namespace muster::cli
