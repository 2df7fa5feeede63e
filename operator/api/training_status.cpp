// status: written by the operator alone, read back by the next one. Unknown fields are passed over
// (a newer operator may have written them).
#include "common/messages.h"
#include "operator/api/fields.h"
#include "operator/api/kueue.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/price_list.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

/// Of a TrainingQueue, as of any label.
constexpr std::size_t kMaxQueueName = 63;
constexpr std::size_t kMaxConditions = 32;
constexpr std::size_t kMaxSlots = 4096;
constexpr std::size_t kMaxLogTailBytes = 2048;
constexpr std::size_t kMaxStatusTextBytes = 1024;
constexpr std::size_t kMaxCostItems = kMaxTiers * kMaxPricesOfTier;
constexpr JsonReader::Range kCount = {0, kMaxExactInteger};
constexpr JsonReader::Range kInt = {0, INT32_MAX};

Status read_placement(const Json& json, const std::string& path, SlotPlacement& out) {
  JsonReader in(json, path);
  in.required("slot", out.slot, {0, kMaxSlots - 1});
  in.optional("attempt", out.attempt, kInt);
  in.optional("node", out.node, 253);
  in.optional("domain", out.domain, kMaxStatusTextBytes);
  in.optional("member", out.member);
  in.optional("replacements", out.replacements, kInt);
  in.optional("checksData", out.checks_data);
  in.optional("ended", out.ended);
  return in.status();
}

/// Empty as well: what stands after it keeps its number.
Status read_node_name(const Json& json, const std::string& path, std::string& out) {
  const bool is_name = json.is_string() && json.get_ref<const std::string&>().size() <= 253;
  if (is_name) out = json.get<std::string>();
  return is_name ? Status() : Error(ErrorCode::kInvalid, path + ": must be the name of a node");
}

Status read_witness(const Json& json, const std::string& path, WitnessGrant& out) {
  JsonReader in(json, path);
  in.required("fromEpoch", out.from_epoch, kCount);
  in.required("epoch", out.epoch, kCount);
  read_list(in, "members", kMaxSlots, [&](const Json& item, const std::string& at) -> Status {
    const bool is_slot = item.is_number_integer() && item >= 0 && item < kMaxSlots;
    if (!is_slot) return Error(ErrorCode::kInvalid, at + ": must be from 0 to 4095");
    out.members.push_back(item.get<int>());
    return {};
  });
  return in.status();
}

Status read_progress(const Json& json, const std::string& path, Progress& out) {
  JsonReader in(json, path);
  in.optional("step", out.step, kCount);
  in.optional("totalSteps", out.total_steps, kCount);
  in.optional("epoch", out.epoch, kCount);
  in.optional("loss", out.loss, 64);
  in.optional("accuracy", out.accuracy, 64);
  in.optional("samplesPerSecond", out.samples_per_second, 64);
  in.optional("stepMilliseconds", out.step_milliseconds, 64);
  in.optional("exchangeMilliseconds", out.exchange_milliseconds, 64);
  in.optional("predictedStepMilliseconds", out.predicted_step_milliseconds, 64);
  in.optional("etaSeconds", out.eta_seconds, kCount);
  optional_time(in, "updatedAt", out.updated_at);
  return in.status();
}

Status read_checkpoint(const Json& json, const std::string& path, CheckpointStatus& out) {
  JsonReader in(json, path);
  in.optional("step", out.step, kCount);
  optional_time(in, "time", out.time);
  in.optional("durable", out.durable);
  in.optional("path", out.path, 4096);
  in.optional("startAttempt", out.start_attempt, kInt);
  return in.status();
}

Status read_failure(const Json& json, const std::string& path, FailureStatus& out) {
  JsonReader in(json, path);
  in.optional("slot", out.slot, {0, kMaxSlots - 1});
  in.optional("exitCode", out.exit_code, {INT32_MIN, INT32_MAX});
  in.optional("reason", out.reason, kMaxStatusTextBytes);
  in.optional("logTail", out.log_tail, kMaxLogTailBytes);
  in.optional("node", out.node, 253);
  in.optional("attempt", out.attempt, kInt);
  in.optional("container", out.container, 63);
  return in.status();
}

