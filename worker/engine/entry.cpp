#include "worker/engine/entry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "worker/engine/agreement.h"
#include "worker/engine/handover.h"

namespace muster::engine {
namespace {

constexpr std::uint64_t kRecordBytesMax = std::uint64_t{2} << 20;

struct GreetingWire {
  Standing standing;
  Sha256Digest spec{}, data{};
  std::uint64_t record_bytes = 0;
  LineNumbers record_lines;
  std::uint64_t computed = 0;  ///< how many nodes follow in the second exchange
  std::uint64_t held = 0;      ///< how many ranges follow in the third
  std::uint64_t has_state = 0, is_whole = 0, is_logged = 0, is_checked = 0;
  std::uint64_t foresees = 0, is_leaving = 0;
  std::int64_t trained_epoch = 0;
  Standing logged;
};
static_assert(std::is_trivially_copyable_v<GreetingWire>);
// Nothing stands between its fields, so that its bytes are equal where they are.
static_assert(sizeof(Standing) == 7 * 8 + sizeof(double) + 2 * sizeof(float));
static_assert(sizeof(GreetingWire) ==
              2 * sizeof(Standing) + 2 * sizeof(Sha256Digest) + 12 * sizeof(std::uint64_t));

bool is_node(RankRange node, int logical_ranks) {
  return node.first >= 0 && node.last <= logical_ranks && node.first < node.last &&
         covers(node).size() == 1;
}

/// What is known of evaluations and checkpoints: the furthest of those who stand at `step`.
Standing merge(const std::vector<Greeting>& greetings, std::int64_t step) {
  Standing all;
  bool is_first = true;
  for (const Greeting& greeting : greetings) {
    const Standing& one = greeting.standing;
    all.checkpoint_step = std::max(all.checkpoint_step, one.checkpoint_step);
    if (!greeting.has_state || one.step != step) continue;
    if (is_first) {
      all.step = one.step;
      all.lineage = one.lineage;
      all.settled_step = one.settled_step;
    }
    if (is_first || std::isnan(all.loss)) all.loss = one.loss;
    is_first = false;
    all.restored_step = std::max(all.restored_step, one.restored_step);
    all.is_stopping = std::max(all.is_stopping, one.is_stopping);
    all.settled_step = std::min(all.settled_step, one.settled_step);
    if (one.evaluated_step > all.evaluated_step) {
      all.evaluated_step = one.evaluated_step;
      all.accuracy = one.accuracy;
      all.evaluated_loss = one.evaluated_loss;
    }
  }
  return all;
}

Status check_alike(const std::vector<Greeting>& greetings, int holder, int rank) {
  const Greeting& right = greetings[static_cast<std::size_t>(holder)];
  const Greeting& own = greetings[static_cast<std::size_t>(rank)];
  const auto differs = [&](const char* what, int exit_code) {
    return Error(ErrorCode::kConflict, "process " + std::to_string(rank) + " and process " +
                                           std::to_string(holder) + " have different " + what +
                                           "; they must be the same")
        .with_exit_code(exit_code);
  };
  if (own.spec != right.spec) return differs("training specs", contract::exit_code::kInvalidSpec);
  if (own.data != right.data) {
    return differs("data, to train on or to test with", contract::exit_code::kData);
  }
  return {};
}

}  // namespace

bool has_any_state(const std::vector<Greeting>& greetings) {
  return std::any_of(greetings.begin(), greetings.end(),
                     [](const Greeting& one) { return one.has_state; });
}

std::int64_t keep_newest_lineage(std::vector<Greeting>& greetings) {
  std::int64_t newest = 0;
  for (const Greeting& one : greetings) newest = std::max(newest, one.standing.lineage);
  for (Greeting& one : greetings) {
    if (!one.has_state || one.standing.lineage == newest) continue;
    Greeting without_state;
    without_state.spec = one.spec;
    without_state.data = one.data;
    without_state.is_leaving = one.is_leaving;
    one = std::move(without_state);
  }
  return newest;
}

namespace {

/// For each who has no state the one of `holders` who gives it, in ascending order: of those on its
/// host, or else of all, the one who has given least.
class Givers {
 public:
  Givers(const std::vector<int>& holders, const Hosts& hosts) : hosts_(hosts) {
    for (const int holder : holders) given_.emplace_back(holder, 0);
  }

