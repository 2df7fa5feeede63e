#include "worker/engine/sharded_exchange.h"

#include "common/check.h"

namespace muster::engine {
namespace {

/// What `from` gives `to`, which has not made the update itself.
Ranges gift(const Keeping& keeping, int from, int to) {
  return without(keeping.given[static_cast<std::size_t>(from)],
                 keeping.kept[static_cast<std::size_t>(to)]);
}

}  // namespace

std::uint64_t expected_step_bytes(const Assignment& assignment, int rank,
                                  const Reduction& reduction) {
  MUSTER_CHECK(reduction.keeping.has_value());
  std::uint64_t bytes = expected_bytes(assignment, rank, reduction);
  for (int peer = 0; peer < assignment.processes(); ++peer) {
    if (peer == rank) continue;
    bytes += 1 + size_of(gift(*reduction.keeping, rank, peer)) * sizeof(float);
  }
  return bytes;
}

Status confirm(comm::Communicator& communicator, std::uint64_t step, MonoTime deadline,
               const ExchangePoint& point) {
  if (communicator.size() == 1) return {};
  const std::byte here{1};
  std::vector<std::byte> theirs(static_cast<std::size_t>(communicator.size()));
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) continue;
    sends.push_back({peer, &here, 1});
    receives.push_back({peer, &theirs[static_cast<std::size_t>(peer)], 1});
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("logged") : Status());
  return work->wait(deadline);
}

Status gather_parameters(comm::Communicator& communicator, const Keeping& keeping,
                         std::uint64_t step, std::span<float> parameters, MonoTime deadline,
                         const ExchangePoint& point) {
  const int rank = communicator.rank();
  if (communicator.size() == 1) return {};
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == rank) continue;
    for (const ElementRange own : gift(keeping, rank, peer)) {
      sends.push_back({peer, parameters.data() + own.begin, own.size() * sizeof(float)});
    }
    for (const ElementRange theirs : gift(keeping, peer, rank)) {
      receives.push_back({peer, parameters.data() + theirs.begin, theirs.size() * sizeof(float)});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("gather") : Status());
  return work->wait(deadline);
}

}  // namespace muster::engine
