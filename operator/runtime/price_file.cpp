#include "operator/runtime/price_file.h"

#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"
#include "common/yaml_reader.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMostPriceBytes = std::size_t{1} << 20;
constexpr YamlBounds kPriceYaml{kMostPriceBytes, 20'000, 16, "price list"};

}  // namespace

Result<api::PriceList> read_price_file(const std::string& path) {
  constexpr int kCode = contract::exit_code::kUsage;
  const auto text = read_file(path, kMostPriceBytes);
  if (!text) return text.error().with_exit_code(kCode);
  const auto json = parse_yaml(*text, path, kPriceYaml);
  if (!json) return json.error().with_exit_code(kCode);
  auto list = api::parse_price_list(*json);
  if (!list) return list.error().with(path).with_exit_code(kCode);
  return list;
}

}  // namespace muster::runtime
