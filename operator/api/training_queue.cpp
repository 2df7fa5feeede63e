#include "operator/api/training_queue.h"

#include <algorithm>
#include <array>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/price_list.h"
#include "operator/api/spec_json.h"
#include "operator/api/training_job.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxQueueResources = 64;
constexpr std::size_t kMaxQueueNamespaces = 256;
constexpr std::size_t kMaxQueueConditions = 32;
constexpr std::size_t kMaxSpendingTextBytes = 1024;
/// In the units that amounts are counted in: of cpu, of which these are thousandths, 1P. Sums of
/// them stay exact up to two, and are bounded above that (queue_quota.cpp).
constexpr std::int64_t kMostOfAResource = 1'000'000'000'000'000'000;  // 1E
constexpr JsonReader::Range kGeneration = {0, kMaxExactInteger};
constexpr JsonReader::Range kJobs = {0, INT32_MAX};
constexpr JsonReader::Range kLeastRun = {0, 30 * 24 * 3600};

void read_amount_of(JsonReader& in, const Json& json, const char* field,
                    const std::string& resource, std::int64_t& out) {
  std::int64_t amount = 0;
  read_quantity(in, json, field, amount,
                [&](const std::string& text) { return parse_amount(resource, text); });
  if (in.status() && amount > kMostOfAResource) {
    in.fail(field, resource == "cpu" ? "must be from 0 to 1P" : "must be from 0 to 1E");
  }
  if (in.status()) out = amount;
}

void read_limit(JsonReader& in, const Json& json, const char* field, const std::string& resource,
                std::optional<std::int64_t>& out) {
  std::int64_t limit = 0;
  read_amount_of(in, json, field, resource, limit);
  if (in.status() && in.has(field)) out = limit;
}

Status read_queue_resource(const Json& json, const std::string& path, QueueResource& out) {
  JsonReader in(json, path);
  required_name(in, "name", out.name, NameRule::kQualified);
  if (in.status() && !in.has("nominal")) in.fail("nominal", "is required");
  read_amount_of(in, json, "nominal", out.name, out.nominal);
  read_limit(in, json, "borrowingLimit", out.name, out.borrowing_limit);
  read_limit(in, json, "lendingLimit", out.name, out.lending_limit);
  in.no_other_fields();
  return in.status();
}

void read_namespaces(JsonReader& in, std::vector<std::string>& out) {
  read_list(in, "namespaces", kMaxQueueNamespaces,
            [&](const Json& item, const std::string& at) -> Status {
              const auto* name = item.get_ptr<const std::string*>();
              if (name == nullptr || !matches(NameRule::kLabel, *name)) {
                return Error(ErrorCode::kInvalid,
                             at + ": must be the name of a namespace: lower-case letters, digits "
                                  "or '-', at most 63");
              }
              return add_unique(out, *name, at, "namespace");
            });
}

constexpr Billionths kBudgetBelow = 1'000'000'000 * kOne;

/// By BudgetPeriod.
constexpr std::array kPeriods{"Day", "Week", "Month", "Forever"};

Status read_budget(const Json& json, const std::string& path, QueueBudget& out) {
  JsonReader in(json, path);
  in.required("currency", out.currency, 3);
  if (in.status() && !is_currency(out.currency)) {
    in.fail("currency", "must be the price list's, three capital letters such as EUR");
  }
  std::optional<Billionths> amount;
  read_billionths(in, "amount", amount);
  if (in.status() && !amount) in.fail("amount", "is required");
  if (in.status() && *amount >= kBudgetBelow) in.fail("amount", "must be less than 1000000000");
  out.amount = amount.value_or(0);
  std::string period = kPeriods[static_cast<std::size_t>(out.period)];
  optional_enum(in, "period", period, {kPeriods[0], kPeriods[1], kPeriods[2], kPeriods[3]});
  const auto found = std::find(kPeriods.begin(), kPeriods.end(), period);
  if (found != kPeriods.end()) out.period = static_cast<BudgetPeriod>(found - kPeriods.begin());
  in.no_other_fields();
  return in.status();
}

Status read_spending(const Json& json, const std::string& path, QueueSpending& out) {
  JsonReader in(json, path);
  in.required("currency", out.currency, 3);
  std::optional<Billionths> spent, rate;
  read_billionths(in, "spent", spent);
  read_billionths(in, "ratePerHour", rate);
  out.spent = spent.value_or(0);
  out.rate_per_hour = rate.value_or(0);
  optional_time(in, "since", out.since);
  optional_time(in, "updatedAt", out.updated_at);
  in.optional("unknown", out.unknown, kMaxSpendingTextBytes);
  return in.status();
}

