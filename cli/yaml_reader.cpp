#include "cli/yaml_reader.h"

#include <unistd.h>

#include "common/contract.h"
#include "common/file.h"

namespace muster::cli {

const Result<std::string>& standard_input() {
  static const Result<std::string> kText =
      read_descriptor(STDIN_FILENO, name_of_file(kStandardInput), kMaxManifestBytes);
  return kText;
}

Result<Json> read_yaml_file(const std::string& path) {
  const auto text = path == kStandardInput ? standard_input() : read_file(path, kMaxManifestBytes);
  if (!text) {
    const bool too_large = text.error().code() == ErrorCode::kTooLarge;
    return text.error().with_exit_code(too_large ? contract::exit_code::kInvalidSpec
                                                 : contract::exit_code::kUsage);
  }
  return parse_yaml(*text, name_of_file(path));
}

}  // namespace muster::cli
