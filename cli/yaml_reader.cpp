#include "cli/yaml_reader.h"

#include "cli/files.h"
#include "common/contract.h"
#include "common/file.h"

namespace muster::cli {

Result<Json> read_yaml_file(const std::string& path) {
  auto text = read_file(path, kMaxManifestBytes);
  if (!text) {
    const bool too_large = text.error().code() == ErrorCode::kTooLarge;
    return text.error().with_exit_code(too_large ? contract::exit_code::kInvalidSpec
                                                 : contract::exit_code::kUsage);
  }
  return parse_yaml(*text, path);
}

}  // namespace muster::cli
