// Tables from anywhere: parse_csv must answer or refuse, within its bounds, and what it answers is
// numbers and labels of whole rows, which are the same in a test table of the same text.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "worker/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto table = parse_csv(text, "b", "x");
  if (!table) return 0;
  MUSTER_CHECK(table->count >= 1 && table->features >= 1);
  MUSTER_CHECK(table->columns.size() == table->features);
  MUSTER_CHECK(table->labels.size() == table->count);
  MUSTER_CHECK(table->values.size() == table->count * table->features);
  for (const float value : table->values) MUSTER_CHECK(std::isfinite(value));
  for (const std::uint8_t label : table->labels) MUSTER_CHECK(label < table->classes);
  MUSTER_CHECK(table->class_names.size() <= static_cast<std::size_t>(table->classes));
  MUSTER_CHECK(std::is_sorted(table->class_names.begin(), table->class_names.end()));
  const auto again = parse_csv(text, "b", "x", &*table);
  MUSTER_CHECK(again && again->labels == table->labels);
  return 0;
}
