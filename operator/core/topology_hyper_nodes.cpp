// Volcano's HyperNodes: a tree that names its members, by name, label or pattern.
#include <algorithm>
#include <bitset>
#include <optional>
#include <set>

#include "operator/core/text.h"
#include "operator/core/topology_sources.h"

namespace muster::core {

/// What HyperNodes::Known holds, which a header declares.
namespace hyper {

struct Atom {
  std::bitset<256> admits;
  bool may_miss = false, may_repeat = false;
};

/// One atom after another, each with a repetition.
struct Pattern {
  std::vector<Atom> atoms;
  bool from_start = false, to_end = false;
};

struct Member {
  std::string exact;
  std::optional<Pattern> pattern;
  std::map<std::string, std::string> labels;
};

struct Node {
  std::string name, tier_name;
  std::int64_t tier = 0;
  std::vector<Member> nodes, hyper_nodes;
  int parent = -1;
};

}  // namespace hyper

namespace {

using hyper::Atom, hyper::Pattern;

constexpr std::size_t kMaxHyperNodes = 20'000;
constexpr std::size_t kMaxMembers = 20'000;
constexpr std::size_t kMaxPatternBytes = 256;
constexpr std::int64_t kMaxTier = 1'000;

// ---- Patterns

Error not_read(const std::string& pattern) {
  return Error(ErrorCode::kUnsupported,
               "pattern " + head_of(pattern, 64) +
                   " is not read: letters, digits, - . _ [a-z] \\d * + ? ^ $ are");
}

unsigned byte_of(char c) { return static_cast<unsigned char>(c); }

void admit_range(Atom& atom, unsigned from, unsigned to) {
  for (unsigned c = from; c <= to; ++c) atom.admits[c] = true;
}

/// After '['; `at` is left behind ']'. False: it is no class that is read.
bool read_class(const std::string& text, std::size_t& at, Atom& atom) {
  const bool negated = at < text.size() && text[at] == '^';
  if (negated) ++at;
  const std::size_t first = at;
  while (at < text.size() && (text[at] != ']' || at == first)) {
    if (text[at] == '[' || text[at] == '\\') return false;
    const unsigned from = byte_of(text[at]);
    unsigned to = from;
    if (at + 2 < text.size() && text[at + 1] == '-' && text[at + 2] != ']') {
      to = byte_of(text[at + 2]);
      at += 2;
    }
    if (to < from) return false;
    admit_range(atom, from, to);
    ++at;
  }
  if (at >= text.size()) return false;
  ++at;
  if (negated) atom.admits.flip();
  return true;
}

bool read_atom(const std::string& text, std::size_t& at, Atom& atom) {
  const char c = text[at++];
  if (c == '[') return read_class(text, at, atom);
  if (c == '.') {
    admit_range(atom, 0, 255);
    atom.admits['\n'] = false;
    return true;
  }
  if (c == '\\') {
    if (at == text.size()) return false;
    const char escaped = text[at++];
    if (escaped == 'd') {
      admit_range(atom, '0', '9');
      return true;
    }
    const bool is_mark = std::string("-._/:[](){}*+?^$|\\").find(escaped) != std::string::npos;
    if (is_mark) atom.admits[byte_of(escaped)] = true;
    return is_mark;
  }
  if (std::string("(){}|*+?^$").find(c) != std::string::npos) return false;
  atom.admits[byte_of(c)] = true;
  return true;
}

Result<Pattern> read_pattern(const std::string& text) {
  Pattern pattern;
  if (text.size() > kMaxPatternBytes) return not_read(text);
  std::size_t at = 0;
  if (text.starts_with("^")) {
    pattern.from_start = true;
    ++at;
  }
  while (at < text.size()) {
    if (text[at] == '$' && at + 1 == text.size()) {
      pattern.to_end = true;
      break;
    }
    Atom atom;
    if (!read_atom(text, at, atom)) return not_read(text);
    if (at < text.size() && std::string("*+?").find(text[at]) != std::string::npos) {
      atom.may_miss = text[at] != '+';
      atom.may_repeat = text[at] != '?';
      ++at;
    }
    pattern.atoms.push_back(std::move(atom));
  }
  return pattern;
}

/// Some of a pattern's atoms, or what is behind the last.
using Atoms = std::bitset<kMaxPatternBytes + 1>;

/// Follows every way through the pattern at once, so that no text takes long. `looked_at` rises by
/// the characters of the text that it takes to tell.
bool finds(const Pattern& pattern, const std::string& text, std::int64_t& looked_at) {
  const std::size_t count = pattern.atoms.size();
  std::size_t at = 0;
  // Of the names of nodes nearly all begin otherwise than what a pattern is anchored with.
  if (pattern.from_start) {
    for (; at < count && !pattern.atoms[at].may_miss && !pattern.atoms[at].may_repeat; ++at) {
      ++looked_at;
      if (at == text.size() || !pattern.atoms[at].admits[byte_of(text[at])]) return false;
    }
  }
  // here[i]: the atoms before i are matched. `repeating`: those that may go on.
  Atoms here, repeating;
  const auto reach = [&](Atoms& set, std::size_t i) {
    for (; !set[i]; ++i) {
      set[i] = true;
      if (i == count || !pattern.atoms[i].may_miss) break;
    }
  };
  if (pattern.from_start) reach(here, at);
  for (;; ++at) {
    if (!pattern.from_start) reach(here, 0);
    if (here[count] && (!pattern.to_end || at == text.size())) return true;
    if (at == text.size() || (here.none() && repeating.none())) return false;
    ++looked_at;
    const unsigned c = byte_of(text[at]);
    Atoms next, again;
    for (std::size_t i = 0; i < count; ++i) {
      if ((!here[i] && !repeating[i]) || !pattern.atoms[i].admits[c]) continue;
      reach(next, i + 1);
      if (pattern.atoms[i].may_repeat) again[i] = true;
    }
    here = next;
    repeating = again;
  }
}

bool finds(const Pattern& pattern, const std::string& text) {
  std::int64_t looked_at = 0;
  return finds(pattern, text, looked_at);
}

// ---- The tree

Result<hyper::Member> read_member(JsonReader& in) {
  hyper::Member member;
  const Json* selector = in.object("selector");
  if (selector == nullptr) {
    in.fail("selector", "is required");
    return member;
  }
  JsonReader reader(*selector, in.path_of("selector"));
  const Json* exact = reader.object("exactMatch");
  const Json* pattern = reader.object("regexMatch");
  const Json* labels = reader.object("labelMatch");
  const int given = (exact != nullptr) + (pattern != nullptr) + (labels != nullptr);
  if (given != 1) reader.fail("", "must have exactly one of exactMatch, regexMatch or labelMatch");
  MUSTER_RETURN_IF_ERROR(reader.status());
  if (exact != nullptr) {
    JsonReader one(*exact, reader.path_of("exactMatch"));
    one.required("name", member.exact, 253);
    MUSTER_RETURN_IF_ERROR(one.status());
  }
  if (pattern != nullptr) {
    JsonReader one(*pattern, reader.path_of("regexMatch"));
    std::string text;
    one.required("pattern", text, 1024);
    MUSTER_RETURN_IF_ERROR(one.status());
    auto read = read_pattern(text);
    if (!read) return read.error().with(one.path());
    member.pattern = std::move(*read);
  }
  if (labels != nullptr) {
    JsonReader one(*labels, reader.path_of("labelMatch"));
    const Json* equal = one.object("matchLabels");
    if (equal == nullptr || equal->empty() || one.has("matchExpressions")) {
      one.fail("", "is read with matchLabels alone");
    }
    MUSTER_RETURN_IF_ERROR(one.status());
    for (const auto& [key, value] : equal->items()) {
      if (!value.is_string()) one.fail("matchLabels", "must have texts for values");
      if (value.is_string()) member.labels[key] = value.get<std::string>();
    }
    MUSTER_RETURN_IF_ERROR(one.status());
  }
  return member;
}

Result<hyper::Node> read_hyper_node(const Json& object) {
  hyper::Node made;
  JsonReader in(object, "");
  const Json* meta = in.object("metadata");
  const Json* spec = in.object("spec");
  if (meta == nullptr || spec == nullptr) in.fail("", "must have metadata and spec");
  MUSTER_RETURN_IF_ERROR(in.status());
  JsonReader name(*meta, "metadata");
  name.required("name", made.name, 253);
  MUSTER_RETURN_IF_ERROR(name.status());
  const std::string what = "HyperNode " + head_of(made.name, 63);
  JsonReader reader(*spec, "spec");
  reader.required("tier", made.tier, {0, kMaxTier});
  reader.optional("tierName", made.tier_name, 253);
  const Json* members = reader.array("members", kMaxMembers);
  if (auto status = reader.status(); !status) return status.error().with(what);
  for (std::size_t i = 0; members != nullptr && i < members->size(); ++i) {
    JsonReader member((*members)[i], "spec.members[" + std::to_string(i) + "]");
    std::string type;
    member.required("type", type, 32);
    auto read = read_member(member);
    if (!read) return read.error().with(what);
    if (type != "Node" && type != "HyperNode") member.fail("type", "must be Node or HyperNode");
    if (auto status = member.status(); !status) return status.error().with(what);
    (type == "Node" ? made.nodes : made.hyper_nodes).push_back(std::move(*read));
  }
  return made;
}

bool admits(const hyper::Member& member, const std::string& name,
            const std::map<std::string, std::string>* labels) {
  if (!member.exact.empty()) return member.exact == name;
  if (member.pattern) return finds(*member.pattern, name);
  if (labels == nullptr) return false;
  return std::all_of(member.labels.begin(), member.labels.end(), [&](const auto& wanted) {
    const auto found = labels->find(wanted.first);
    return found != labels->end() && found->second == wanted.second;
  });
}

Status adopt(std::vector<hyper::Node>& all) {
  for (std::size_t p = 0; p < all.size(); ++p) {
    for (const hyper::Member& member : all[p].hyper_nodes) {
      for (hyper::Node& child : all) {
        if (!admits(member, child.name, nullptr)) continue;
        const std::string what = "HyperNode " + head_of(child.name, 63) + ": ";
        if (child.parent >= 0 && child.parent != static_cast<int>(p)) {
          return Error(ErrorCode::kInvalid,
                       what + "has two parents, " +
                           head_of(all[static_cast<std::size_t>(child.parent)].name, 63) + " and " +
                           head_of(all[p].name, 63) + "; a place has one");
        }
        // So there are no circles either.
        if (child.tier >= all[p].tier) {
          return Error(ErrorCode::kInvalid, what + "its tier must be under that of its parent " +
                                                head_of(all[p].name, 63));
        }
        child.parent = static_cast<int>(p);
      }
    }
  }
  return {};
}

Result<std::map<std::string, int>> exact_homes(const std::vector<hyper::Node>& all) {
  std::map<std::string, int> homes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const hyper::Member& member : all[i].nodes) {
      if (member.exact.empty()) continue;
      const auto [at, is_new] = homes.try_emplace(member.exact, static_cast<int>(i));
      if (is_new || at->second == static_cast<int>(i)) continue;
      return Error(ErrorCode::kInvalid,
                   "HyperNode " + head_of(all[i].name, 63) + ": its member " +
                       head_of(member.exact, 63) + " belongs to " +
                       head_of(all[static_cast<std::size_t>(at->second)].name, 63) +
                       " as well; a place has one parent");
    }
  }
  return homes;
}

}  // namespace