Status read_taken_back(const Json& json, const std::string& path, TakenBack& out) {
  JsonReader in(json, path);
  in.optional("shrinks", out.shrinks, kInt);
  in.optional("preemptions", out.preemptions, kInt);
  in.optional("lostProcessSeconds", out.lost_process_seconds, kCount);
  in.optional("preemptedFor", out.preempted_for, 317);
  in.optional("preemptedForUID", out.preempted_for_uid, 64);
  return in.status();
}

Status read_cost_item(const Json& json, const std::string& path, CostItem& out) {
  JsonReader in(json, path);
  in.required("tier", out.tier, 63);
  in.required("resource", out.resource, 317);
  std::optional<Billionths> units, hours;
  read_billionths(in, "units", units);
  read_billionths(in, "hours", hours);
  out.units = units.value_or(0);
  out.hours = hours.value_or(0);
  return in.status();
}

Status read_cost(const Json& json, const std::string& path, JobCost& out) {
  JsonReader in(json, path);
  in.required("currency", out.currency, 3);
  read_billionths(in, "amount", out.amount);
  read_billionths(in, "ratePerHour", out.rate_per_hour);
  in.optional("unknownSeconds", out.unknown_seconds, kCount);
  in.optional("unknown", out.unknown, kMaxStatusTextBytes);
  optional_time(in, "updatedAt", out.updated_at);
  read_list(in, "items", kMaxCostItems, [&](const Json& item, const std::string& at) {
    return read_cost_item(item, at, out.items.emplace_back());
  });
  return in.status();
}

Status read_split(const Json& json, const std::string& path, Split& out) {
  JsonReader in(json, path);
  in.required("tensor", out.tensor, {1, kMaxSplit});
  in.required("pipeline", out.pipeline, {1, kMaxSplit});
  return in.status();
}

void put(Json& json, const char* field, const std::string& text, std::size_t max_bytes) {
  if (!text.empty()) json[field] = cut(text, max_bytes);
}

void put(Json& json, const char* field, const std::optional<WallTime>& time) {
  if (time) json[field] = format_time(*time);
}

Json progress_to_json(const Progress& progress) {
  Json json{
      {"step", progress.step}, {"totalSteps", progress.total_steps}, {"epoch", progress.epoch}};
  put(json, "loss", progress.loss, 64);
  put(json, "accuracy", progress.accuracy, 64);
  put(json, "samplesPerSecond", progress.samples_per_second, 64);
  put(json, "stepMilliseconds", progress.step_milliseconds, 64);
  put(json, "exchangeMilliseconds", progress.exchange_milliseconds, 64);
  put(json, "predictedStepMilliseconds", progress.predicted_step_milliseconds, 64);
  if (progress.eta_seconds >= 0) json["etaSeconds"] = progress.eta_seconds;
  put(json, "updatedAt", progress.updated_at);
  return json;
}

Json checkpoint_to_json(const CheckpointStatus& checkpoint) {
  Json json{{"durable", checkpoint.durable}};
  if (checkpoint.step >= 0) json["step"] = checkpoint.step;
  put(json, "time", checkpoint.time);
  put(json, "path", checkpoint.path, 4096);
  if (checkpoint.start_attempt >= 0) json["startAttempt"] = checkpoint.start_attempt;
  return json;
}

Json failure_to_json(const FailureStatus& failure) {
  Json json{{"slot", failure.slot}, {"exitCode", failure.exit_code}};
  put(json, "reason", failure.reason, kMaxStatusTextBytes);
  put(json, "logTail", failure.log_tail, kMaxLogTailBytes);
  put(json, "node", failure.node, 253);
  put(json, "container", failure.container, 63);
  if (failure.attempt >= 0) json["attempt"] = failure.attempt;
  return json;
}

Json taken_back_to_json(const TakenBack& taken) {
  Json json{{"shrinks", taken.shrinks},
            {"preemptions", taken.preemptions},
            {"lostProcessSeconds", taken.lost_process_seconds}};
  put(json, "preemptedFor", taken.preempted_for, 317);
  put(json, "preemptedForUID", taken.preempted_for_uid, 64);
  return json;
}

Json cost_to_json(const JobCost& cost) {
  Json json{{"currency", cost.currency}};
  if (cost.amount) json["amount"] = billionths_text(*cost.amount);
  if (cost.rate_per_hour) json["ratePerHour"] = billionths_text(*cost.rate_per_hour);
  if (cost.unknown_seconds > 0) json["unknownSeconds"] = cost.unknown_seconds;
  put(json, "unknown", cost.unknown, kMaxStatusTextBytes);
  put(json, "updatedAt", cost.updated_at);
  for (const CostItem& item : cost.items) {
    json["items"].push_back({{"tier", item.tier},
                             {"resource", item.resource},
                             {"units", billionths_text(item.units)},
                             {"hours", billionths_text(item.hours)}});
  }
  return json;
}

