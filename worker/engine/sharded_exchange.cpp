#include "worker/engine/sharded_exchange.h"

#include "common/check.h"

namespace muster::engine {
namespace {

bool has_made_update(const Shards& shards, int rank, int owner) {
  return rank == owner || shards.is_buddy(owner, rank);
}

}  // namespace

std::uint64_t expected_step_bytes(const Assignment& assignment, int rank,
                                  const Reduction& reduction) {
  MUSTER_CHECK(reduction.shards.has_value());
  const Shards& shards = *reduction.shards;
  const std::size_t own = size_of(shards.owned[static_cast<std::size_t>(rank)]);
  std::uint64_t bytes = expected_bytes(assignment, rank, reduction);
  for (int peer = 0; peer < shards.processes(); ++peer) {
    if (peer != rank) bytes += 1;
    if (!has_made_update(shards, peer, rank)) bytes += own * sizeof(float);
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

Status gather_parameters(comm::Communicator& communicator, const Shards& shards, std::uint64_t step,
                         std::span<float> parameters, MonoTime deadline,
                         const ExchangePoint& point) {
  const int rank = communicator.rank();
  if (communicator.size() == 1) return {};
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < shards.processes(); ++peer) {
    if (peer == rank) continue;
    if (!has_made_update(shards, peer, rank)) {
      for (const ElementRange own : shards.owned[static_cast<std::size_t>(rank)]) {
        sends.push_back({peer, parameters.data() + own.begin, own.size() * sizeof(float)});
      }
    }
    if (!has_made_update(shards, rank, peer)) {
      for (const ElementRange theirs : shards.owned[static_cast<std::size_t>(peer)]) {
        receives.push_back({peer, parameters.data() + theirs.begin, theirs.size() * sizeof(float)});
      }
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("gather") : Status());
  return work->wait(deadline);
}

}  // namespace muster::engine
