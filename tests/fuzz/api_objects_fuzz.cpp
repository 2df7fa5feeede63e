// Objects as the API server hands them out, and what a worker left as its last word: the first byte
// says what the rest is. Each is read or refused with a sentence, what is read and can be written
// is read again as the same, and whatever stands in a job, its pod or a message, there is a plan,
// always the same, and no status in it that the API server would refuse.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "operator/api/lease.h"
#include "operator/api/topology_config.h"
#include "operator/api/training_queue.h"
#include "operator/api/volume.h"
#include "tests/unit/core/builders.h"

using namespace muster;

namespace {

constexpr std::size_t kMaxSentenceBytes = 16'384;
constexpr std::size_t kMaxNoteBytes = 1024;

template <typename T>
bool is_read(const Result<T>& read) {
  if (read) return true;
  MUSTER_CHECK(!read.error().message().empty());
  MUSTER_CHECK(read.error().message().size() < kMaxSentenceBytes);
  return false;
}

template <typename T>
void write_and_read(Result<T> (*parse)(const Json&), const Json& json) {
  const auto first = parse(json);
  if (!is_read(first)) return;
  const auto again = parse(api::to_json(*first));
  MUSTER_CHECK_MSG(again.has_value(), again ? "" : again.error().message());
  MUSTER_CHECK(*again == *first);
}

void check_plan(const core::Plan& plan) {
  for (const auto& action : plan.actions) {
    if (const auto* event = std::get_if<core::EmitEvent>(&action)) {
      MUSTER_CHECK(event->event.note.size() <= kMaxNoteBytes);
      MUSTER_CHECK(event->event.meta.name.size() <= 253);
    }
    const auto* patch = std::get_if<core::PatchStatus>(&action);
    if (patch == nullptr) continue;
    // Written by one operator and read by the next one.
    const auto& status = patch->status;
    MUSTER_CHECK(dump_json(api::status_to_json(status)).size() < 65'536);
    for (const auto& condition : status.conditions) {
      MUSTER_CHECK(condition.message.size() <= 32'768);
    }
  }
}

void plan_twice(const core::JobSnapshot& snapshot) {
  const core::Plan plan = core::reconcile(snapshot);
  check_plan(plan);
  MUSTER_CHECK(plan == core::reconcile(snapshot));
}

void end_with(const std::string& message) {
  for (const int code : {0, 1}) {
    auto alone = test::make_job("j").engine().all_running();
    alone.edit().pods.clear();
    alone.ended(0, code, message);
    plan_twice(alone.snapshot());
  }
}

/// The API server and the chart's policies see to the names and owners of objects.
void take_identity(api::ObjectMeta& meta, const api::ObjectMeta& from) {
  meta.name = from.name;
  meta.namespace_name = from.namespace_name;
  meta.uid = from.uid;
  meta.owner_references = from.owner_references;
}

/// As the pod of the only worker, which is the engine's or a program of somebody's own.
void look_at_pod(const api::Pod& pod) {
  auto trained = test::make_job("j").engine().all_running();
  auto program = test::make_job("j").all_running();
  for (test::SnapshotBuilder* alone : {&trained, &program}) {
    api::Pod& own = alone->edit().pods.front();
    const api::ObjectMeta meta = own.meta;
    own = pod;
    take_identity(own.meta, meta);
    plan_twice(alone->snapshot());
  }
}

/// With whatever status somebody has written.
void look_at_job(const Json& json) {
  core::JobSnapshot snapshot;
  auto [job, verdict] = api::read_training_job(json);
  take_identity(job.meta, test::make_job("j").snapshot().job.meta);
  snapshot.job = std::move(job);
  snapshot.spec_verdict = std::move(verdict);
  snapshot.now = test::kNow;
  plan_twice(snapshot);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const unsigned what = (bytes[0] - unsigned{'0'}) % 256 % 10;  // A digit means itself.
  if (what == 8) {
    end_with(std::string(text));
    return 0;
  }
  const auto json = parse_json(text);
  if (!json) return 0;
  switch (what) {
    case 0:
      if (const auto pod = api::parse_pod(*json); is_read(pod)) {
        (void)api::to_json(*pod);
        look_at_pod(*pod);
      }
      break;
    case 1:
      if (const auto node = api::parse_node(*json); is_read(node)) (void)api::to_json(*node);
      break;
    case 2:
      (void)is_read(api::parse_persistent_volume(*json));
      break;
    case 3:
      (void)is_read(api::parse_persistent_volume_claim(*json));
      break;
    case 4:
      write_and_read<api::TrainingQueue>(&api::parse_training_queue, *json);
      break;
    case 5:
      write_and_read<api::TopologyConfig>(&api::parse_topology_config, *json);
      break;
    case 6:
      write_and_read<api::Lease>(&api::parse_lease, *json);
      break;
    case 7:
      (void)is_read(api::parse_priority_class(*json));
      break;
    default:
      look_at_job(*json);
  }
  return 0;
}