  int next_for(int rank) {
    Giver* best = nullptr;
    const auto is_beside = [&](const Giver& one) { return hosts_.are_together(one.first, rank); };
    for (Giver& one : given_) {
      const bool is_better = best == nullptr || (is_beside(one) && !is_beside(*best)) ||
                             (is_beside(one) == is_beside(*best) && one.second < best->second);
      if (is_better) best = &one;
    }
    ++best->second;
    return best->first;
  }

 private:
  using Giver = std::pair<int, int>;  ///< rank, and to how many it gives
  std::vector<Giver> given_;
  const Hosts& hosts_;
};

}  // namespace

Result<EntryPlan> plan_entry(int logical_ranks, const std::vector<Greeting>& greetings, int rank,
                             const Hosts& hosts) {
  MUSTER_CHECK(has_any_state(greetings));
  EntryPlan plan;
  std::int64_t newest = 0;
  for (const Greeting& greeting : greetings) {
    if (greeting.has_state) newest = std::max(newest, greeting.standing.step);
  }
  const auto holds = [&](const Greeting& one) {
    return one.has_state && one.standing.step == newest;
  };
  plan.standing = merge(greetings, newest);
  std::vector<int> holders;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    if (holds(greetings[r])) holders.push_back(static_cast<int>(r));
  }
  MUSTER_RETURN_IF_ERROR(check_alike(greetings, holders[0], rank));
  std::vector<std::vector<RankRange>> held;
  Givers givers(holders, hosts);
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    const bool has_state = holds(greetings[r]);
    const int own = static_cast<int>(r);
    plan.source.push_back(has_state ? own : givers.next_for(own));
    held.push_back(has_state ? greetings[r].computed : std::vector<RankRange>());
    plan.is_fresh = plan.is_fresh && held.back().empty();
  }
  plan.learns.resize(greetings.size());
  if (plan.is_fresh) {
    MUSTER_ASSIGN_OR_RETURN(plan.assignment,
                            assign(logical_ranks, static_cast<int>(greetings.size())));
  } else {
    plan.assignment = repair(logical_ranks, held);
  }
  return plan;
}

bool may_learn(const EntryPlan& plan, const std::vector<Greeting>& greetings) {
  if (plan.standing.step <= std::max<std::int64_t>(plan.standing.restored_step, 0)) return false;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    const bool is_behind = plan.source[r] != static_cast<int>(r);
    if (is_behind && greetings[r].has_state) return false;
  }
  return true;
}

void let_learn(EntryPlan& plan, int logical_ranks, const std::vector<Greeting>& greetings) {
  std::vector<std::size_t> others;
  std::vector<std::vector<RankRange>> held;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    plan.learns[r] = plan.source[r] != static_cast<int>(r) ? 1 : 0;
    if (plan.learns[r] != 0) continue;
    others.push_back(r);
    held.push_back(greetings[r].computed);
  }
  const Assignment dense = plan.is_fresh ? *assign(logical_ranks, static_cast<int>(others.size()))
                                         : repair(logical_ranks, held);
  plan.assignment.nodes.assign(greetings.size(), {});
  for (std::size_t i = 0; i < others.size(); ++i) {
    plan.assignment.nodes[others[i]] = dense.nodes[i];
  }
}