Json placement_to_json(const SlotPlacement& placement) {
  Json json{{"slot", placement.slot}, {"attempt", placement.attempt}};
  put(json, "node", placement.node, 253);
  put(json, "domain", placement.domain, kMaxStatusTextBytes);
  if (placement.member) json["member"] = true;
  if (placement.replacements > 0) json["replacements"] = placement.replacements;
  if (placement.checks_data) json["checksData"] = true;
  if (placement.ended) json["ended"] = true;
  return json;
}

/// A status is somebody's memory: what cannot be read is as if it were not there, and hides nothing
/// else. The first thing that was wrong is remembered.
class Fields {
 public:
  Fields(const Json& json, const std::string& path) : json_(json), path_(path) {}

  template <typename Read>
  void each(const Read& read) {
    JsonReader in(json_, path_);
    read(in);
    note(in.status());
  }
  template <typename T, typename... More>
  void value(std::string_view field, T& out, More... more) {
    T read = out;
    JsonReader in(json_, path_);
    in.optional(field, read, more...);
    if (in.status()) out = std::move(read);
    note(in.status());
  }
  void time(std::string_view field, std::optional<WallTime>& out) {
    std::optional<WallTime> read;
    JsonReader in(json_, path_);
    optional_time(in, field, read);
    if (in.status()) out = read;
    note(in.status());
  }
  template <typename T>
  void list(std::string_view field, std::size_t most, std::vector<T>& out,
            Status (*read)(const Json&, const std::string&, T&)) {
    each([&](JsonReader& in) {
      read_list(in, field, most, [&](const Json& item, const std::string& at) -> Status {
        T one;
        const Status status = read(item, at, one);
        if (status) out.push_back(std::move(one));
        note(status);
        return {};
      });
    });
  }
  template <typename T>
  void object(std::string_view field, std::optional<T>& out,
              Status (*read)(const Json&, const std::string&, T&)) {
    each([&](JsonReader& in) {
      read_object(in, field, [&](const Json& object, const std::string& at) -> Status {
        T one;
        const Status status = read(object, at, one);
        if (status) out = std::move(one);
        return status;
      });
    });
  }
  const Status& first_wrong() const { return first_wrong_; }

 private:
  void note(const Status& status) {
    if (first_wrong_ && !status) first_wrong_ = status;
  }
  const Json& json_;
  const std::string& path_;
  Status first_wrong_;
};

void read_model(Fields& in, TrainingJobStatus& out) {
  in.each([&](JsonReader& reader) {
    read_object(reader, "model", [&](const Json& object, const std::string& at) {
      Fields model(object, at);
      model.value("parameters", out.model_parameters, kCount);
      model.value("sha256", out.model_sha256, std::size_t{64});
      return model.first_wrong();
    });
  });
}

}  // namespace

