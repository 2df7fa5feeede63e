// One job's trouble is its own: what a library throws while the loop looks at it is a plan of it
// that failed. A broken invariant still ends the process (common/check.h).
#include "common/caught.h"
#include "operator/runtime/loop.h"

namespace muster::runtime {

/// Logged with the job's name, counted as an error, and tried again after its back-off.
void OperatorLoop::look_apart_at(const api::ObjectKey& key) {
  const Status looked = run_apart([&]() -> Status {
    look_at(key);
    return {};
  });
  if (looked) return;
  const JobRecord* record = jobs_.find(key);
  ApplyDone failed;
  failed.key = key;
  if (record != nullptr) failed.uid = record->meta.uid;
  failed.status = looked.error().with("look at it");
  take(std::move(failed));
}

}  // namespace muster::runtime