namespace {

std::int64_t newest_of(std::span<const Greeting> greetings) {
  std::int64_t newest = -1;
  for (const Greeting& one : greetings) {
    if (one.has_state) newest = std::max(newest, one.standing.step);
  }
  return newest;
}

std::vector<std::span<const Greeting>> groups_of(std::span<const Greeting> greetings,
                                                 std::size_t size) {
  std::vector<std::span<const Greeting>> groups;
  for (; greetings.size() >= size; greetings = greetings.subspan(size)) {
    groups.push_back(greetings.first(size));
  }
  return groups;
}

/// What a group says of a step that all its processes stand at or can come to; of another one it
/// has no state.
Greeting at_step(std::span<const Greeting> group, std::int64_t newest) {
  std::vector<Greeting> there;
  std::size_t can_come = 0;
  std::int64_t settled = newest, checkpoint = -1;
  for (const Greeting& one : group) {
    checkpoint = std::max(checkpoint, one.standing.checkpoint_step);
    if (!one.has_state) continue;
    if (one.standing.step == newest) {
      there.push_back(one);
    } else if (one.logged && one.logged->step == newest) {
      ++can_come;
      settled = std::min(settled, one.logged->settled_step);
    }
  }
  Greeting all;
  for (const Greeting& one : group) all.is_leaving = all.is_leaving || one.is_leaving;
  all.spec = group[0].spec;
  all.data = group[0].data;
  all.record_bytes = group[0].record_bytes;
  all.record_lines = group[0].record_lines;
  all.has_state = there.size() + can_come == group.size();
  all.standing.lineage = group[0].standing.lineage;
  if (all.has_state && there.empty()) {
    all.standing.step = newest;
    all.standing.loss = std::numeric_limits<float>::quiet_NaN();  // others know it
  } else if (all.has_state) {
    all.standing = merge(there, newest);
  }
  all.standing.settled_step = std::min(all.standing.settled_step, settled);
  all.standing.checkpoint_step = checkpoint;
  if (there.size() < group.size()) return all;
  for (const RankRange node : group[0].computed) {
    const bool have_all = std::all_of(group.begin(), group.end(), [&](const Greeting& one) {
      return std::find(one.computed.begin(), one.computed.end(), node) != one.computed.end();
    });
    if (have_all) all.computed.push_back(node);
  }
  return all;
}

}  // namespace

std::vector<Greeting> greetings_of_groups(const std::vector<Greeting>& greetings, int stages) {
  const auto cut = groups_of(greetings, static_cast<std::size_t>(stages));
  std::vector<Greeting> groups;
  groups.reserve(cut.size());
  for (const auto& group : cut) groups.push_back(at_step(group, newest_of(group)));
  const std::int64_t newest = newest_of(groups);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    // What others have come to it need not be given where it has the gradients for it.
    Greeting one = at_step(cut[group], newest);
    if (one.has_state) groups[group] = std::move(one);
  }
  return groups;
}

std::vector<Greeting> greetings_of_sharded_groups(const std::vector<std::size_t>& trained,
                                                  int place,
                                                  const std::vector<Greeting>& greetings) {
  const auto cut = groups_of(greetings, trained.size());
  const auto is_whole_at = [&](std::int64_t step) {
    std::vector<std::vector<Keeper>> keepers(trained.size());  // by place
    for (const auto& group : cut) {
      if (!at_step(group, step).has_state) continue;
      for (std::size_t p = 0; p < group.size(); ++p) keepers[p].push_back({group[p].held, false});
    }
    return std::ranges::equal(trained, keepers, is_complete);
  };
  std::int64_t newest = -1;
  for (const auto& group : cut) {
    const std::int64_t step = newest_of(group);
    if (step > newest && at_step(group, step).has_state && is_whole_at(step)) newest = step;
  }
  std::vector<Greeting> groups;
  for (const auto& group : cut) {
    Greeting all = at_step(group, newest);
    const Greeting& own = group[static_cast<std::size_t>(place)];
    all.is_whole = all.has_state && own.is_whole && own.standing.step == newest;
    if (all.has_state) all.held = own.held;
    // What it knows of later steps is of no use where they are made anew.
    if (newest_of(group) > newest) all.standing.checkpoint_step = -1;
    groups.push_back(std::move(all));
  }
  return groups;
}

Status check_group(const std::vector<Greeting>& greetings, int stages, int group) {
  for (int stage = 1; stage < stages; ++stage) {
    MUSTER_RETURN_IF_ERROR(check_alike(greetings, group * stages, group * stages + stage));
  }
  return {};
}