const Condition* TrainingJobStatus::condition(const std::string& type) const {
  for (const auto& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool TrainingJobStatus::is_true(const std::string& type) const {
  const Condition* found = condition(type);
  return found != nullptr && found->status == "True";
}

Status read_training_status(const Json& json, const std::string& path, TrainingJobStatus& out) {
  constexpr std::size_t kWord = 64;
  Fields in(json, path);
  in.value("observedGeneration", out.observed_generation, kCount);
  in.value("phase", out.phase, kWord);
  in.value("workers", out.workers, kWord);
  in.value("targetWorkers", out.target_workers, JsonReader::Range{0, kMaxSlots});
  in.value("replicas", out.replicas, JsonReader::Range{0, kMaxSlots});
  in.value("selector", out.selector, kMaxStatusTextBytes);
  in.value("membershipEpoch", out.membership_epoch, kCount);
  in.value("restarts", out.restarts, kInt);
  in.value("replacements", out.replacements, kInt);
  in.value("resizes", out.resizes, kInt);
  in.value("startAttempt", out.start_attempt, kInt);
  in.value("keyId", out.key_id, kWord);
  in.value("startCount", out.start_count, JsonReader::Range{0, kMaxSlots});
  in.value("workerSize", out.worker_size, JsonReader::Range{1, kMaxProcesses});
  in.value("queue", out.queue, kMaxQueueName);
  in.value("kueueQueue", out.kueue_queue, kueue::kMaxQueueBytes);
  in.value("wentAhead", out.went_ahead);
  in.list("conditions", kMaxConditions, out.conditions, &read_condition);
  in.list("placement", kMaxSlots, out.placement, &read_placement);
  in.list("lastNodes", kMaxSlots, out.last_nodes, &read_node_name);
  in.object("witness", out.witness, &read_witness);
  in.value("pastActiveSeconds", out.past_active_seconds, kInt);
  in.time("startTime", out.start_time);
  in.time("completionTime", out.completion_time);
  in.time("restartAt", out.restart_at);
  in.object("progress", out.progress, &read_progress);
  in.object("checkpoint", out.checkpoint, &read_checkpoint);
  read_model(in, out);
  in.object("failure", out.failure, &read_failure);
  std::optional<TakenBack> taken_back;
  in.object("takenBack", taken_back, &read_taken_back);
  if (taken_back) out.taken_back = *std::move(taken_back);
  in.object("cost", out.cost, &read_cost);
  in.object("parallelism", out.split, &read_split);
  in.value("imageDigest", out.image_digest, kMaxStatusTextBytes);
  in.value("dataSHA256", out.data_sha256, kWord);
  in.value("contract", out.contract, kWord);
  return in.first_wrong();
}

Json status_to_json(const TrainingJobStatus& status) {
  Json json{{"observedGeneration", status.observed_generation},
            {"conditions", Json::array()},
            {"targetWorkers", status.target_workers},
            {"replicas", status.replicas},
            {"membershipEpoch", status.membership_epoch},
            {"restarts", status.restarts},
            {"placement", Json::array()}};
  put(json, "phase", status.phase, 64);
  put(json, "workers", status.workers, 64);
  put(json, "selector", status.selector, kMaxStatusTextBytes);
  for (const auto& condition : status.conditions) {
    json["conditions"].push_back(condition_to_json(condition));
  }
  for (const auto& placement : status.placement) {
    json["placement"].push_back(placement_to_json(placement));
  }
  for (const auto& node : status.last_nodes) json["lastNodes"].push_back(cut(node, 253));
  if (status.replacements > 0) json["replacements"] = status.replacements;
  if (status.resizes > 0) json["resizes"] = status.resizes;
  if (status.start_attempt >= 0) json["startAttempt"] = status.start_attempt;
  put(json, "keyId", status.key_id, 64);
  if (status.start_count > 0) json["startCount"] = status.start_count;
  if (status.worker_size > 1) json["workerSize"] = status.worker_size;
  if (!status.queue.empty()) json["queue"] = status.queue;
  if (!status.kueue_queue.empty()) json["kueueQueue"] = status.kueue_queue;
  if (status.went_ahead) json["wentAhead"] = true;
  if (status.witness) {
    json["witness"] = Json{{"fromEpoch", status.witness->from_epoch},
                           {"epoch", status.witness->epoch},
                           {"members", status.witness->members}};
  }
  if (status.past_active_seconds > 0) json["pastActiveSeconds"] = status.past_active_seconds;
  put(json, "startTime", status.start_time);
  put(json, "completionTime", status.completion_time);
  put(json, "restartAt", status.restart_at);
  if (status.progress) json["progress"] = progress_to_json(*status.progress);
  if (status.checkpoint) json["checkpoint"] = checkpoint_to_json(*status.checkpoint);
  Json model = Json::object();
  if (status.model_parameters > 0) model["parameters"] = status.model_parameters;
  put(model, "sha256", status.model_sha256, 64);
  if (!model.empty()) json["model"] = std::move(model);
  put(json, "imageDigest", status.image_digest, kMaxStatusTextBytes);
  put(json, "dataSHA256", status.data_sha256, 64);
  put(json, "contract", status.contract, 64);
  if (status.failure) json["failure"] = failure_to_json(*status.failure);
  if (!(status.taken_back == TakenBack{})) {
    json["takenBack"] = taken_back_to_json(status.taken_back);
  }
  if (status.cost) json["cost"] = cost_to_json(*status.cost);
  if (status.split) {
    json["parallelism"] = {{"tensor", status.split->tensor}, {"pipeline", status.split->pipeline}};
  }
  return json;
}

}  // namespace muster::api
