// Any bytes are read as a manifest's YAML or refused in a sentence; what is read survives JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cli/overrides.h"
#include "cli/yaml_reader.h"
#include "common/check.h"
#include "common/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto parsed = muster::cli::parse_yaml(text, "fuzz");
  if (!parsed) {
    MUSTER_CHECK(parsed.error().message().starts_with("fuzz:"));
    MUSTER_CHECK(parsed.error().exit_code() == 20);
    return 0;
  }
  auto again = muster::parse_json(muster::dump_json(*parsed));
  MUSTER_CHECK(again.has_value());
  MUSTER_CHECK(*again == *parsed);
  if (size < 1000) (void)muster::cli::apply_override(text, *parsed);
  return 0;
}