std::vector<Keeper> keepers_of(const std::vector<Greeting>& greetings) {
  std::vector<Keeper> keepers;
  for (const Greeting& one : greetings) {
    keepers.push_back({one.has_state ? one.held : Ranges(), one.has_state && one.is_whole});
  }
  return keepers;
}

std::vector<Greeting> at_newest_whole_step(std::size_t trained, std::vector<Greeting> greetings) {
  const auto is_at = [](const Greeting& one, std::int64_t step) {
    return one.has_state && one.standing.step == step;
  };
  const auto can_come_to = [](const Greeting& one, std::int64_t step) {
    return one.has_state && one.logged && one.logged->step == step;
  };
  const auto is_whole_at = [&](std::int64_t step) {
    std::vector<Keeper> keepers;
    for (const Greeting& one : greetings) {
      if (is_at(one, step) || can_come_to(one, step)) keepers.push_back({one.held, false});
    }
    return is_complete(trained, keepers);
  };
  std::int64_t newest = -1;
  for (const Greeting& one : greetings) {
    const std::int64_t step = one.standing.step;
    if (one.has_state && step > newest && is_whole_at(step)) newest = step;
  }
  for (Greeting& one : greetings) {
    if (newest >= 0 && is_at(one, newest)) continue;
    if (newest >= 0 && can_come_to(one, newest)) {
      one.standing = *one.logged;
      one.is_whole = false;
    } else {
      // What it knows of later steps is of no use where they are made anew.
      if (one.standing.step > newest) one.standing = Standing();
      one.has_state = one.is_whole = false;
      one.held.clear();
    }
    one.computed.clear();
  }
  return greetings;
}

namespace {

/// Those of `wire`, without its lists; nothing when they cannot be right.
std::optional<Greeting> read_greeting(const GreetingWire& wire, const GreetingBounds& bounds) {
  const std::uint64_t blocks = blocks_of(bounds.trained);
  if (wire.computed > static_cast<std::uint64_t>(bounds.logical_ranks) || wire.held > blocks ||
      wire.standing.step < 0 || wire.standing.lineage < 0 || wire.record_bytes > kRecordBytesMax ||
      wire.has_state > 1 || wire.is_whole > 1 || wire.is_logged > 1 || wire.is_checked > 1 ||
      wire.foresees > 1 || wire.is_leaving > 1 || wire.trained_epoch < 0) {
    return std::nullopt;
  }
  Greeting greeting;
  greeting.standing = wire.standing;
  greeting.spec = wire.spec;
  greeting.data = wire.data;
  greeting.is_checked = wire.is_checked == 1;
  greeting.has_state = wire.has_state == 1;
  greeting.record_bytes = wire.record_bytes;
  greeting.record_lines = wire.record_lines;
  greeting.is_whole = wire.is_whole == 1;
  if (wire.is_logged == 1) greeting.logged = wire.logged;
  greeting.foresees = wire.foresees == 1;
  greeting.is_leaving = wire.is_leaving == 1;
  greeting.trained_epoch = wire.trained_epoch;
  return greeting;
}

GreetingWire wire_of(const Greeting& own) {
  GreetingWire wire;
  wire.standing = own.standing;
  wire.spec = own.spec;
  wire.data = own.data;
  wire.record_bytes = own.record_bytes;
  wire.record_lines = own.record_lines;
  wire.computed = own.computed.size();
  wire.held = own.held.size();
  wire.is_checked = own.is_checked;
  wire.has_state = own.has_state;
  wire.is_whole = own.is_whole;
  wire.is_logged = own.logged.has_value();
  if (own.logged) wire.logged = *own.logged;
  wire.foresees = own.foresees;
  wire.is_leaving = own.is_leaving;
  wire.trained_epoch = own.trained_epoch;
  return wire;
}

/// Whether who has said `one` would have been foreseen by who says `right`. What the owner of the
/// files knows of its disk alone is agreed on behind that.
bool is_as_foreseen(GreetingWire one, GreetingWire right) {
  for (GreetingWire* wire : {&one, &right}) {
    wire->standing.checkpoint_step = -1;
    wire->foresees = 0;
  }
  return std::memcmp(&one, &right, sizeof one) == 0;
}

/// Whether a newcomer only takes: nobody's way into the membership depends on what it says.
bool brings_nothing(const GreetingWire& newcomer, const GreetingWire& own) {
  return newcomer.has_state == 0 && newcomer.is_logged == 0 && newcomer.is_checked == 1 &&
         newcomer.record_bytes == 0 && newcomer.computed == 0 && newcomer.held == 0 &&
         newcomer.standing.lineage <= own.standing.lineage;
}

/// Whether somebody has gone on without those who come from the same membership, and one of them
/// says something else.
bool are_foreseen_wrongly(const std::vector<GreetingWire>& wires) {
  return std::ranges::any_of(wires, [&](const GreetingWire& own) {
    bool is_wrong = false;
    for (const GreetingWire& one : wires) {
      const bool comes_along = one.trained_epoch == own.trained_epoch;
      if (own.foresees == 0 || (!comes_along && !brings_nothing(one, own))) return false;
      is_wrong = is_wrong || (comes_along && !is_as_foreseen(one, own));
    }
    return is_wrong;
  });
}

Error nonsense() { return Error(ErrorCode::kCorrupt, "a member's greeting cannot be right"); }
Error foreseen_wrongly() {
  return Error(ErrorCode::kAborted, "a member has not made the step that others have made with it");
}

}  // namespace

