// Tables from anywhere: parse_csv must answer or refuse, within its bounds, and what it answers is
// numbers and labels of whole rows, which are the same in a test table of the same text. The first
// byte says what it may have.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "worker/data/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  // The rules are the first byte's: a digit means itself.
  const unsigned rules = (bytes[0] - unsigned{'0'}) % 8;
  const CsvSource source{"x", "b", {(rules & 1) != 0, (rules & 2) != 0, (rules & 4) != 0}};
  const auto table = parse_csv(text, source);
  if (!table) return 0;
  MUSTER_CHECK(table->count >= 1 && table->features >= 1);
  std::size_t inputs = 0;
  for (const TableColumn& column : table->columns) inputs += column.inputs();
  MUSTER_CHECK(inputs == table->features && inputs_json(table->columns).size() == inputs);
  MUSTER_CHECK(table->labels.size() == table->count);
  MUSTER_CHECK(table->values.size() == table->count * table->features);
  for (const float value : table->values) MUSTER_CHECK(std::isfinite(value));
  for (const std::uint8_t label : table->labels) MUSTER_CHECK(label < table->classes);
  MUSTER_CHECK(table->class_names.size() <= static_cast<std::size_t>(table->classes));
  MUSTER_CHECK(std::is_sorted(table->class_names.begin(), table->class_names.end()));
  const auto again = parse_csv(text, {"x", "b", {}}, &*table);
  MUSTER_CHECK(again && again->labels == table->labels && again->values == table->values);
  return 0;
}
