// Tables from anywhere: parse_csv must answer or refuse, within its bounds, and what it answers is
// numbers and labels of whole rows.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "worker/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  const auto table = parse_csv({reinterpret_cast<const char*>(bytes), size}, "b", "x");
  if (!table) return 0;
  MUSTER_CHECK(table->count >= 1 && table->features >= 1);
  MUSTER_CHECK(table->columns.size() == table->features);
  MUSTER_CHECK(table->labels.size() == table->count);
  MUSTER_CHECK(table->values.size() == table->count * table->features);
  for (const float value : table->values) MUSTER_CHECK(std::isfinite(value));
  for (const std::uint8_t label : table->labels) MUSTER_CHECK(label < table->classes);
  return 0;
}
