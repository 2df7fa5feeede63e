#include "cli/report.h"

#include "cli/files.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

/// About what a line of byStep has.
constexpr std::size_t kStepBytes = 160;

Json field(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

bool is_training(const Json& job) { return field(field(job, "spec"), "training").is_object(); }

/// One entry a step. Losses are decimal text, as in the API.
void append_by_step(std::string& text, const RunRecord& record) {
  text.reserve(text.size() + record.steps.size() * kStepBytes);
  text += "  \"byStep\": [";
  const char* between = "\n    ";
  for (const RecordedStep& step : record.steps) {
    Json entry = {
        {"step", step.step}, {"epoch", step.epoch}, {"loss", step.loss}, {"workers", step.workers}};
    if (!step.sha256.empty()) entry["sha256"] = step.sha256;
    text += between + dump_json(entry);
    between = ",\n    ";
  }
  text += "\n  ]";
}

/// One entry each time the number of workers differs from the step before.
Json workers_over_time(const RunRecord& record) {
  Json changes = Json::array();
  std::int64_t last = -1;
  for (const RecordedStep& step : record.steps) {
    if (step.workers == last) continue;
    last = step.workers;
    changes.push_back({{"step", step.step}, {"workers", step.workers}});
  }
  return changes;
}

Json evaluations(const RunRecord& record) {
  Json list = Json::array();
  for (const RecordedEvaluation& evaluation : record.evaluations) {
    list.push_back(
        {{"step", evaluation.step}, {"accuracy", evaluation.accuracy}, {"loss", evaluation.loss}});
  }
  return list;
}

Json samples_per_second(const RunRecord& record) {
  double samples = 0, seconds = 0;
  for (const RecordedStep& step : record.steps) {
    samples += static_cast<double>(step.samples);
    seconds += step.seconds;
  }
  return seconds > 0 ? Json(samples / seconds) : Json();
}

void add_training(Json& report, const Json& job, const RunRecord& record) {
  const Json status = field(job, "status");
  const RecordedStep last = record.steps.empty() ? RecordedStep{} : record.steps.back();
  report["steps"] = last.step;
  report["totalSteps"] = field(field(status, "progress"), "totalSteps");
  report["epochs"] = record.steps.empty() ? 0 : last.epoch + 1;
  report["loss"] = last.loss.empty() ? Json() : Json(last.loss);
  report["accuracy"] =
      record.evaluations.empty() ? Json() : Json(record.evaluations.back().accuracy);
  report["samplesPerSecond"] = samples_per_second(record);
  if (const std::int64_t tokens = tokens_per_sample(job); tokens > 0) {
    const Json& rate = report["samplesPerSecond"];
    report["tokensPerSecond"] =
        rate.is_number() ? Json(rate.get<double>() * static_cast<double>(tokens)) : Json();
  }
  const Json model = field(status, "model");
  report["parameters"] = field(model, "parameters");
  report["sha256"] = field(model, "sha256");
  if (!report["sha256"].is_string() && !last.sha256.empty()) report["sha256"] = last.sha256;
  report["dataSHA256"] = field(status, "dataSHA256");
  report["contract"] = field(status, "contract");
  report["evaluations"] = evaluations(record);
  report["workersOverTime"] = workers_over_time(record);
}

}  // namespace

std::int64_t tokens_per_sample(const Json& job) {
  return tokens_per_sample_of(field(field(field(job, "spec"), "training"), "model"));
}

std::int64_t tokens_per_sample_of(const Json& model) {
  const Json length = field(field(model, "gpt"), "contextLength");
  return length.is_number_integer() ? length.get<std::int64_t>() : 0;
}

Json make_report(const Json& job, const RunFacts& facts, const RunRecord& record) {
  const Json status = field(job, "status");
  Json report = {
      {"job", field(field(job, "metadata"), "name")},
      {"status", facts.outcome},
      {"message", facts.message},
      {"exitCode", facts.exit_code},
      {"exitReason", std::string(contract::reason_of_exit_code(facts.exit_code))},
      {"seconds", facts.seconds},
      {"conditions", field(status, "conditions")},
      {"restarts", field(status, "restarts")},
      {"failure", field(status, "failure")},
      {"sentBytes", facts.sent_bytes},
      {"logicalRankComputations", facts.logical_rank_computations},
      {"model", facts.has_model ? Json(contract::kModelFile) : Json()},
      {"checkpointStep", facts.checkpoint_step >= 0 ? Json(facts.checkpoint_step) : Json()},
      {"resumedFromStep", facts.resumed_from_step >= 0 ? Json(facts.resumed_from_step) : Json()}};
  report["startToFirstStepSeconds"] =
      facts.start_to_first_step_seconds ? Json(*facts.start_to_first_step_seconds) : Json();
  if (const Json cost = field(status, "cost"); cost.is_object()) report["cost"] = cost;
  if (report["restarts"].is_null()) report["restarts"] = 0;
  if (report["conditions"].is_null()) report["conditions"] = Json::array();
  if (is_training(job)) add_training(report, job, record);
  return report;
}

std::string report_text(const Json& job, const RunFacts& facts, const RunRecord& record) {
  static constexpr std::string_view kEnd = "\n}\n";
  std::string text = dump_pretty(make_report(job, facts, record));
  if (!is_training(job)) return text;
  text.resize(text.size() - kEnd.size());
  text += ",\n";
  append_by_step(text, record);
  return text += kEnd;
}

}  // namespace muster::cli
