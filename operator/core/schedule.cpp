#include "operator/core/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/training_bounds.h"
#include "operator/api/kueue.h"
#include "operator/core/copies.h"
#include "operator/core/pod_shape.h"
#include "operator/core/queue_pass.h"
#include "operator/core/text.h"

namespace muster::core {
namespace {

constexpr double kFloatBytes = 4;

/// Seconds from a status's milliseconds; 0 for what is no such number.
double seconds_in(const std::string& milliseconds) {
  double value = 0;
  const char* end = milliseconds.data() + milliseconds.size();
  const auto read = std::from_chars(milliseconds.data(), end, value);
  const bool is_time = read.ec == std::errc() && read.ptr == end && std::isfinite(value);
  return is_time ? std::max(0.0, value) / 1e3 : 0;
}

StepFacts step_facts_of(const api::TrainingJob& job) {
  StepFacts facts;
  // A worker exchanges what it has: the parts of its processes, or all; once for each process with
  // the same part, unless these add it up first.
  const int of_copy = processes_of_copy(job), processes = std::max(1, job.spec.worker.processes);
  const double part = gradient_bytes_of(job) / of_copy;
  const int alike = std::max(1, processes / of_copy);
  facts.gradient_bytes = part * std::min(processes, of_copy);
  if (!adds_up_by_hosts(part, alike)) facts.gradient_bytes *= alike;
  if (job.status.progress) {
    facts.step_seconds = seconds_in(job.status.progress->step_milliseconds);
    facts.exchange_seconds = seconds_in(job.status.progress->exchange_milliseconds);
  }
  return facts;
}

}  // namespace

std::string resources_text(const api::Resources& resources) {
  std::string text = "{cpu " + amount_text("cpu", resources.cpu_millis) + ", memory " +
                     amount_text("memory", resources.memory_bytes);
  if (resources.gpus > 0) {
    text += ", " + resources.gpu_resource + " " + std::to_string(resources.gpus);
  }
  for (const auto& [name, amount] : resources.devices) {
    text += ", " + name + " " + std::to_string(amount);
  }
  if (resources.ephemeral_bytes > 0) {
    text += ", " + std::string(api::kEphemeralStorage) + " " +
            amount_text(api::kEphemeralStorage, resources.ephemeral_bytes);
  }
  if (resources.master_port) text += std::string(", ") + kMasterPortResource + " 1";
  return text + "}";
}

Schedule schedule(const ClusterSnapshot& cluster) {
  Rooms rooms(cluster);
  QueuePass pass(cluster, rooms);
  // Who takes the place of a lost worker comes before anybody gets it. Where there are queues, jobs
  // in none start after the others: what was taken back for the first of a line is not theirs.
  const auto round_of = [&](const WaitingGang& gang) {
    if (gang.wish.is_beyond) return 4;
    if (gang.wish.only_grows) return 3;
    if (!gang.wish.slots.empty()) return 0;
    return gang.turn.queue.empty() && !cluster.queues.empty() ? 2 : 1;
  };
  for (int round = 0; round < 5; ++round) {
    for (const auto& gang : cluster.gangs) {
      if (round_of(gang) == round) pass.take_turn(gang);
    }
  }
  return std::move(pass).decisions();
}

std::optional<double> known_gradient_bytes_of(const api::TrainingJob& job) {
  if (job.status.model_parameters > 0) {
    return kFloatBytes * static_cast<double>(job.status.model_parameters);
  }
  // The others' first layer goes by their data, which only the workers see.
  if (!job.spec.training || !job.spec.training->model.contains("gpt")) return std::nullopt;
  const Json& gpt = job.spec.training->model["gpt"];
  const auto number = [&](const char* name) { return gpt.value(name, 0.0); };
  const double tokens = gpt.value("vocabularySize", double{training_bounds::kByteTokens});
  const double width = number("width");
  const double of_block = 12 * width * width + 13 * width;
  return kFloatBytes *
         ((tokens + number("contextLength") + 2) * width + number("layers") * of_block);
}

double gradient_bytes_of(const api::TrainingJob& job) {
  return known_gradient_bytes_of(job).value_or(kUsualGradientBytes);
}

std::optional<MeshWork> mesh_work_of(const api::TrainingJob& job) {
  const Split split = api::split_of(job);
  const int processes = std::max(1, job.spec.worker.processes);
  // Who shares layers sends most to the others that do: where they are in more than one worker,
  // copies stay together, and where they are in one, they are as one process that sends for all.
  if (workers_together(job) == 1 || processes % split.tensor != 0) return std::nullopt;
  const api::TrainingSpec& training = *job.spec.training;
  MeshWork work{split.pipeline, processes / split.tensor, gradient_bytes_of(job)};
  double widest = 0;  // values that a sample has between two layers
  if (training.model.contains("gpt")) {
    const Json& gpt = training.model["gpt"];
    widest = gpt.value("width", 0.0) * gpt.value("contextLength", 0.0);
    work.is_ring = true;  // the last stage embeds for the first
  } else if (training.model.contains("mlp")) {
    for (const Json& width : training.model["mlp"].value("hidden", Json::array())) {
      if (width.is_number()) widest = std::max(widest, width.get<double>());
    }
  }
  if (widest <= 0) return std::nullopt;
  // Each slice hands on the whole of them.
  work.activation_bytes = kFloatBytes * widest * training.batch_size * split.tensor;
  return work;
}

RunningGang running_gang(const api::TrainingJob& job,
                         const std::vector<api::SlotPlacement>& places) {
  RunningGang gang{job.meta.key(), {}, step_facts_of(job), api::pod_resources(job.spec.worker)};
  for (const api::SlotPlacement& place : places) {
    if (!place.node.empty()) gang.nodes.push_back(place.node);
  }
  return gang;
}

namespace {

/// Grace periods up to this one are nobody's concern.
constexpr seconds kUsualGrace{30};

/// By its deadline, and when its workers cannot cling to their places any more.
std::optional<seconds> ends_within(const api::TrainingJob& job) {
  // Kueue decides when a deadline begins.
  if (!job.spec.active_deadline_seconds || !api::kueue_queue_wanted(job).empty()) {
    return std::nullopt;
  }
  const std::int64_t left = *job.spec.active_deadline_seconds - job.status.past_active_seconds;
  return seconds(std::max<std::int64_t>(0, left)) +
         std::max(seconds(0), grace_of(job) - kUsualGrace);
}

/// By slot the nodes of those that stay while others join them.
std::map<int, std::string> standing(const api::TrainingJob& job, const PlaceWish& wish) {
  std::map<int, std::string> nodes;
  for (const api::SlotPlacement& one : job.status.placement) {
    const bool joins = std::binary_search(wish.slots.begin(), wish.slots.end(), one.slot);
    if (!joins && wish.beside.contains(one.node)) nodes.emplace(one.slot, one.node);
  }
  return nodes;
}

}  // namespace

int least_to_start(const api::TrainingJob& job) {
  // Clamped, because schedule must be total on whatever it is given.
  const int count = std::clamp(job.spec.worker.count, 1, 4096);
  const bool is_whole = !api::kueue_queue_wanted(job).empty();
  return is_whole ? count : std::clamp(job.spec.worker.min, 1, count);
}

seconds grace_of(const api::TrainingJob& job) {
  const Json& fields = job.spec.worker.pod_fields;
  if (!fields.is_object()) return kUsualGrace;
  const auto grace = fields.find("terminationGracePeriodSeconds");
  if (grace == fields.end() || !grace->is_number_integer()) return kUsualGrace;
  return seconds(std::clamp<std::int64_t>(grace->get<std::int64_t>(), 0, 1LL << 31));
}

WaitingGang gang_of(const api::TrainingJob& job, const PlaceWish& wish) {
  // Until its turn it is what its old pods were, which hold its quota.
  const bool starts_anew = wish.slots.empty() && !wish.not_yet;
  if (starts_anew && job.spec.worker.size > 1) return gang_of(as_written(job), wish);
  WaitingGang gang;
  gang.job = job.meta.key();
  gang.uid = job.meta.uid;
  gang.preempted_for_uid = job.status.taken_back.preempted_for_uid;
  gang.count = std::clamp(job.spec.worker.count, 1, 4096);
  gang.min = least_to_start(job);
  gang.starts_whole = !api::kueue_queue_wanted(job).empty();
  const int together = workers_together(job);
  if (gang.count % together == 0 && gang.min % together == 0) gang.together = together;
  if (!wish.slots.empty()) {
    gang.count = static_cast<int>(wish.slots.size());
    // A new copy of the model is of use as a whole alone.
    if (!wish.only_grows || !are_whole_copies(wish.slots, gang.together)) gang.together = 1;
    gang.min = gang.together;
    gang.wish = wish;
  }
  gang.wish.not_yet = wish.not_yet;
  gang.per_worker = api::pod_resources(job.spec.worker);
  // What Kueue admits the cluster's scheduler binds, on nodes of the flavor that Kueue chose.
  gang.unplaced = job.spec.scheduling == "Unplaced" || gang.starts_whole;
  gang.largest = largest_worker(gang, job);
  const api::TopologyWish topology = api::topology_wanted(job);
  gang.required_level = topology.required;
  gang.preferred_level = topology.preferred;
  gang.groups = slot_groups_of(job);
  if (!gang.groups.empty() && !wish.slots.empty()) gang.stands = standing(job, wish);
  gang.step = step_facts_of(job);
  if (gang.together > 1) gang.mesh = mesh_work_of(job);
  if (wish.slots.empty()) gang.stood = job.status.last_nodes;
  gang.ends_within = ends_within(job);
  if (wish.slots.empty()) gang.claim = checkpoint_claim(job);
  for (const std::string& key : api::borne_taints(gang.per_worker)) {
    gang.tolerations.push_back({key, "Exists", "", ""});
  }
  gang.node_terms = job.spec.worker.node_terms;
  const Json& fields = job.spec.worker.pod_fields;
  if (!fields.is_object()) return gang;
  const auto text = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (const auto selector = fields.find("nodeSelector");
      selector != fields.end() && selector->is_object()) {
    for (const auto& [key, value] : selector->items()) {
      if (value.is_string()) gang.node_selector[key] = value.get<std::string>();
    }
  }
  if (const auto list = fields.find("tolerations"); list != fields.end() && list->is_array()) {
    for (const Json& item : *list) {
      if (!item.is_object()) continue;
      NodeToleration toleration{text(item, "key"), text(item, "operator"), text(item, "value"),
                                text(item, "effect")};
      if (toleration.op.empty()) toleration.op = "Equal";
      gang.tolerations.push_back(std::move(toleration));
    }
  }
  return gang;
}

}  // namespace muster::core
