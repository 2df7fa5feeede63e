// Events, as those of the core API: events.k8s.io takes none with the fields that `kubectl
// describe` sorts by. Both kinds of fields are written, so that who reads either finds all.
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
  Json involved{
      {"apiVersion", kind.api_version}, {"kind", kind.kind}, {"name", event.regarding.name}};
  if (!event.regarding.namespace_name.empty()) {
    involved["namespace"] = event.regarding.namespace_name;
  }
  if (!event.regarding_uid.empty()) involved["uid"] = event.regarding_uid;
  const int count = event.series_count > 0 ? std::max(2, event.series_count) : 1;
  Json json = object_json(Kind::kEvent, event.meta);
  json["involvedObject"] = std::move(involved);
  json["type"] = event.type;
  json["reason"] = cut(event.reason, kMaxWordBytes);
  json["action"] = cut(event.action, kMaxWordBytes);
  json["message"] = cut(event.note, kMaxNoteBytes);
  json["eventTime"] = format_micro_time(event.event_time);
  json["firstTimestamp"] = json["lastTimestamp"] = format_time(event.event_time);
  json["count"] = count;
  json["source"] = Json{{"component", contract::kManagedBy}};
  json["reportingComponent"] = contract::kManagedBy;
  json["reportingInstance"] = "muster-operator";
  if (event.series_count > 0) {
    json["series"] =
        Json{{"count", count}, {"lastObservedTime", format_micro_time(event.event_time)}};
  }
  return json;
}

}  // namespace muster::api
