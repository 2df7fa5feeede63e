// status: written by the operator alone, read back by the next one. Unknown fields are passed over
// (a newer operator may have written them); those known must have their type.
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxConditions = 32;
constexpr std::size_t kMaxSlots = 4096;
constexpr std::size_t kMaxLogTailBytes = 2048;
constexpr std::size_t kMaxTextBytes = 1024;
constexpr JsonReader::Range kCount = {0, kMaxExactInteger};
constexpr JsonReader::Range kInt = {0, INT32_MAX};

Status read_placement(const Json& json, const std::string& path, SlotPlacement& out) {
  JsonReader in(json, path);
  in.required("slot", out.slot, {0, kMaxSlots - 1});
  in.optional("attempt", out.attempt, kInt);
  in.optional("node", out.node, 253);
  in.optional("domain", out.domain, kMaxTextBytes);
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
  return in.status();
}

Status read_failure(const Json& json, const std::string& path, FailureStatus& out) {
  JsonReader in(json, path);
  in.optional("slot", out.slot, {0, kMaxSlots - 1});
  in.optional("exitCode", out.exit_code, {INT32_MIN, INT32_MAX});
  in.optional("reason", out.reason, kMaxTextBytes);
  in.optional("logTail", out.log_tail, kMaxLogTailBytes);
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
  if (progress.eta_seconds >= 0) json["etaSeconds"] = progress.eta_seconds;
  put(json, "updatedAt", progress.updated_at);
  return json;
}

Json checkpoint_to_json(const CheckpointStatus& checkpoint) {
  Json json{{"durable", checkpoint.durable}};
  if (checkpoint.step >= 0) json["step"] = checkpoint.step;
  put(json, "time", checkpoint.time);
  put(json, "path", checkpoint.path, 4096);
  return json;
}

Json failure_to_json(const FailureStatus& failure) {
  Json json{{"slot", failure.slot}, {"exitCode", failure.exit_code}};
  put(json, "reason", failure.reason, kMaxTextBytes);
  put(json, "logTail", failure.log_tail, kMaxLogTailBytes);
  return json;
}

Json placement_to_json(const SlotPlacement& placement) {
  Json json{{"slot", placement.slot}, {"attempt", placement.attempt}};
  put(json, "node", placement.node, 253);
  put(json, "domain", placement.domain, kMaxTextBytes);
  return json;
}

void read_lists(JsonReader& in, TrainingJobStatus& out) {
  read_list(in, "conditions", kMaxConditions, [&](const Json& item, const std::string& at) {
    return read_condition(item, at, out.conditions.emplace_back());
  });
  read_list(in, "placement", kMaxSlots, [&](const Json& item, const std::string& at) {
    return read_placement(item, at, out.placement.emplace_back());
  });
}

void read_objects(JsonReader& in, TrainingJobStatus& out) {
  read_object(in, "progress", [&](const Json& object, const std::string& at) {
    return read_progress(object, at, out.progress.emplace());
  });
  read_object(in, "checkpoint", [&](const Json& object, const std::string& at) {
    return read_checkpoint(object, at, out.checkpoint.emplace());
  });
  read_object(in, "model", [&](const Json& object, const std::string& at) {
    JsonReader model(object, at);
    model.optional("parameters", out.model_parameters, kCount);
    model.optional("sha256", out.model_sha256, 64);
    return model.status();
  });
  read_object(in, "failure", [&](const Json& object, const std::string& at) {
    return read_failure(object, at, out.failure.emplace());
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
  JsonReader in(json, path);
  in.optional("observedGeneration", out.observed_generation, kCount);
  in.optional("phase", out.phase, 64);
  in.optional("workers", out.workers, 64);
  in.optional("targetWorkers", out.target_workers, {0, kMaxSlots});
  in.optional("replicas", out.replicas, {0, kMaxSlots});
  in.optional("selector", out.selector, kMaxTextBytes);
  in.optional("membershipEpoch", out.membership_epoch, kCount);
  in.optional("restarts", out.restarts, kInt);
  read_lists(in, out);
  optional_time(in, "startTime", out.start_time);
  optional_time(in, "completionTime", out.completion_time);
  optional_time(in, "restartAt", out.restart_at);
  read_objects(in, out);
  in.optional("imageDigest", out.image_digest, kMaxTextBytes);
  in.optional("dataSHA256", out.data_sha256, 64);
  in.optional("contract", out.contract, 64);
  return in.status();
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
  put(json, "selector", status.selector, kMaxTextBytes);
  for (const auto& condition : status.conditions) {
    json["conditions"].push_back(condition_to_json(condition));
  }
  for (const auto& placement : status.placement) {
    json["placement"].push_back(placement_to_json(placement));
  }
  put(json, "startTime", status.start_time);
  put(json, "completionTime", status.completion_time);
  put(json, "restartAt", status.restart_at);
  if (status.progress) json["progress"] = progress_to_json(*status.progress);
  if (status.checkpoint) json["checkpoint"] = checkpoint_to_json(*status.checkpoint);
  Json model = Json::object();
  if (status.model_parameters > 0) model["parameters"] = status.model_parameters;
  put(model, "sha256", status.model_sha256, 64);
  if (!model.empty()) json["model"] = std::move(model);
  put(json, "imageDigest", status.image_digest, kMaxTextBytes);
  put(json, "dataSHA256", status.data_sha256, 64);
  put(json, "contract", status.contract, 64);
  if (status.failure) json["failure"] = failure_to_json(*status.failure);
  return json;
}

}  // namespace muster::api