Result<bool> matches_pattern(const std::string& pattern, const std::string& text) {
  auto read = read_pattern(pattern);
  if (!read) return read.error();
  return finds(*read, text);
}

struct HyperNodes::Known {
  /// Of the members that no single node's name says: by one label each, and all with patterns.
  using ByValue = std::map<std::string, std::vector<std::pair<int, const hyper::Member*>>>;

  explicit Known(std::vector<hyper::Node> objects) : all(std::move(objects)) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const hyper::Member& member : all[i].nodes) {
        if (member.pattern) patterns.emplace_back(static_cast<int>(i), &*member.pattern);
        if (member.labels.empty()) continue;
        const auto& [key, value] = *member.labels.begin();
        by_label[key][value].emplace_back(static_cast<int>(i), &member);
      }
    }
  }

  const std::set<int>& found_by_name(const std::string& name);
  std::set<int> found_by_labels(const api::Node& node) const;
  Result<int> home_of(const api::Node& node);

  std::vector<hyper::Node> all;
  std::vector<TopologyLevel> levels;
  std::map<std::int64_t, int> level_of_tier;
  std::map<std::string, int> by_exact_name;
  std::map<std::string, ByValue> by_label;
  std::vector<std::pair<int, const hyper::Pattern*>> patterns;
  std::map<std::string, std::set<int>> by_name;  ///< of the nodes asked for until now
  std::int64_t names_matched = 0, characters_looked_at = 0;
};

