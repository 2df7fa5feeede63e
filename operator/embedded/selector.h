// Label and field selectors as list and watch take them.
#pragma once

#include <string>
#include <vector>

#include "operator/embedded/api_types.h"

namespace muster::embedded {

/// All requirements must hold. Without any, everything matches.
class Selector {
 public:
  /// Errors: 400 with the part that cannot be read. Fields known: metadata.name,
  /// metadata.namespace, and of pods spec.nodeName and status.phase.
  static Outcome<Selector> parse(const ResourceType& type, const std::string& label_selector,
                                 const std::string& field_selector);
  bool matches(const Version& version) const;
  bool is_empty() const { return requirements_.empty(); }

 private:
  enum class Operator { kIn, kNotIn, kExists, kNotExists };
  struct Requirement {
    bool is_field = false;
    std::string key;
    Operator op = Operator::kExists;
    std::vector<std::string> values;
  };
  static Outcome<Requirement> parse_label_requirement(const std::string& text);
  static Outcome<Requirement> parse_field_requirement(const ResourceType& type,
                                                      const std::string& text);
  std::vector<Requirement> requirements_;
};

}  // namespace muster::embedded
