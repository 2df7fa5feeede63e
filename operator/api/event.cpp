// Events (events.k8s.io/v1).
#include <algorithm>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/pod.h"

namespace muster::api {
namespace {
constexpr std::size_t kMaxNoteBytes = 1024;  // longer ones are refused by the API server
constexpr std::size_t kMaxWordBytes = 128;
}  // namespace

Json to_json(const Event& event) {
  const KindInfo& kind = info_of(event.regarding_kind);
  Json regarding{
      {"apiVersion", kind.api_version}, {"kind", kind.kind}, {"name", event.regarding.name}};
  if (!event.regarding.namespace_name.empty()) {
    regarding["namespace"] = event.regarding.namespace_name;
  }
  if (!event.regarding_uid.empty()) regarding["uid"] = event.regarding_uid;
  Json json = object_json(Kind::kEvent, event.meta);
  json["regarding"] = std::move(regarding);
  json["type"] = event.type;
  json["reason"] = cut(event.reason, kMaxWordBytes);
  json["action"] = cut(event.action, kMaxWordBytes);
  json["note"] = cut(event.note, kMaxNoteBytes);
  json["eventTime"] = format_micro_time(event.event_time);
  json["reportingController"] = contract::kManagedBy;
  json["reportingInstance"] = "muster-operator";
  if (event.series_count > 0) {
    json["series"] = Json{{"count", std::max(2, event.series_count)},
                          {"lastObservedTime", format_micro_time(event.event_time)}};
  }
  return json;
}

}  // namespace muster::api