Status read_queue_spec(const Json& json, const std::string& path, TrainingQueueSpec& out) {
  JsonReader in(json, path);
  optional_name(in, "cohort", out.cohort, NameRule::kLabel);
  std::vector<std::string> names;
  read_list(in, "resources", kMaxQueueResources,
            [&](const Json& item, const std::string& at) -> Status {
              QueueResource& one = out.resources.emplace_back();
              MUSTER_RETURN_IF_ERROR(read_queue_resource(item, at, one));
              return add_unique(names, one.name, at + ".name", "resource");
            });
  in.optional("weight", out.weight, {1, 1000});
  read_namespaces(in, out.namespaces);
  in.optional("suspend", out.suspend);
  read_object(in, "budget", [&](const Json& object, const std::string& at) {
    return read_budget(object, at, out.budget.emplace());
  });
  read_object(in, "preemption", [&](const Json& object, const std::string& at) {
    JsonReader preemption(object, at);
    preemption.optional("minimumRunSeconds", out.preemption.minimum_run_seconds, kLeastRun);
    preemption.no_other_fields();
    return preemption.status();
  });
  in.no_other_fields();
  if (!in.status() || !out.cohort.empty()) return in.status();
  for (const QueueResource& one : out.resources) {
    if (!one.borrowing_limit && !one.lending_limit) continue;
    in.fail("cohort", "is required where a resource (" + one.name +
                          ") has borrowingLimit or lendingLimit; without a cohort there is nobody "
                          "to borrow from or to lend to");
    break;
  }
  return in.status();
}

Status read_used(const Json& json, const std::string& path, QueueResourceStatus& out) {
  JsonReader in(json, path);
  in.required("name", out.name, 317);
  in.optional("used", out.used, 64);
  in.optional("borrowed", out.borrowed, 64);
  return in.status();
}

Status read_queue_status(const Json& json, const std::string& path, TrainingQueueStatus& out) {
  JsonReader in(json, path);
  in.optional("observedGeneration", out.observed_generation, kGeneration);
  in.optional("phase", out.phase, 64);
  in.optional("admitted", out.admitted, kJobs);
  in.optional("waiting", out.waiting, kJobs);
  in.optional("use", out.use, 1024);
  read_list(in, "conditions", kMaxQueueConditions, [&](const Json& item, const std::string& at) {
    return read_condition(item, at, out.conditions.emplace_back());
  });
  read_list(in, "resources", kMaxQueueResources, [&](const Json& item, const std::string& at) {
    return read_used(item, at, out.resources.emplace_back());
  });
  read_object(in, "budget", [&](const Json& object, const std::string& at) {
    return read_spending(object, at, out.budget.emplace());
  });
  return in.status();
}

Status check_queue_header(const Json& json) {
  JsonReader in(json, "");
  require_kind(in, Kind::kTrainingQueue);
  in.object("metadata");
  in.object("spec");
  in.object("status");
  in.no_other_fields();
  return in.status();
}

/// Metadata, and whether it can be a queue's.
Status read_queue_meta(const Json& json, ObjectMeta& out) {
  MUSTER_RETURN_IF_ERROR(read_meta(json, out));
  if (!matches(NameRule::kLabel, out.name)) {
    return Error(ErrorCode::kInvalid,
                 "metadata.name: must be at most 63 lower-case letters, digits or '-', and start "
                 "and end with a letter or digit, not " +
                     in_quotes(out.name));
  }
  if (out.namespace_name.empty()) return {};
  return Error(ErrorCode::kInvalid,
               "metadata.namespace: must be left out; a queue serves all namespaces, or those of "
               "spec.namespaces");
}

struct QueueParts {
  TrainingQueue queue;
  Status spec, status;
};

QueueParts read_queue_parts(const Json& json) {
  QueueParts parts;
  if (!json.is_object()) {
    parts.spec = JsonReader(json, "").status();
    return parts;
  }
  JsonReader spec(json, "");
  spec.take(check_queue_header(json));
  spec.take(read_queue_meta(json, parts.queue.meta));
  if (spec.status() && !spec.has("spec")) spec.fail("spec", "is required");
  read_object(spec, "spec", [&](const Json& object, const std::string& at) {
    return read_queue_spec(object, at, parts.queue.spec);
  });
  parts.spec = spec.status();
  JsonReader status(json, "");
  read_object(status, "status", [&](const Json& object, const std::string& at) {
    return read_queue_status(object, at, parts.queue.status);
  });
  parts.status = status.status();
  return parts;
}

