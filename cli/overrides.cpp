#include "cli/overrides.h"

#include <charconv>
#include <optional>
#include <vector>

#include "cli/yaml_reader.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMaxParts = 32;

Error bad_assignment(const std::string& assignment, const std::string& sentence) {
  return Error(ErrorCode::kInvalid, "--set " + assignment.substr(0, 200) + ": " + sentence)
      .with_exit_code(contract::exit_code::kUsage);
}

struct Part {
  std::string name;
  bool is_bracketed = false;
};

/// The path's parts; empty when it has an empty part, an open bracket or too many parts.
std::vector<Part> split_path(const std::string& path) {
  std::vector<Part> parts(1);
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (c == '\\' && i + 1 < path.size()) {
      parts.back().name += path[++i];
    } else if (c == '.') {
      parts.emplace_back();
    } else if (c == '[') {
      const std::size_t end = path.find(']', i);
      if (end == std::string::npos) return {};
      parts.push_back({path.substr(i + 1, end - i - 1), true});
      i = end;
    } else {
      parts.back().name += c;
    }
  }
  for (const Part& part : parts) {
    if (part.name.empty()) return {};
  }
  return parts.size() > kMaxParts ? std::vector<Part>{} : parts;
}

std::optional<std::size_t> index_of(const std::string& part) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return index;
}

}  // namespace

Status apply_override(const std::string& assignment, Json& manifest) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    return bad_assignment(assignment, "write a path, = and a value, as in spec.worker.count=3");
  }
  const std::vector<Part> parts = split_path(assignment.substr(0, equals));
  if (parts.empty()) {
    return bad_assignment(assignment,
                          "the path must be names separated by dots, as in spec.worker.count");
  }
  const std::string text = assignment.substr(equals + 1);
  Json value;
  if (!text.empty()) {
    auto parsed = parse_yaml(text, "--set " + assignment.substr(0, equals));
    if (!parsed) return parsed.error().with_exit_code(contract::exit_code::kUsage);
    value = std::move(*parsed);
  }
  Json* at = &manifest;
  std::string so_far;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [part, is_bracketed] = parts[i];
    const bool takes_out = text.empty() && i + 1 == parts.size();
    const auto index = index_of(part);
    if (at->is_null()) *at = is_bracketed && index ? Json::array() : Json::object();
    if (at->is_array()) {
      if (!index || *index > at->size() || (takes_out && *index == at->size())) {
        return bad_assignment(assignment, so_far + " is a list of " + std::to_string(at->size()) +
                                              "; \"" + part + "\" is no index in it");
      }
      if (takes_out) {
        at->erase(*index);
        return {};
      }
      if (*index == at->size()) at->push_back(nullptr);
      at = &(*at)[*index];
    } else if (at->is_object()) {
      at = &(*at)[part];
    } else {
      return bad_assignment(assignment,
                            so_far + " is a single value and has no field \"" + part + "\"");
    }
    so_far += (so_far.empty() ? "" : ".") + part;
  }
  *at = std::move(value);
  return {};
}

}  // namespace muster::cli
