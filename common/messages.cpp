#include "common/messages.h"

#include <algorithm>

#include "common/contract.h"

namespace muster {
namespace {

constexpr std::int64_t kMaxStep = std::int64_t{1} << 53;
constexpr std::size_t kMaxNameBytes = 512;

Json ports_json(const std::vector<int>& ports) { return Json(ports); }

void read_ports_or_none(JsonReader& in, std::vector<int>& ports) {
  const Json* list = in.array("ports", kMaxProcesses);
  if (list == nullptr) return;
  for (const Json& port : *list) {
    if (!port.is_number_integer() || port < 1 || port > 65535) {
      return in.fail("ports", "must be port numbers from 1 to 65535");
    }
    ports.push_back(port.get<int>());
  }
}

void read_ports(JsonReader& in, std::vector<int>& ports) {
  read_ports_or_none(in, ports);
  if (in.has("ports") && ports.empty()) in.fail("ports", "must not be empty");
}

void read_number(JsonReader& in, const Json& object, const char* field, double& out) {
  (void)in.has(field);
  const auto found = object.find(field);
  if (found == object.end()) return;
  if (!found->is_number()) return in.fail(field, "must be a number");
  out = found->get<double>();
}

void read_count(JsonReader& in, const char* field, std::uint64_t& out) {
  std::int64_t value = 0;
  in.optional(field, value, {0, INT64_MAX});
  out = static_cast<std::uint64_t>(value);
}

Json slots_json(const std::vector<int>& slots) { return Json(slots); }

void read_slots(JsonReader& in, const char* field, std::vector<int>& slots) {
  const Json* list = in.array(field, kMaxWorkers);
  if (list == nullptr) return;
  for (const Json& slot : *list) {
    const bool is_slot = slot.is_number_integer() && slot >= 0 && slot < kMaxWorkers;
    if (!is_slot || (!slots.empty() && slots.back() >= slot.get<int>())) {
      return in.fail(field, "must be slots in ascending order");
    }
    slots.push_back(slot.get<int>());
  }
}

Json to_json(const MembershipChange& value) {
  return Json{{"epoch", value.epoch},     {"step", value.step},     {"kind", value.kind},
              {"slot", value.slot},       {"reason", value.reason}, {"stallMs", value.stall_ms},
              {"delayMs", value.delay_ms}};
}

Json parts_json(const std::vector<PartReport>& parts) {
  Json list = Json::array();
  for (const PartReport& part : parts) {
    list.push_back({{"parameters", part.counts.parameters},
                    {"microBatches", part.counts.micro_batches},
                    {"handedOnBytes", part.counts.handed_on_bytes},
                    {"sums", part.counts.sums},
                    {"turns", part.counts.turns},
                    {"busyTurns", part.counts.busy_turns},
                    {"turnBytes", part.counts.turn_bytes},
                    {"computeSeconds", part.compute_seconds},
                    {"turnSeconds", part.turn_seconds},
                    {"updateSeconds", part.update_seconds}});
  }
  return list;
}

Status read_parts(JsonReader& in, std::vector<PartReport>& parts) {
  const Json* list = in.array("parts", kMaxReportedParts);
  if (list == nullptr) return {};
  for (const Json& item : *list) {
    PartReport part;
    JsonReader one(item, "progress.parts");
    one.optional("parameters", part.counts.parameters, {0, kMaxStep});
    one.optional("microBatches", part.counts.micro_batches, {0, kMaxStep});
    one.optional("handedOnBytes", part.counts.handed_on_bytes, {0, kMaxStep});
    one.optional("sums", part.counts.sums, {0, kMaxStep});
    one.optional("turns", part.counts.turns, {0, kMaxStep});
    one.optional("busyTurns", part.counts.busy_turns, {0, kMaxStep});
    one.optional("turnBytes", part.counts.turn_bytes, {0, kMaxStep});
    MUSTER_RETURN_IF_ERROR(one.status());
    read_number(one, item, "computeSeconds", part.compute_seconds);
    read_number(one, item, "turnSeconds", part.turn_seconds);
    read_number(one, item, "updateSeconds", part.update_seconds);
    MUSTER_RETURN_IF_ERROR(one.status());
    parts.push_back(part);
  }
  return {};
}

Status read_changes(JsonReader& in, std::vector<MembershipChange>& changes) {
  const Json* list = in.array("changes", kMaxReportedChanges);
  if (list == nullptr) return {};
  for (const Json& item : *list) {
    MembershipChange change;
    JsonReader one(item, "progress.changes");
    one.required("epoch", change.epoch, {0, kMaxStep});
    one.optional("step", change.step, {0, kMaxStep});
    one.required("kind", change.kind, 32);
    one.required("slot", change.slot, {0, kMaxWorkers - 1});
    one.words("reason", change.reason, 256);
    one.optional("stallMs", change.stall_ms, {0, kMaxStep});
    one.optional("delayMs", change.delay_ms, {-1, kMaxStep});
    MUSTER_RETURN_IF_ERROR(one.status());
    changes.push_back(std::move(change));
  }
  return {};
}

}  // namespace

bool MembershipChange::is_of_members() const {
  return kind != contract::change::kSlow && kind != contract::change::kRefused &&
         kind != contract::change::kStranger;
}

Json to_json(const JoinRequest& value) {
  return Json{{"job", value.job},
              {"slot", value.slot},
              {"attempt", value.attempt},
              {"host", value.host},
              {"ports", ports_json(value.ports)},
              {"contract", value.contract},
              {"sentinelPort", value.sentinel_port},
              {"domain", value.domain},
              {"rack", value.rack},
              {"beginsTogether", value.begins_together}};
}

Result<JoinRequest> parse_join_request(const Json& json) {
  JoinRequest value;
  JsonReader in(json, "join");
  in.required("job", value.job, kMaxNameBytes);
  in.required("slot", value.slot, {0, kMaxWorkers - 1});
  in.required("attempt", value.attempt, {0, 1'000'000'000});
  in.required("host", value.host, kMaxNameBytes);
  in.required("contract", value.contract, kMaxNameBytes);
  in.optional("sentinelPort", value.sentinel_port, {0, 65535});
  in.optional("domain", value.domain, kMaxDomainBytes);
  in.optional("rack", value.rack, kMaxRackBytes);
  in.optional("beginsTogether", value.begins_together);
  read_ports(in, value.ports);
  if (value.ports.empty()) in.fail("ports", "is required");
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

Json to_json(const ProgressResponse& value) { return {{"nextAfterMs", value.next_after_ms}}; }

Result<ProgressResponse> parse_progress_response(const Json& json) {
  ProgressResponse value;
  JsonReader in(json, "answer to a report");
  in.optional("nextAfterMs", value.next_after_ms, {0, 60'000});
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

Json to_json(const JoinResponse& value) {
  Json peers = Json::array();
  for (const auto& peer : value.peers) {
    peers.push_back({{"slot", peer.slot},
                     {"host", peer.host},
                     {"ports", ports_json(peer.ports)},
                     {"sentinelPort", peer.sentinel_port},
                     {"attempt", peer.attempt},
                     {"domain", peer.domain},
                     {"rack", peer.rack}});
  }
  return Json{{"complete", value.complete},
              {"retryAfterMs", value.retry_after_ms},
              {"beginAfterMs", value.begin_after_ms},
              {"present", value.present},
              {"expected", value.expected},
              {"epoch", value.epoch},
              {"peers", std::move(peers)},
              {"jobUid", value.job_uid},
              {"jobKey", value.job_key},
              {"training", value.training},
              {"threads", value.threads},
              {"joining", value.joining},
              {"checksData", value.checks_data}};
}

Result<JoinResponse> parse_join_response(const Json& json) {
  JoinResponse value;
  JsonReader in(json, "join response");
  in.required("complete", value.complete);
  in.optional("retryAfterMs", value.retry_after_ms, {0, 60'000});
  in.optional("beginAfterMs", value.begin_after_ms, {0, 60'000});
  in.optional("present", value.present, {0, kMaxWorkers});
  in.optional("expected", value.expected, {0, kMaxWorkers});
  in.optional("epoch", value.epoch, {0, kMaxStep});
  in.optional("jobUid", value.job_uid, kMaxNameBytes);
  in.optional("jobKey", value.job_key, kMaxNameBytes);
  in.optional("threads", value.threads, {1, 4096});
  in.optional("joining", value.joining);
  in.optional("checksData", value.checks_data);
  if (const Json* training = in.object("training")) value.training = *training;
  if (const Json* peers = in.array("peers", kMaxWorkers)) {
    for (const Json& item : *peers) {
      JoinPeer peer;
      JsonReader one(item, "join response.peers");
      one.required("slot", peer.slot, {0, kMaxWorkers - 1});
      one.required("host", peer.host, kMaxNameBytes);
      one.optional("sentinelPort", peer.sentinel_port, {0, 65535});
      one.optional("attempt", peer.attempt, {0, 1'000'000'000});
      one.optional("domain", peer.domain, kMaxDomainBytes);
      one.optional("rack", peer.rack, kMaxRackBytes);
      read_ports(one, peer.ports);
      MUSTER_RETURN_IF_ERROR(one.status());
      value.peers.push_back(std::move(peer));
    }
  }
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

Json to_json(const ProgressReport& value) {
  Json changes = Json::array();
  for (const MembershipChange& change : value.changes) changes.push_back(to_json(change));
  return Json{{"job", value.job},
              {"slot", value.slot},
              {"attempt", value.attempt},
              {"step", value.step},
              {"totalSteps", value.total_steps},
              {"epoch", value.epoch},
              {"loss", value.loss},
              {"accuracy", value.accuracy},
              {"samplesPerSecond", value.samples_per_second},
              {"stepSeconds", value.step_seconds},
              {"exchangeSeconds", value.exchange_seconds},
              {"etaSeconds", value.eta_seconds},
              {"checkpointStep", value.checkpoint_step},
              {"checkpointPath", value.checkpoint_path},
              {"checkpointDurable", value.checkpoint_durable},
              {"restoredStep", value.restored_step},
              {"modelParameters", value.model_parameters},
              {"modelSHA256", value.model_sha256},
              {"dataSHA256", value.data_sha256},
              {"sentBytes", value.sent_bytes},
              {"logicalRankComputations", value.logical_rank_computations},
              {"membershipEpoch", value.membership_epoch},
              {"members", slots_json(value.members)},
              {"changes", std::move(changes)},
              {"waiting", value.waiting},
              {"busySeconds", value.busy_seconds},
              {"busyCheckpoint", value.busy_checkpoint},
              {"busyPath", value.busy_path},
              {"slowPercent", value.slow_percent},
              {"slowCause", value.slow_cause},
              {"slowProcess", value.slow_process},
              {"slowRank", value.slow_rank},
              {"host", value.host},
              {"ports", ports_json(value.ports)},
              {"sentinelPort", value.sentinel_port},
              {"parts", parts_json(value.parts)}};
}

Result<ProgressReport> parse_progress_report(const Json& json) {
  ProgressReport value;
  JsonReader in(json, "progress");
  in.required("job", value.job, kMaxNameBytes);
  in.required("slot", value.slot, {0, kMaxWorkers - 1});
  in.required("attempt", value.attempt, {0, 1'000'000'000});
  in.optional("step", value.step, {0, kMaxStep});
  in.optional("totalSteps", value.total_steps, {0, kMaxStep});
  in.optional("epoch", value.epoch, {0, kMaxStep});
  in.optional("loss", value.loss, 64);
  in.optional("accuracy", value.accuracy, 64);
  in.optional("checkpointStep", value.checkpoint_step, {-1, kMaxStep});
  in.optional("checkpointPath", value.checkpoint_path, 4096);
  in.optional("checkpointDurable", value.checkpoint_durable);
  in.optional("restoredStep", value.restored_step, {-1, kMaxStep});
  in.optional("modelParameters", value.model_parameters, {0, kMaxStep});
  in.optional("modelSHA256", value.model_sha256, 64);
  in.optional("dataSHA256", value.data_sha256, 64);
  read_count(in, "sentBytes", value.sent_bytes);
  read_count(in, "logicalRankComputations", value.logical_rank_computations);
  in.optional("membershipEpoch", value.membership_epoch, {0, kMaxStep});
  in.words("waiting", value.waiting, 256);
  in.optional("busySeconds", value.busy_seconds, {0, 1'000'000'000});
  in.optional("busyCheckpoint", value.busy_checkpoint);
  in.words("busyPath", value.busy_path, 4096);
  in.optional("slowPercent", value.slow_percent, {0, 1'000'000});
  in.optional("slowCause", value.slow_cause, 32);
  in.optional("slowProcess", value.slow_process, {-1, kMaxProcesses - 1});
  in.optional("slowRank", value.slow_rank, {-1, std::int64_t{kMaxWorkers} * kMaxProcesses});
  in.optional("host", value.host, kMaxNameBytes);
  in.optional("sentinelPort", value.sentinel_port, {0, 65535});
  read_ports_or_none(in, value.ports);
  read_slots(in, "members", value.members);
  MUSTER_RETURN_IF_ERROR(read_changes(in, value.changes));
  MUSTER_RETURN_IF_ERROR(read_parts(in, value.parts));
  MUSTER_RETURN_IF_ERROR(in.status());
  read_number(in, json, "samplesPerSecond", value.samples_per_second);
  read_number(in, json, "stepSeconds", value.step_seconds);
  read_number(in, json, "exchangeSeconds", value.exchange_seconds);
  read_number(in, json, "etaSeconds", value.eta_seconds);
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

Json to_json(const WitnessRequest& value) {
  return Json{{"job", value.job},
              {"slot", value.slot},
              {"attempt", value.attempt},
              {"epoch", value.epoch},
              {"nextEpoch", value.next_epoch},
              {"members", slots_json(value.members)},
              {"fromMembers", slots_json(value.from_members)}};
}

Result<WitnessRequest> parse_witness_request(const Json& json) {
  WitnessRequest value;
  JsonReader in(json, "witness");
  in.required("job", value.job, kMaxNameBytes);
  in.required("slot", value.slot, {0, kMaxWorkers - 1});
  in.required("attempt", value.attempt, {0, 1'000'000'000});
  in.required("epoch", value.epoch, {0, kMaxStep});
  in.required("nextEpoch", value.next_epoch, {1, kMaxStep});
  read_slots(in, "members", value.members);
  if (value.members.empty()) in.fail("members", "is required");
  read_slots(in, "fromMembers", value.from_members);
  if (!value.from_members.empty() && !std::ranges::includes(value.from_members, value.members)) {
    in.fail("fromMembers", "must have all of members");
  }
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

Json to_json(const WitnessResponse& value) {
  return Json{
      {"granted", value.granted}, {"epoch", value.epoch}, {"members", slots_json(value.members)}};
}

Result<WitnessResponse> parse_witness_response(const Json& json) {
  WitnessResponse value;
  JsonReader in(json, "witness response");
  in.required("granted", value.granted);
  in.optional("epoch", value.epoch, {0, kMaxStep});
  read_slots(in, "members", value.members);
  MUSTER_RETURN_IF_ERROR(in.status());
  return value;
}

}  // namespace muster
