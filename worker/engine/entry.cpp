#include "worker/engine/entry.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "common/check.h"
#include "common/contract.h"

namespace muster::engine {
namespace {

constexpr std::uint64_t kRecordBytesMax = std::uint64_t{2} << 20;

struct GreetingWire {
  Standing standing;
  Sha256Digest spec{}, data{};
  std::uint64_t record_bytes = 0;
  std::uint64_t computed = 0;  ///< how many nodes follow in the second exchange
  std::uint64_t has_state = 0;
};
static_assert(std::is_trivially_copyable_v<GreetingWire>);

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
      all.loss = one.loss;
      all.settled_step = one.settled_step;
    }
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
  if (own.data != right.data) return differs("training data", contract::exit_code::kData);
  return {};
}

}  // namespace

bool has_any_state(const std::vector<Greeting>& greetings) {
  return std::any_of(greetings.begin(), greetings.end(),
                     [](const Greeting& one) { return one.has_state; });
}

Result<EntryPlan> plan_entry(int logical_ranks, const std::vector<Greeting>& greetings, int rank) {
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
  std::size_t next_holder = 0;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    const bool has_state = holds(greetings[r]);
    plan.source.push_back(has_state ? static_cast<int>(r)
                                    : holders[next_holder++ % holders.size()]);
    held.push_back(has_state ? greetings[r].computed : std::vector<RankRange>());
    plan.is_fresh = plan.is_fresh && held.back().empty();
  }
  if (plan.is_fresh) {
    MUSTER_ASSIGN_OR_RETURN(plan.assignment,
                            assign(logical_ranks, static_cast<int>(greetings.size())));
  } else {
    plan.assignment = repair(logical_ranks, held);
  }
  return plan;
}

Result<std::vector<Greeting>> exchange_greetings(comm::Communicator& communicator,
                                                 const Greeting& own, int logical_ranks,
                                                 MonoTime deadline) {
  const auto size = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::vector<GreetingWire> wires(size);
  wires[rank] = {own.standing,        own.spec,     own.data, own.record_bytes,
                 own.computed.size(), own.has_state};
  std::vector<std::size_t> offsets;
  for (std::size_t r = 0; r <= size; ++r) offsets.push_back(r * sizeof(GreetingWire));
  if (size > 1) {
    MUSTER_RETURN_IF_ERROR(comm::all_gather(
        communicator, 0, std::as_writable_bytes(std::span(wires)), offsets, deadline));
  }
  std::size_t nodes = 0;
  offsets.assign(1, 0);
  for (const GreetingWire& wire : wires) {
    if (wire.computed > static_cast<std::uint64_t>(logical_ranks) || wire.standing.step < 0 ||
        wire.record_bytes > kRecordBytesMax || wire.has_state > 1) {
      return Error(ErrorCode::kCorrupt, "a member's greeting cannot be right");
    }
    nodes += static_cast<std::size_t>(wire.computed);
    offsets.push_back(nodes * sizeof(RankRange));
  }
  std::vector<RankRange> computed(nodes);
  std::copy(own.computed.begin(), own.computed.end(),
            computed.begin() + static_cast<std::ptrdiff_t>(offsets[rank] / sizeof(RankRange)));
  if (nodes > 0 && size > 1) {
    MUSTER_RETURN_IF_ERROR(comm::all_gather(
        communicator, 0, std::as_writable_bytes(std::span(computed)), offsets, deadline));
  }
  std::vector<Greeting> greetings;
  for (std::size_t r = 0; r < size; ++r) {
    Greeting greeting{wires[r].standing,       wires[r].spec,         wires[r].data,
                      wires[r].has_state == 1, wires[r].record_bytes, {}};
    for (std::size_t i = offsets[r] / sizeof(RankRange); i < offsets[r + 1] / sizeof(RankRange);
         ++i) {
      if (!is_node(computed[i], logical_ranks)) {
        return Error(ErrorCode::kCorrupt, "a member's greeting names what is no node of the sum");
      }
      greeting.computed.push_back(computed[i]);
    }
    greetings.push_back(std::move(greeting));
  }
  return greetings;
}

Result<std::vector<std::string>> collect_records(comm::Communicator& communicator,
                                                 const std::vector<Greeting>& greetings, int owner,
                                                 const std::string& own, MonoTime deadline) {
  const int rank = communicator.rank();
  std::vector<std::string> texts(rank == owner ? greetings.size() : 0);
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (std::size_t r = 0; r < greetings.size(); ++r) {
    const auto bytes = static_cast<std::size_t>(greetings[r].record_bytes);
    if (bytes == 0 || static_cast<int>(r) == owner) continue;
    if (rank == owner) {
      texts[r].resize(bytes);
      receives.push_back({static_cast<int>(r), texts[r].data(), bytes});
    } else if (rank == static_cast<int>(r)) {
      sends.push_back({owner, own.data(), bytes});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(0, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline));
  return texts;
}

Result<std::uint64_t> transfer_state(comm::Communicator& communicator, const EntryPlan& plan,
                                     std::span<const std::span<std::byte>> state,
                                     MonoTime deadline) {
  const int rank = communicator.rank();
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (std::size_t r = 0; r < plan.source.size(); ++r) {
    const int to = static_cast<int>(r);
    const int from = plan.source[r];
    if (from == to) continue;
    for (const std::span<std::byte> part : state) {
      if (from == rank) sends.push_back({to, part.data(), part.size()});
      if (to == rank) receives.push_back({from, part.data(), part.size()});
    }
  }
  // Everybody takes part, so that groups stay in the same order on all ranks.
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(0, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline));
  std::uint64_t received = 0;
  for (const comm::ReceiveBuffer& part : receives) received += part.bytes;
  return received;
}

}  // namespace muster::engine
