// Queues as they are read: what is refused, and how amounts are counted.
#include "operator/api/training_queue.h"

#include <doctest/doctest.h>

#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

std::string queue_refusal(const Json& json) {
  const auto queue = parse_training_queue(json);
  return queue ? "" : queue.error().message();
}

Json with_resources(const char* resources) {
  return with(full_training_queue(), "/spec/resources", *parse_json(resources));
}

}  // namespace

TEST_CASE("amounts are counted in the units of their resource") {
  const auto queue = parse_training_queue(with_resources(
      R"([{"name": "cpu", "nominal": "1500m", "borrowingLimit": 2},
          {"name": "memory", "nominal": "2Gi", "lendingLimit": "0"},
          {"name": "example.com/fpga", "nominal": 3}])"));
  REQUIRE(queue.has_value());
  const auto& resources = queue->spec.resources;
  CHECK(resources[0].nominal == 1500);
  CHECK(resources[0].borrowing_limit == 2000);
  CHECK_FALSE(resources[0].lending_limit.has_value());
  CHECK(resources[1].nominal == std::int64_t{2} << 30);
  CHECK(resources[1].lending_limit == 0);
  CHECK(resources[2].nominal == 3);
}

TEST_CASE("a queue is written as it is read") {
  for (const Json& json : {least_training_queue(), full_training_queue()}) {
    const auto queue = parse_training_queue(json);
    REQUIRE(queue.has_value());
    const auto again = parse_training_queue(to_json(*queue));
    REQUIRE_MESSAGE(again.has_value(), again.error().message());
    CHECK(*again == *queue);
  }
}

TEST_CASE("how long a queue's jobs run at least is bounded, and nothing where it is not said") {
  CHECK(parse_training_queue(full_training_queue())->spec.preemption.minimum_run_seconds == 600);
  CHECK(parse_training_queue(least_training_queue())->spec.preemption.minimum_run_seconds == 0);
  for (const int wrong : {-1, 30 * 24 * 3600 + 1}) {
    CHECK(queue_refusal(
              with(full_training_queue(), "/spec/preemption/minimumRunSeconds", Json(wrong)))
              .starts_with("spec.preemption.minimumRunSeconds: must be from 0 to 2592000"));
  }
}

TEST_CASE("what cannot be a queue is refused with the field and what would be right") {
  CHECK(queue_refusal(with_resources(R"([{"name": "cpu", "nominal": "-1"}])")) ==
        "spec.resources[0].nominal: \"-1\" is negative");
  CHECK(queue_refusal(with_resources(R"([{"name": "cpu", "nominal": -1}])"))
            .starts_with("spec.resources[0].nominal: must be from 0"));
  CHECK(queue_refusal(with_resources(R"([{"name": "pods", "nominal": "2E"}])")) ==
        "spec.resources[0].nominal: must be from 0 to 1E");
  CHECK(queue_refusal(with_resources(R"([{"name": "cpu", "nominal": "2P"}])")) ==
        "spec.resources[0].nominal: must be from 0 to 1P");
  // Ten thousand nodes of 256 GiB have more than 2 PB.
  CHECK(queue_refusal(with_resources(R"([{"name": "memory", "nominal": "2Pi"}])")).empty());
  CHECK(queue_refusal(with_resources(R"([{"name": "cpu", "nominal": 1.5}])"))
            .starts_with("spec.resources[0].nominal: must be an integer or a quantity in quotes"));
  CHECK(queue_refusal(
            with_resources(R"([{"name": "cpu", "nominal": 1}, {"name": "cpu", "nominal": 2}])"))
            .starts_with("spec.resources[1].name: "));
  CHECK(queue_refusal(with(full_training_queue(), "/spec/cohort", nullptr)) ==
        "spec.cohort: is required where a resource (nvidia.com/gpu) has borrowingLimit or "
        "lendingLimit; without a cohort there is nobody to borrow from or to lend to");
  const auto budget = [](const char* text) {
    return queue_refusal(with(full_training_queue(), "/spec/budget", *parse_json(text)));
  };
  CHECK(budget(R"({"amount": "5"})") == "spec.budget.currency: is required");
  CHECK(budget(R"({"currency": "eur", "amount": "5"})")
            .starts_with("spec.budget.currency: must be the price list's, three capital letters"));
  CHECK(budget(R"({"currency": "EUR"})") == "spec.budget.amount: is required");
  CHECK(budget(R"({"currency": "EUR", "amount": "-5"})") ==
        "spec.budget.amount: must be a decimal from 0 to 9000000000, such as \"12.5\"");
  CHECK(budget(R"({"currency": "EUR", "amount": "1000000000"})") ==
        "spec.budget.amount: must be less than 1000000000");
  CHECK(budget(R"({"currency": "EUR", "amount": 5})").starts_with("spec.budget.amount: "));
  CHECK(budget(R"({"currency": "EUR", "amount": "5", "period": "Year"})")
            .starts_with("spec.budget.period: "));
  CHECK(budget(R"({"currency": "EUR", "amount": "5", "hard": true})")
            .starts_with("spec.budget.hard: "));
  CHECK(queue_refusal(with(full_training_queue(), "/metadata/namespace", "a"))
            .starts_with("metadata.namespace: must be left out"));
  CHECK(queue_refusal(with(full_training_queue(), "/metadata/name", "a.b"))
            .starts_with("metadata.name: must be at most 63 lower-case letters"));
  CHECK(queue_refusal(with(full_training_queue(), "/spec/quota", 1)).starts_with("spec.quota: "));
  CHECK(queue_refusal(with(full_training_queue(), "/nonsense", 1)).starts_with("nonsense: "));
}

TEST_CASE("of a queue whose spec is refused the rest is read, and it limits nobody by mistake") {
  const auto [queue, verdict] = read_training_queue(with(full_training_queue(), "/spec/weight", 0));
  CHECK_FALSE(verdict);
  CHECK(queue.meta.name == "research");
  CHECK(queue.status.admitted == 2);
  CHECK(queue.spec == TrainingQueueSpec{});
  const auto [damaged, good] =
      read_training_queue(with(full_training_queue(), "/status/admitted", "x"));
  CHECK(good);
  CHECK(damaged.spec.cohort == "lab");
  CHECK(damaged.status == TrainingQueueStatus{});
}

TEST_CASE("of a queue that a newer version has written the fields unknown here are passed over") {
  Json newer = full_training_queue();
  for (const char* field : {"/spec/fairness", "/spec/preemption/order", "/spec/budget/warnsAt",
                            "/spec/resources/0/bursts.for"}) {
    newer = with(newer, field, 7);
  }
  const auto [queue, verdict] = read_training_queue(newer);
  CHECK_MESSAGE(verdict, (verdict ? "" : verdict.error().message()));
  CHECK(queue.spec == parse_training_queue(full_training_queue())->spec);
  // Who writes a queue by hand hears of them, and a value that is wrong stays wrong.
  CHECK_FALSE(parse_training_queue(newer).has_value());
  const auto [wrong, refusal] = read_training_queue(with(newer, "/spec/weight", 0));
  CHECK_FALSE(refusal);
  CHECK(wrong.spec == TrainingQueueSpec{});
}

TEST_CASE("a priority class is its value") {
  const auto high = parse_priority_class(
      *parse_json(R"({"metadata": {"name": "high"}, "value": 1000, "globalDefault": true})"));
  REQUIRE(high.has_value());
  CHECK(high->value == 1000);
  CHECK(high->is_default);
  CHECK(parse_priority_class(*parse_json(R"({"metadata": {"name": "zero"}})"))->value == 0);
}