struct Greetings::Told {
  Told(comm::Communicator& among, const Greeting& tells, const GreetingBounds& of)
      : communicator(among),
        own(tells),
        bounds(of),
        wires(static_cast<std::size_t>(among.size())) {}
  GreetingWire& own_wire() { return wires[static_cast<std::size_t>(communicator.rank())]; }

  comm::Communicator& communicator;
  const Greeting own;
  const GreetingBounds bounds;
  std::vector<GreetingWire> wires;   ///< by rank
  std::vector<int> newcomers;        ///< of foresee()
  std::unique_ptr<comm::Work> work;  ///< nullptr for who is alone
};

Greetings::Greetings(std::unique_ptr<Told> told) : told_(std::move(told)) {}
Greetings::Greetings(Greetings&&) noexcept = default;
Greetings& Greetings::operator=(Greetings&&) noexcept = default;
Greetings::~Greetings() = default;

Result<Greetings> Greetings::begin(comm::Communicator& communicator, const Greeting& own,
                                   const GreetingBounds& bounds) {
  auto told = std::make_unique<Told>(communicator, own, bounds);
  told->own_wire() = wire_of(own);
  if (communicator.size() == 1) return Greetings(std::move(told));
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    sends.push_back({peer, &told->own_wire(), sizeof(GreetingWire)});
    receives.push_back({peer, &told->wires[static_cast<std::size_t>(peer)], sizeof(GreetingWire)});
  }
  MUSTER_ASSIGN_OR_RETURN(told->work, communicator.start(0, comm::Memory::kHost, sends, receives));
  return Greetings(std::move(told));
}