/// HyperNodes whose patterns find the name: of a name the same however often a node comes or says
/// something else.
const std::set<int>& HyperNodes::Known::found_by_name(const std::string& name) {
  static const std::set<int> kNone;
  if (patterns.empty()) return kNone;
  const auto [found, is_new] = by_name.try_emplace(name);
  if (!is_new) return found->second;
  ++names_matched;
  for (const auto& [index, pattern] : patterns) {
    if (finds(*pattern, name, characters_looked_at)) found->second.insert(index);
  }
  return found->second;
}

std::set<int> HyperNodes::Known::found_by_labels(const api::Node& node) const {
  std::set<int> found;
  for (const auto& [key, by_value] : by_label) {
    const auto label = node.meta.labels.find(key);
    if (label == node.meta.labels.end()) continue;
    const auto members = by_value.find(label->second);
    if (members == by_value.end()) continue;
    for (const auto& [index, member] : members->second) {
      if (admits(*member, node.meta.name, &node.meta.labels)) found.insert(index);
    }
  }
  return found;
}

/// Index of the HyperNode that a node is a member of; -1 = of none.
Result<int> HyperNodes::Known::home_of(const api::Node& node) {
  std::set<int> found = found_by_labels(node);
  const std::set<int>& named = found_by_name(node.meta.name);
  found.insert(named.begin(), named.end());
  const auto exact = by_exact_name.find(node.meta.name);
  int home = exact != by_exact_name.end() ? exact->second : -1;
  for (const int index : found) {
    if (home >= 0 && home != index) {
      return Error(ErrorCode::kInvalid, "HyperNode " + head_of(all[as_index(index)].name, 63) +
                                            ": its member " + head_of(node.meta.name, 63) +
                                            " belongs to " + head_of(all[as_index(home)].name, 63) +
                                            " as well; a place has one parent");
    }
    home = index;
  }
  return home;
}

