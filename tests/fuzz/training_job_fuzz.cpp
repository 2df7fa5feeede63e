// Any text: it is a TrainingJob or it is refused, and what was read is written and read as the
// same.
#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "operator/api/training_job.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = muster::parse_json(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json) return 0;
  const auto job = muster::api::parse_training_job(*json);
  if (!job) return 0;
  const muster::Json written = muster::api::to_json(*job);
  const auto again = muster::api::parse_training_job(written);
  MUSTER_CHECK_MSG(again.has_value(), again ? "" : again.error().message());
  MUSTER_CHECK(*again == *job);
  MUSTER_CHECK(muster::api::to_json(*again) == written);
  MUSTER_CHECK(muster::dump_json(written).size() < 8 * size + 65'536);
  return 0;
}