std::string quantity_text(const std::string& resource, std::int64_t amount) {
  return std::to_string(amount) + (resource == "cpu" ? "m" : "");
}

}  // namespace

std::pair<TrainingQueue, Status> read_training_queue(const Json& json) {
  QueueParts parts = read_known(json, read_queue_parts,
                                [](const QueueParts& one) -> const Status& { return one.spec; });
  // What cannot be read of a refused spec limits nobody; the verdict says that it is refused.
  if (!parts.spec) parts.queue.spec = {};
  if (!parts.status) parts.queue.status = {};
  return {std::move(parts.queue), std::move(parts.spec)};
}

Result<TrainingQueue> parse_training_queue(const Json& json) {
  QueueParts parts = read_queue_parts(json);
  const Status& wrong = parts.spec ? parts.status : parts.spec;
  if (!wrong) return wrong.error().with_exit_code(contract::exit_code::kInvalidSpec);
  return std::move(parts.queue);
}

Json status_to_json(const TrainingQueueStatus& status) {
  Json json{{"observedGeneration", status.observed_generation},
            {"conditions", Json::array()},
            {"admitted", status.admitted},
            {"waiting", status.waiting},
            {"resources", Json::array()}};
  if (!status.phase.empty()) json["phase"] = cut(status.phase, 64);
  if (!status.use.empty()) json["use"] = cut(status.use, 1024);
  for (const auto& condition : status.conditions) {
    json["conditions"].push_back(condition_to_json(condition));
  }
  for (const auto& one : status.resources) {
    Json entry{{"name", one.name}};
    if (!one.used.empty()) entry["used"] = one.used;
    if (!one.borrowed.empty()) entry["borrowed"] = one.borrowed;
    json["resources"].push_back(std::move(entry));
  }
  if (!status.budget) return json;
  const QueueSpending& budget = *status.budget;
  Json& out = json["budget"] = Json{{"currency", budget.currency},
                                    {"spent", billionths_text(budget.spent)},
                                    {"ratePerHour", billionths_text(budget.rate_per_hour)}};
  if (budget.since) out["since"] = format_time(*budget.since);
  if (budget.updated_at) out["updatedAt"] = format_time(*budget.updated_at);
  if (!budget.unknown.empty()) out["unknown"] = cut(budget.unknown, kMaxSpendingTextBytes);
  return json;
}

Json to_json(const TrainingQueue& queue) {
  Json json = object_json(Kind::kTrainingQueue, queue.meta);
  const TrainingQueueSpec& spec = queue.spec;
  json["spec"] = Json{{"weight", spec.weight},
                      {"suspend", spec.suspend},
                      {"preemption", {{"minimumRunSeconds", spec.preemption.minimum_run_seconds}}}};
  if (!spec.cohort.empty()) json["spec"]["cohort"] = spec.cohort;
  for (const QueueResource& one : spec.resources) {
    Json entry{{"name", one.name}, {"nominal", quantity_text(one.name, one.nominal)}};
    if (one.borrowing_limit) {
      entry["borrowingLimit"] = quantity_text(one.name, *one.borrowing_limit);
    }
    if (one.lending_limit) entry["lendingLimit"] = quantity_text(one.name, *one.lending_limit);
    json["spec"]["resources"].push_back(std::move(entry));
  }
  if (!spec.namespaces.empty()) json["spec"]["namespaces"] = spec.namespaces;
  if (spec.budget) {
    json["spec"]["budget"] =
        Json{{"currency", spec.budget->currency},
             {"amount", billionths_text(spec.budget->amount)},
             {"period", kPeriods[static_cast<std::size_t>(spec.budget->period)]}};
  }
  if (!(queue.status == TrainingQueueStatus{})) json["status"] = status_to_json(queue.status);
  return json;
}

Result<PriorityClass> parse_priority_class(const Json& json) {
  PriorityClass one;
  MUSTER_RETURN_IF_ERROR(read_meta(json, one.meta));
  JsonReader in(json, "");
  in.optional("value", one.value, {INT32_MIN, INT32_MAX});
  in.optional("globalDefault", one.is_default);
  std::string policy;
  in.optional("preemptionPolicy", policy, 64);
  one.preempts = policy != "Never";
  MUSTER_RETURN_IF_ERROR(in.status());
  return one;
}

}  // namespace muster::api
