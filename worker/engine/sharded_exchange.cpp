#include "worker/engine/sharded_exchange.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace muster::engine {
namespace {

/// Without shared hosts each is given what it lacks by whoever gives that.
std::vector<Gift> single_gifts(const Keeping& keeping, int rank) {
  std::vector<Gift> gifts;
  const auto give = [&](int from, int to) {
    for (const ElementRange range : without(keeping.given[static_cast<std::size_t>(from)],
                                            keeping.kept[static_cast<std::size_t>(to)])) {
      gifts.push_back({from, to, range});
    }
  };
  for (int peer = 0; peer < static_cast<int>(keeping.kept.size()); ++peer) {
    if (peer == rank) continue;
    give(rank, peer);
    give(peer, rank);
  }
  return gifts;
}

/// On one host, a stretch to all who lack it: by the giver, or by who keeps it, else by one who is
/// given it first.
void give_on_host(const std::vector<int>& beside, const Stretch& stretch, int giver,
                  std::size_t turn, std::vector<Gift>& gifts) {
  std::vector<int> lacking;
  int source = -1;
  for (const int rank : beside) {
    const bool keeps = std::ranges::binary_search(stretch.keepers, rank);
    if (!keeps) lacking.push_back(rank);
    if (rank == giver || (keeps && source < 0)) source = rank;
  }
  if (lacking.empty()) return;
  const bool is_given_on = source < 0;
  if (is_given_on) {
    source = lacking[turn % lacking.size()];
    gifts.push_back({giver, source, stretch.range});
  }
  for (const int rank : lacking) {
    if (rank != source) gifts.push_back({source, rank, stretch.range, is_given_on});
  }
}

std::vector<Gift> gifts_by_hosts(const Giving& giving, int rank) {
  const Keeping& keeping = giving.keeping;
  const int processes = static_cast<int>(keeping.kept.size());
  std::vector<Ranges> cut = keeping.kept;
  cut.insert(cut.end(), keeping.given.begin(), keeping.given.end());
  std::vector<Gift> gifts;
  std::size_t turn = 0;
  for (Stretch& stretch : stretches_of(keeping.trained, cut)) {
    const int giver = stretch.keepers.back() - processes;  // one gives it, and keeps it
    MUSTER_CHECK(giver >= 0);
    stretch.keepers.pop_back();
    ++turn;
    for (const auto& beside : giving.hosts.members()) {
      give_on_host(beside, stretch, giver, turn, gifts);
    }
  }
  std::erase_if(gifts, [&](const Gift& one) { return one.from != rank && one.to != rank; });
  return gifts;
}

}  // namespace

Status confirm(comm::Communicator& communicator, std::span<std::uint8_t> said, std::uint64_t step,
               MonoTime deadline, const ExchangePoint& point) {
  MUSTER_CHECK(std::ssize(said) == communicator.size());
  if (communicator.size() == 1) return {};
  const std::uint8_t& own = said[static_cast<std::size_t>(communicator.rank())];
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    sends.push_back({peer, &own, 1});
    receives.push_back({peer, &said[static_cast<std::size_t>(peer)], 1});
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("logged") : Status());
  return work->wait(deadline);
}

Gifts plan_gifts(const Giving& giving, int rank) {
  const bool is_any_shared = giving.hosts.is_any_shared();
  return {is_any_shared ? gifts_by_hosts(giving, rank) : single_gifts(giving.keeping, rank),
          is_any_shared};
}

Status gather_parameters(comm::Communicator& communicator, const Gifts& gifts, std::uint64_t step,
                         std::span<float> parameters, MonoTime deadline,
                         const ExchangePoint& point) {
  const int rank = communicator.rank();
  if (communicator.size() == 1) return {};
  const auto start = [&](bool is_given_on) {
    std::vector<comm::SendBuffer> sends;
    std::vector<comm::ReceiveBuffer> receives;
    for (const Gift& one : gifts.all) {
      if (one.is_given_on != is_given_on) continue;
      float* const values = parameters.data() + one.range.begin;
      const std::size_t bytes = one.range.size() * sizeof(float);
      if (one.from == rank) sends.push_back({one.to, values, bytes});
      if (one.to == rank) receives.push_back({one.from, values, bytes});
    }
    return communicator.start(step, comm::Memory::kHost, sends, receives);
  };
  MUSTER_ASSIGN_OR_RETURN(const auto work, start(false));
  MUSTER_RETURN_IF_ERROR(point ? point("gather") : Status());
  MUSTER_RETURN_IF_ERROR(work->wait(deadline));
  if (!gifts.is_any_given_on) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto given_on, start(true));
  return given_on->wait(deadline);
}

}  // namespace muster::engine
