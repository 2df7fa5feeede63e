#include "operator/embedded/selector.h"

#include <algorithm>
#include <optional>

namespace muster::embedded {
namespace {

constexpr std::size_t kMaxSelectorBytes = 4 * 1024;

std::string trim(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Splits at commas outside parentheses.
std::vector<std::string> split_requirements(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_label_text(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

bool is_label_key(const std::string& key) { return !key.empty() && is_label_text(key); }

std::optional<std::string> field_of(const Version& version, const std::string& field) {
  if (field == "metadata.name") return version.key.name;
  if (field == "metadata.namespace") return version.key.namespace_name;
  const auto dot = field.find('.');
  const Json* parent = member(version.object, field.substr(0, dot).c_str());
  if (parent == nullptr) return "";
  return text_or_empty(member(*parent, field.substr(dot + 1).c_str()));
}

std::optional<std::string> label_of(const Version& version, const std::string& key) {
  const Json* metadata = member(version.object, "metadata");
  const Json* labels = metadata == nullptr ? nullptr : member(*metadata, "labels");
  const Json* value = labels == nullptr ? nullptr : member(*labels, key.c_str());
  if (value == nullptr) return std::nullopt;
  return text_or_empty(value);
}

Refusal unreadable(const std::string& part) {
  return bad_request("unable to parse requirement \"" + part.substr(0, 256) + "\"");
}

}  // namespace

Outcome<Selector::Requirement> Selector::parse_label_requirement(const std::string& text) {
  Requirement requirement;
  const auto open = text.find('(');
  if (open != std::string::npos) {
    // "key in (a, b)" or "key notin (a, b)"
    if (text.back() != ')') return unreadable(text);
    const std::string head = trim(text.substr(0, open));
    const auto space = head.find_first_of(" \t");
    if (space == std::string::npos) return unreadable(text);
    const std::string word = trim(head.substr(space));
    requirement.key = head.substr(0, space);
    if (word != "in" && word != "notin") return unreadable(text);
    requirement.op = word == "in" ? Operator::kIn : Operator::kNotIn;
    for (const auto& value : split_requirements(text.substr(open + 1, text.size() - open - 2))) {
      requirement.values.push_back(trim(value));
    }
  } else if (const auto equals = text.find('='); equals != std::string::npos) {
    const bool negated = equals > 0 && text[equals - 1] == '!';
    const bool is_double = equals + 1 < text.size() && text[equals + 1] == '=';
    if (negated && is_double) return unreadable(text);
    requirement.key = trim(text.substr(0, negated ? equals - 1 : equals));
    requirement.op = negated ? Operator::kNotIn : Operator::kIn;
    requirement.values.push_back(trim(text.substr(equals + (is_double ? 2 : 1))));
  } else {
    const bool negated = text.front() == '!';
    requirement.key = trim(negated ? text.substr(1) : text);
    requirement.op = negated ? Operator::kNotExists : Operator::kExists;
  }
  const bool values_are_good =
      std::all_of(requirement.values.begin(), requirement.values.end(), is_label_text);
  if (!is_label_key(requirement.key) || !values_are_good) return unreadable(text);
  return requirement;
}

Outcome<Selector::Requirement> Selector::parse_field_requirement(const ResourceType& type,
                                                                 const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return bad_request("invalid field selector: \"" + text.substr(0, 256) +
                       "\"; it must be field=value or field!=value");
  }
  const bool negated = text[equals - 1] == '!';
  const bool is_double = !negated && equals + 1 < text.size() && text[equals + 1] == '=';
  Requirement requirement;
  requirement.is_field = true;
  requirement.key = trim(text.substr(0, negated ? equals - 1 : equals));
  requirement.op = negated ? Operator::kNotIn : Operator::kIn;
  requirement.values.push_back(trim(text.substr(equals + (is_double ? 2 : 1))));
  const std::string& key = requirement.key;
  const bool known =
      key == "metadata.name" || (key == "metadata.namespace" && type.namespaced) ||
      (type.kind == api::Kind::kPod && (key == "spec.nodeName" || key == "status.phase"));
  if (!known) return bad_request("field label not supported: " + key.substr(0, 256));
  return requirement;
}

Outcome<Selector> Selector::parse(const ResourceType& type, const std::string& label_selector,
                                  const std::string& field_selector) {
  if (label_selector.size() > kMaxSelectorBytes || field_selector.size() > kMaxSelectorBytes) {
    return bad_request("a selector is longer than " + std::to_string(kMaxSelectorBytes) + " bytes");
  }
  Selector selector;
  const auto take = [&](const std::string& text, bool is_field) -> std::optional<Refusal> {
    if (trim(text).empty()) return std::nullopt;
    for (const auto& part : split_requirements(text)) {
      const std::string requirement_text = trim(part);
      if (requirement_text.empty()) return unreadable(text);
      auto requirement = is_field ? parse_field_requirement(type, requirement_text)
                                  : parse_label_requirement(requirement_text);
      if (refused(requirement)) return std::get<Refusal>(requirement);
      selector.requirements_.push_back(std::move(std::get<0>(requirement)));
    }
    return std::nullopt;
  };
  if (auto refusal = take(label_selector, false)) return std::move(*refusal);
  if (auto refusal = take(field_selector, true)) return std::move(*refusal);
  return selector;
}

bool Selector::matches(const Version& version) const {
  return std::all_of(requirements_.begin(), requirements_.end(), [&](const Requirement& r) {
    const auto value = r.is_field ? field_of(version, r.key) : label_of(version, r.key);
    const bool listed =
        value && std::find(r.values.begin(), r.values.end(), *value) != r.values.end();
    switch (r.op) {
      case Operator::kIn:
        return listed;
      case Operator::kNotIn:
        return !listed;
      case Operator::kExists:
        return value.has_value();
      case Operator::kNotExists:
        return !value.has_value();
    }
    return false;
  });
}

}  // namespace muster::embedded
