#include "cli/yaml_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "common/contract.h"
#include "common/file.h"

namespace muster::cli {
namespace {

Result<std::string> read_text(const std::string& path) {
  if (path != kStandardInput) return read_file(path, kMaxManifestBytes);
  return read_descriptor(STDIN_FILENO, name_of_file(path), kMaxManifestBytes);
}

/// By path: as many as a command names.
const Result<std::string>& kept_text(const std::string& path) {
  static std::map<std::string, Result<std::string>> texts;
  const auto found = texts.find(path);
  return found != texts.end() ? found->second : texts.emplace(path, read_text(path)).first->second;
}

}  // namespace

bool is_read_once(const std::string& path) {
  if (path == kStandardInput) return true;
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void read_ahead(const std::string& path) {
  if (is_read_once(path)) (void)kept_text(path);
}

bool begins_as_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

Result<Json> read_yaml_file(const std::string& path) {
  const auto text = is_read_once(path) ? kept_text(path) : read_text(path);
  if (!text) {
    const bool too_large = text.error().code() == ErrorCode::kTooLarge;
    return text.error().with_exit_code(too_large ? contract::exit_code::kInvalidSpec
                                                 : contract::exit_code::kUsage);
  }
  // Its escapes are no YAML: characters beyond U+FFFF are two of them.
  if (begins_as_json(*text)) {
    if (auto json = parse_json(*text)) return json;
  }
  return parse_yaml(*text, name_of_file(path));
}

}  // namespace muster::cli