Result<std::vector<Greeting>> Greetings::finish(MonoTime deadline) {
  if (told_->work) MUSTER_RETURN_IF_ERROR(told_->work->wait(deadline));
  comm::Communicator& communicator = told_->communicator;
  const auto& [own, bounds, wires] = std::tie(told_->own, told_->bounds, told_->wires);
  std::vector<Greeting> greetings;
  std::vector<std::size_t> nodes, ranges;
  for (const GreetingWire& wire : wires) {
    auto greeting = read_greeting(wire, bounds);
    if (!greeting) return nonsense();
    greetings.push_back(std::move(*greeting));
    nodes.push_back(static_cast<std::size_t>(wire.computed));
    ranges.push_back(static_cast<std::size_t>(wire.held));
  }
  if (are_foreseen_wrongly(wires)) return foreseen_wrongly();
  MUSTER_ASSIGN_OR_RETURN(const auto computed,
                          gather_lists(communicator, own.computed, nodes, 0, deadline));
  MUSTER_ASSIGN_OR_RETURN(const auto held,
                          gather_lists(communicator, own.held, ranges, 0, deadline));
  auto node = computed.begin();
  auto range = held.begin();
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    for (std::size_t i = 0; i < nodes[r]; ++i, ++node) {
      if (!is_node(*node, bounds.logical_ranks)) {
        return Error(ErrorCode::kCorrupt, "a member's greeting names what is no node of the sum");
      }
      greetings[r].computed.push_back(*node);
    }
    greetings[r].held.assign(range, range + static_cast<std::ptrdiff_t>(ranges[r]));
    range += static_cast<std::ptrdiff_t>(ranges[r]);
    if (!are_ranges(greetings[r].held, bounds.trained)) {
      return Error(ErrorCode::kCorrupt, "a member's greeting names blocks that there are not");
    }
  }
  return greetings;
}

Result<std::optional<std::vector<Greeting>>> Greetings::foresee(std::span<const int> newcomers,
                                                                MonoTime deadline) {
  MUSTER_CHECK(told_->own.foresees && told_->own.computed.empty() && told_->own.held.empty());
  told_->newcomers.assign(newcomers.begin(), newcomers.end());
  if (told_->work) MUSTER_RETURN_IF_ERROR(told_->work->wait_for(newcomers, deadline));
  std::vector<Greeting> greetings(told_->wires.size(), told_->own);
  for (const int rank : newcomers) {
    const GreetingWire& wire = told_->wires[static_cast<std::size_t>(rank)];
    auto greeting = read_greeting(wire, told_->bounds);
    if (!greeting) return nonsense();
    if (!brings_nothing(wire, told_->own_wire())) return std::optional<std::vector<Greeting>>();
    greetings[static_cast<std::size_t>(rank)] = std::move(*greeting);
  }
  return std::optional(std::move(greetings));
}

Result<std::int64_t> Greetings::confirm(MonoTime deadline) {
  if (told_->work) MUSTER_RETURN_IF_ERROR(told_->work->wait(deadline));
  std::int64_t newest = -1;
  for (int rank = 0; rank < told_->communicator.size(); ++rank) {
    const GreetingWire& wire = told_->wires[static_cast<std::size_t>(rank)];
    if (!read_greeting(wire, told_->bounds)) return nonsense();
    const bool is_new = std::ranges::find(told_->newcomers, rank) != told_->newcomers.end();
    if (!is_new && !is_as_foreseen(wire, told_->own_wire())) return foreseen_wrongly();
    newest = std::max(newest, wire.standing.checkpoint_step);
  }
  return newest;
}

std::vector<Telling> plan_checks(const std::vector<Greeting>& greetings) {
  std::vector<int> know, train;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    if (!greetings[r].is_checked) continue;
    know.push_back(static_cast<int>(r));
    if (greetings[r].has_state) train.push_back(static_cast<int>(r));
  }
  MUSTER_CHECK(!know.empty());
  const std::vector<int>& sources = train.empty() ? know : train;
  std::vector<Telling> tellings;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    if (greetings[r].is_checked) continue;
    tellings.push_back({sources[tellings.size() % sources.size()], static_cast<int>(r)});
  }
  return tellings;
}

