// What the commands for clusters make of objects and of kubectl's words.
#include <doctest/doctest.h>

#include "cli/cost_words.h"
#include "cli/job_story.h"
#include "cli/json_stream.h"
#include "cli/kube_objects.h"
#include "cli/kube_table.h"
#include "cli/kubectl.h"
#include "common/contract.h"
#include "common/json.h"
#include "common/rng.h"
#include "tests/test_main.h"

namespace muster::cli {
namespace {

const WallTime kNow = *parse_time("2026-11-21T12:00:00Z");

TEST_CASE("ages read as kubectl writes them") {
  const struct {
    std::int64_t seconds;
    const char* text;
  } rows[] = {{-5, "0s"},
              {0, "0s"},
              {119, "119s"},
              {120, "2m"},
              {192, "3m12s"},
              {600, "10m"},
              {3 * 3600 - 1, "179m"},
              {3 * 3600, "3h"},
              {5 * 3600 + 60, "5h1m"},
              {9 * 3600, "9h"},
              {48 * 3600, "2d"},
              {51 * 3600, "2d3h"},
              {30 * 86'400, "30d"}};
  for (const auto& row : rows) CHECK(age_text(kNow - seconds(row.seconds), kNow) == row.text);
  CHECK(age_text(std::nullopt, kNow) == "-");
}

TEST_CASE("numbers are grouped by thousands") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1'000) == "1,000");
  CHECK(grouped(-1'234'567) == "-1,234,567");
}

TEST_CASE("money is rounded to hundredths, and small amounts are not rounded away") {
  const struct {
    const char* amount;
    const char* text;
  } rows[] = {{"0", "0 EUR"},
              {"0.0000004", "0 EUR"},
              {"0.00123456", "0.001235 EUR"},
              {"0.1", "0.10 EUR"},
              {"12.345", "12.35 EUR"},
              {"12.344999999", "12.34 EUR"},
              {"1234.999", "1235.00 EUR"},
              {"9223372036.854775807", "9223372036.85 EUR"}};
  for (const auto& row : rows)
    CHECK(money_text(*api::parse_billionths(row.amount), "EUR") == row.text);
}

TEST_CASE("what a job costs is told with what is not known of it") {
  api::JobCost cost;
  cost.currency = "EUR";
  cost.amount = 12'500'000'000;
  cost.rate_per_hour = 0;
  cost.updated_at = kNow - seconds(180);
  CHECK(cost_words(cost, kNow) == "12.50 EUR");
  cost.rate_per_hour = 4'000'000'000;
  CHECK(cost_words(cost, kNow) == "12.50 EUR; 4.00 EUR an hour now (as of 3m ago)");
  CHECK(final_cost_words(cost) == "12.50 EUR");
  cost.unknown_seconds = 300;
  cost.unknown = "node n is in no tier";
  CHECK(cost_words(cost, kNow) ==
        "12.50 EUR and what 5 min 00 s cost, which is not known: node n is in no tier; 4.00 EUR an "
        "hour now (as of 3m ago)");
  cost.rate_per_hour.reset();
  CHECK(cost_words(cost, kNow).ends_with("node n is in no tier; nor is what it costs now"));
  cost.amount.reset();
  CHECK(cost_words(cost, kNow) == "not known: node n is in no tier");
  CHECK(final_cost_words(cost) == "not known: node n is in no tier");
  CHECK(final_cost_words(std::nullopt) == "not known: the job had no place yet");
}

TEST_CASE("a table aligns its columns and keeps foreign text on its line") {
  Table table({"NAME", ">STEP"});
  table.add({{"a"}, {"220/440"}});
  table.add({{"läng\ner\033[2J"}, {""}});
  CHECK(table.take({}) == "NAME            STEP\na            220/440\nläng er [2J        -\n");
  table.add({{"b"}, {"1"}});
  CHECK(table.take({}) == "b                  1\n");
}

TEST_CASE("sentences are wrapped at the width and keep their own lines") {
  const std::string text = "one two three four five six seven eight nine ten eleven twelve";
  CHECK(wrapped(text, 0, "  ") == text);
  CHECK(wrapped(text, 42, "  ") ==
        "one two three four five six seven eight\n  nine ten eleven twelve");
  CHECK(wrapped("a\nb", 42, "  ") == "a\n  b");
}

TEST_CASE("every failure that a worker can name has a word of help") {
  for (int code = 1; code < 64; ++code) {
    const std::string reason(contract::reason_of_exit_code(code));
    // A port is of `muster run` alone, a lease of the operator, a planned leave is no failure, and
    // bugs have no cure here.
    const bool needs_none = reason == "PortTaken" || reason == "PlannedLeave" ||
                            reason == "InternalError" || reason == "JobFailed" ||
                            reason == "ClusterRefused" || reason == "LeaseLost";
    if (!needs_none) CHECK_MESSAGE(!help_for_failure(reason).empty(), reason);
  }
}

TEST_CASE("a job that nobody takes up says where to look, once it has waited long enough") {
  api::TrainingJob job;
  job.meta.name = "digits";
  job.meta.creation_time = kNow - seconds(5);
  CHECK(tell_story(job, {}, kNow).help.empty());
  job.meta.creation_time = kNow - seconds(60);
  CHECK(tell_story(job, {}, kNow).help.size() == 1);
  job.spec.managed_by = "kueue.x-k8s.io/multikueue";
  CHECK(tell_story(job, {}, kNow).headline == "Left to another controller");
}

TEST_CASE("who waits for room hears which number of workers to lower") {
  api::TrainingJob job;
  job.status.phase = "Waiting";
  job.status.conditions = {{"Admitted", "False", "GangWaiting", "needs 4 workers", 1, kNow}};
  const auto names = [&](const std::string& field) {
    const JobStory story = tell_story(job, {}, kNow);
    REQUIRE_FALSE(story.help.empty());
    return story.help.front().find("Fewer workers (" + field + ")") != std::string::npos;
  };
  CHECK(names("spec.worker.min"));
  job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
  CHECK(names("spec.worker.count"));
}

TEST_CASE("who starts again says how long it waits for places, and how long it starts with them") {
  api::TrainingJob job;
  job.status.phase = "Restarting";
  const WallTime lost = kNow - seconds(5 * 3600), later = kNow - seconds(600);
  job.status.conditions = {{"Running", "False", "Restarting", "worker 1 was lost", 1, lost},
                           {"Restarting", "True", "Restarting", "worker 1 was lost", 1, lost},
                           {"Admitted", "False", "Restarting", "worker 1 was lost", 1, lost}};
  const auto told = [&] {
    const JobStory story = tell_story(job, {}, kNow);
    return story.headline + ": " + story.happened.front();
  };
  CHECK(told() == "Restarting for 5h: Worker 1 was lost.");
  job.status.conditions[2].reason = "GangWaiting";
  job.status.conditions[2].message = "2nd in queue research: its quota is kept for team/first";
  CHECK(told() == "Waiting for 5h: 2nd in queue research: its quota is kept for team/first.");
  job.status.conditions[2].reason = "QuotaExceeded";
  job.status.conditions[2].message = "exceeded quota: pods";
  CHECK(told() == "Waiting for 5h: Exceeded quota: pods.");
  job.status.conditions = {
      {"Running", "False", "GangScheduled", "the gang has its places", 1, lost},
      {"Admitted", "True", "GangScheduled", "1 worker on n (1)", 1, later}};
  CHECK(told() == "Starting for 10m: The gang has its places.");
}

TEST_CASE("what the API server did not take is told with what would help against that") {
  const auto help_against = [](const char* reason, const char* message) {
    api::TrainingJob job;
    job.meta.name = "digits";
    job.meta.namespace_name = "hpc";
    job.status.phase = "Waiting";
    job.status.conditions = {{"Admitted", "False", reason, message, 1, kNow}};
    const JobStory story = tell_story(job, {}, kNow);
    return story.help.empty() ? std::string() : story.help.front();
  };
  const std::string secured = help_against(
      "CreateFailed",
      "create Pod hpc/a: pods \"a\" is forbidden: violates PodSecurity \"baseline:latest\": host "
      "namespaces (hostNetwork=true), hostPort (container \"worker\" uses hostPort 29500)");
  CHECK_MESSAGE(secured.find("kubectl label namespace hpc --overwrite "
                             "pod-security.kubernetes.io/enforce=privileged") != std::string::npos,
                secured);
  // Of what else Pod Security says no label is advised: the pods are restricted otherwise.
  CHECK(help_against("CreateFailed", "violates PodSecurity \"restricted:latest\": seccompProfile")
            .find("privileged") == std::string::npos);
  CHECK(help_against("CreateFailed", "webhook hostNetwork=true").find("quota") !=
        std::string::npos);
  CHECK(
      help_against("QuotaExceeded", "exceeded quota: team").find("kubectl -n hpc describe quota") !=
      std::string::npos);
}

TEST_CASE("pods in the same trouble are told once, by slot") {
  std::vector<PodView> pods(10);
  for (int slot = 0; slot < 10; ++slot) {
    pods[static_cast<std::size_t>(slot)].slot = slot;
    pods[static_cast<std::size_t>(slot)].trouble = slot == 3 ? "Evicted" : "Unschedulable";
  }
  const auto told = pod_troubles(pods);
  REQUIRE(told.size() == 2);
  CHECK(told[0] == "Worker 3: Evicted.");
  CHECK(told[1] == "Workers 0, 1, 2, 4, 5, 6, 7, 8 and 1 more: Unschedulable.");
}

TEST_CASE("objects of any form are read without a failure") {
  for (const char* text :
       {"null", "[]", "{}", R"({"metadata":3})",
        R"({"metadata":{"labels":{"muster.dev/slot":"x"}}})",
        R"({"status":{"containerStatuses":{}}})", R"({"status":{"containerStatuses":[3]}})",
        R"({"spec":{"containers":[{"name":7}]}})", R"({"series":{"count":1e300}})"}) {
    const Json json = *parse_json(text);
    CHECK(read_pod(json).attempt == 0);
    CHECK(read_event(json).count == 1);
    (void)items_of(json);
  }
}

TEST_CASE("the time of an event is the last that it tells of, as exactly as it is told") {
  const auto read = [](const char* text) { return read_event(*parse_json(text)); };
  const auto time = [](const char* text) { return *parse_time(text); };
  const EventView once = read(R"({"eventTime": "2026-01-01T00:00:09.250000Z", "count": 1,
    "firstTimestamp": "2026-01-01T00:00:09Z", "lastTimestamp": "2026-01-01T00:00:09Z"})");
  CHECK(once.time == time("2026-01-01T00:00:09.250000Z"));
  const EventView again = read(R"({"eventTime": "2026-01-01T00:00:09.250000Z", "count": 2,
    "lastTimestamp": "2026-01-01T00:00:12Z",
    "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:12.500000Z"}})");
  CHECK(again.time == time("2026-01-01T00:00:12.500000Z"));
  CHECK(again.count == 2);
  // Through events.k8s.io, by the kubelet, and with nothing but its birth.
  CHECK(read(R"({"eventTime": "2026-01-01T00:00:09.250000Z", "lastTimestamp": null})").time ==
        time("2026-01-01T00:00:09.250000Z"));
  const EventView kubelet = read(R"({"eventTime": null, "count": 5, "message": "m",
    "firstTimestamp": "2026-01-01T00:00:01Z", "lastTimestamp": "2026-01-01T00:00:08Z",
    "involvedObject": {"kind": "Pod", "name": "a"}})");
  CHECK(kubelet.time == time("2026-01-01T00:00:08Z"));
  CHECK(kubelet.count == 5);
  CHECK(kubelet.note == "m");
  CHECK(kubelet.about == "Pod a");
  CHECK(read(R"({"metadata": {"creationTimestamp": "2026-01-01T00:00:03Z"}})").time ==
        time("2026-01-01T00:00:03Z"));
}

