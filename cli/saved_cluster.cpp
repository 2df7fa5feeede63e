#include "cli/saved_cluster.h"

#include "cli/kube_objects.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/yaml_reader.h"
#include "operator/api/unread.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMostClusterBytes = std::size_t{256} << 20;
constexpr YamlBounds kClusterYaml{kMostClusterBytes, 20'000'000, 60, "cluster"};

}  // namespace

Result<std::vector<Json>> read_saved_cluster(const std::string& file) {
  auto text = read_file(file, kMostClusterBytes);
  if (!text && text.error().code() == ErrorCode::kTooLarge) {
    return Error(ErrorCode::kTooLarge,
                 text.error().message() +
                     "; leave out pods that have ended, for muster simulate all pods, and the "
                     "indentation (jq -c .)")
        .with_exit_code(contract::exit_code::kUsage);
  }
  if (!text) return text.error().with_exit_code(contract::exit_code::kUsage);
  const bool is_json = begins_as_json(*text);
  auto list =
      is_json ? parse_json(*text, api::kUnreadOfAny) : parse_yaml(*text, file, kClusterYaml);
  if (!list) {
    return (is_json ? list.error().with(file) : list.error())
        .with_exit_code(contract::exit_code::kUsage);
  }
  return items_of(std::move(*list));
}

}  // namespace muster::cli