Status tell_checks(comm::Communicator& communicator, const std::vector<Telling>& tellings,
                   std::span<data::PictureFiles* const> sets, MonoTime deadline) {
  if (tellings.empty()) return {};
  std::vector<data::PictureCheck> told(sets.size());
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  bool is_told = false;
  for (const auto& [from, to] : tellings) {
    is_told = is_told || to == communicator.rank();
    for (std::size_t s = 0; s < sets.size(); ++s) {
      if (from == communicator.rank()) {
        const data::PictureCheck& check = *sets[s]->check();
        sends.push_back({to, check.digest.data(), sizeof check.digest});
        sends.push_back({to, &check.largest, sizeof check.largest});
        sends.push_back({to, check.hashes.data(), check.hashes.size() * sizeof(std::uint64_t)});
      } else if (to == communicator.rank()) {
        data::PictureCheck& check = told[s];
        check.hashes.resize(sets[s]->count());
        receives.push_back({from, check.digest.data(), sizeof check.digest});
        receives.push_back({from, &check.largest, sizeof check.largest});
        receives.push_back(
            {from, check.hashes.data(), check.hashes.size() * sizeof(std::uint64_t)});
      }
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(0, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline));
  for (const data::PictureCheck& check : told) {
    if (check.largest <= data::kMostDecodingBytes) continue;
    return Error(ErrorCode::kCorrupt, "what a member tells of its pictures cannot be right");
  }
  for (std::size_t s = 0; is_told && s < sets.size(); ++s) {
    sets[s]->take_check(std::move(told[s]));
  }
  return {};
}

std::vector<Telling> plan_telling(const EntryPlan& plan, const std::vector<Greeting>& greetings,
                                  int owner) {
  const auto source = [&](int rank) { return plan.source[static_cast<std::size_t>(rank)]; };
  const auto has_lines = [&](int rank) {
    const Greeting& keeper = greetings[static_cast<std::size_t>(rank)];
    return keeper.has_state && keeper.record_bytes > 0;
  };
  const auto lines = [&](int rank) {
    return greetings[static_cast<std::size_t>(rank)].record_lines;
  };
  const bool owner_trains = owner >= 0 && source(owner) == owner;
  int longest = -1, newest = -1;
  for (int rank = 0; rank < static_cast<int>(greetings.size()); ++rank) {
    if (owner < 0 || rank == owner || source(rank) != rank || !has_lines(rank)) continue;
    if (longest < 0 || lines(rank).first < lines(longest).first) longest = rank;
    if (newest < 0 || lines(rank).last > lines(newest).last) newest = rank;
  }
  if (longest >= 0 && lines(longest).last == lines(newest).last) newest = longest;
  std::vector<Telling> tellings;
  for (int rank = 0; rank < static_cast<int>(greetings.size()); ++rank) {
    const bool is_given_state = source(rank) != rank;
    if (rank == longest || rank == newest) tellings.push_back({rank, owner});
    const int keeper = owner < 0 ? source(rank) : owner;
    const bool is_told = is_given_state && (owner < 0 || owner_trains) && has_lines(keeper);
    if (is_told && keeper != rank) tellings.push_back({keeper, rank});
  }
  return tellings;
}

Result<std::vector<std::string>> tell_records(comm::Communicator& communicator,
                                              const std::vector<Greeting>& greetings,
                                              const std::vector<Telling>& tellings,
                                              const std::string& own, MonoTime deadline) {
  std::vector<std::string> texts;
  texts.reserve(tellings.size());  // nothing moves while it is being received
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (const auto& [from, to] : tellings) {
    const auto bytes =
        static_cast<std::size_t>(greetings[static_cast<std::size_t>(from)].record_bytes);
    if (to == communicator.rank()) {
      texts.emplace_back(bytes, '\0');
      receives.push_back({from, texts.back().data(), bytes});
    } else if (from == communicator.rank()) {
      sends.push_back({to, own.data(), bytes});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(0, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline));
  return texts;
}

Result<StateTransfer> transfer_state(comm::Communicator& communicator, const EntryPlan& plan,
                                     std::span<const std::span<std::byte>> state) {
  Handover handover(communicator);
  for (std::size_t r = 0; r < plan.source.size(); ++r) {
    const int to = static_cast<int>(r);
    const int from = plan.source[r];
    if (from == to) continue;
    for (const std::span<std::byte> part : state) {
      handover.add(from, to, part.data(), part.size());
    }
  }
  // Everybody takes part, so that groups stay in the same order on all ranks.
  StateTransfer transfer;
  MUSTER_ASSIGN_OR_RETURN(transfer.work, handover.start(0));
  transfer.work->proceed_alone();
  transfer.received_bytes = handover.received_bytes();
  return transfer;
}

}  // namespace muster::engine