TEST_CASE("of what comes before a worker that which runs has the log, unless it stays beside it") {
  Json pod = *parse_json(R"({
    "spec": {"initContainers": [{"name": "mesh", "restartPolicy": "Always"}, {"name": "fetch"}]},
    "status": {"phase": "Pending",
    "initContainerStatuses": [{"name": "mesh", "started": true, "state": {"running": {}}},
                              {"name": "fetch", "state": {"running": {}}}],
    "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": "x"}}}]}})");
  CHECK(read_pod(pod).log_container() == "fetch");
  CHECK(read_pod(pod).has_log());
  Json& status = pod["status"];
  status["initContainerStatuses"][1]["state"] = Json{{"terminated", {{"exitCode", 0}}}};
  CHECK_FALSE(read_pod(pod).has_log());
  CHECK(read_pod(pod).trouble == "x");
}

TEST_CASE("objects in a stream are found wherever the pieces are cut") {
  const std::vector<std::string> documents{R"({"a":"}\"{["})", "{\n    \"b\": [1, {}]\n}", "{}"};
  std::string text;
  for (const std::string& document : documents) text += document + "\n";
  Rng rng(test::seed());
  for (int round = 0; round < 200; ++round) {
    JsonStream stream;
    std::vector<std::string> found;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + static_cast<std::size_t>(rng() % 7);
      const auto piece = std::string_view(text).substr(at, length);
      REQUIRE(stream.feed(piece, [&](std::string_view document) -> Status {
        found.emplace_back(document);
        return {};
      }));
      at += piece.size();
    }
    CHECK(found == documents);
  }
  JsonStream stream;
  CHECK_FALSE(stream.feed("{} oops", [](std::string_view) { return Status(); }));
}

