// Which nodes something may stand on, as one set that all share who have the same: of 10,000 nodes
// that a zone's volumes reach it would else be written down for each job that waits.
#pragma once

#include <compare>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace muster::core {

/// Names of nodes; as default-constructed, any. Immutable; a copy is cheap. Equal where the names
/// are.  Threads: any number at once.
class NodeLimit {
 public:
  using Names = std::set<std::string>;

  NodeLimit() = default;
  NodeLimit(Names names) : names_(std::make_shared<const Names>(std::move(names))) {}

  /// Whether there is a limit at all; `*` and `->` want one.
  explicit operator bool() const { return names_ != nullptr; }
  const Names& operator*() const { return *names_; }
  const Names* operator->() const { return names_.get(); }
  bool allows(const std::string& node) const { return !names_ || names_->contains(node); }

  bool operator==(const NodeLimit& other) const { return (*this <=> other) == 0; }
  std::strong_ordering operator<=>(const NodeLimit& other) const {
    if (names_ == other.names_) return std::strong_ordering::equal;
    if (!names_ || !other.names_) return (names_ != nullptr) <=> (other.names_ != nullptr);
    return *names_ <=> *other.names_;
  }

 private:
  std::shared_ptr<const Names> names_;
};

}  // namespace muster::core