HyperNodes::HyperNodes(std::unique_ptr<Known> known) : known_(std::move(known)) {}
HyperNodes::HyperNodes(HyperNodes&&) noexcept = default;
HyperNodes& HyperNodes::operator=(HyperNodes&&) noexcept = default;
HyperNodes::~HyperNodes() = default;
std::int64_t HyperNodes::names_matched() const { return known_->names_matched; }
std::int64_t HyperNodes::characters_looked_at() const { return known_->characters_looked_at; }

Result<HyperNodes> HyperNodes::read(const std::vector<Json>& objects) {
  if (objects.size() > kMaxHyperNodes) {
    return Error(ErrorCode::kTooLarge, "HyperNodes: there are " + std::to_string(objects.size()) +
                                           ", at most " + std::to_string(kMaxHyperNodes) +
                                           " are read");
  }
  std::vector<hyper::Node> all;
  std::map<std::int64_t, std::string, std::greater<>> tiers;
  for (const Json& object : objects) {
    MUSTER_ASSIGN_OR_RETURN(hyper::Node one, read_hyper_node(object));
    std::string& tier_name = tiers[one.tier];
    if (tier_name.empty()) tier_name = one.tier_name;
    all.push_back(std::move(one));
  }
  if (tiers.size() > kMaxTopologyLevels) {
    return Error(ErrorCode::kTooLarge, "HyperNodes: have " + std::to_string(tiers.size()) +
                                           " tiers, at most " + std::to_string(kMaxTopologyLevels) +
                                           " are read");
  }
  MUSTER_RETURN_IF_ERROR(adopt(all));
  MUSTER_ASSIGN_OR_RETURN(auto homes, exact_homes(all));
  auto known = std::make_unique<Known>(std::move(all));
  known->by_exact_name = std::move(homes);
  for (const auto& [tier, name] : tiers) {
    known->level_of_tier[tier] = static_cast<int>(known->levels.size());
    TopologyLevel& level = known->levels.emplace_back();
    level.key = "tier-" + std::to_string(tier);
    level.name = name.empty() ? level.key : name;
    level.is_optional = true;
  }
  if (!known->levels.empty()) known->levels.back().aliases = {"rack", "leaf"};
  return HyperNodes(std::move(known));
}

Result<HyperNodeTree> HyperNodes::tree(const std::vector<const api::Node*>& nodes) {
  Known& known = *known_;
  // Names of nodes that are long gone would be kept for ever.
  if (known.by_name.size() > 2 * nodes.size()) known.by_name.clear();
  HyperNodeTree tree;
  tree.levels = known.levels;
  if (known.all.empty()) return tree;
  for (const api::Node* node : nodes) {
    MUSTER_ASSIGN_OR_RETURN(const int home, known.home_of(*node));
    if (home < 0) continue;
    std::vector<PathStep> steps;
    for (int at = home; at >= 0; at = known.all[as_index(at)].parent) {
      const hyper::Node& one = known.all[as_index(at)];
      steps.insert(steps.begin(), {known.level_of_tier.at(one.tier), one.name});
    }
    tree.paths[node->meta.name] = std::move(steps);
  }
  return tree;
}

}  // namespace muster::core