TEST_CASE("kubectl's last words become a code and one line") {
  const auto explain = [](const char* words) { return explain_kubectl({"get"}, 1, words); };
  CHECK(explain("Error from server (NotFound): pods \"x\" not found\n").code() ==
        ErrorCode::kNotFound);
  const std::string eve =
      "Error from server (Forbidden): pods is forbidden: User \"eve\" cannot list resource "
      "\"pods\"";
  CHECK(explain(("Warning: old\n" + eve + "\n").c_str()).message() == "you lack the right: " + eve);
  CHECK(explain(eve.c_str()).code() == ErrorCode::kForbidden);
  for (const char* refused :
       {"Error from server (Forbidden): pods \"x\" is forbidden: exceeded quota: q, requested: "
        "pods=1",
        "Error from server (Forbidden): pods \"x\" is forbidden: violates PodSecurity "
        "\"restricted\"",
        "Error from server (Forbidden): pods \"x\" is forbidden: maximum cpu usage is 1"}) {
    CHECK(explain(refused).message() == refused);
    CHECK(explain(refused).code() == ErrorCode::kForbidden);
  }
  CHECK(explain("error: one\n\033[31mtwo\n").message() == "kubectl get: error: one;  [31mtwo");
  CHECK(explain("").message() == "kubectl get: ended with exit code 1 and said nothing");
  CHECK(explain(std::string(100'000, 'x').c_str()).message().size() < 2'000);
  CHECK(explain("").exit_code() == contract::exit_code::kCluster);
}

}  // namespace
}  // namespace muster::cli
