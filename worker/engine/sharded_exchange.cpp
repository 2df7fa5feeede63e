#include "worker/engine/sharded_exchange.h"

#include <algorithm>

#include "common/check.h"

namespace muster::engine {
namespace {

std::size_t payload(ElementRange range) { return range.size() * sizeof(float); }

int buddy_of(const Shards& shards, int rank) {
  return shards.buddy[static_cast<std::size_t>(rank)];
}

}  // namespace

std::uint64_t expected_bytes(const Assignment& assignment, const Shards& shards, int rank,
                             ExchangeSize size) {
  return expected_bytes(assignment, rank, size) +
         static_cast<std::uint64_t>(shards.processes() - 1);
}

ShardedExchange::ShardedExchange(const Assignment& assignment, const Shards& shards, int rank,
                                 ExchangeSize size, const std::vector<float*>& nodes)
    : shards_(shards),
      rank_(rank),
      size_(size),
      sum_(assignment, rank, size.elements, nodes),
      tail_(size.elements - shards.trained),
      block_squares_(blocks_of(size.measured)) {
  MUSTER_CHECK(size.measured == 0 || size.measured == shards.trained);
  MUSTER_CHECK(assignment.processes() == shards.processes());
  const bool is_added = shards.processes() > 1 || nodes.size() != 1;
  if (is_added) reduced_.resize(sum_.owned().size());
  own_ = is_added ? reduced_.data() : nodes[0];
  const ElementRange own = shards_.owned[static_cast<std::size_t>(rank)];
  if (own.size() > 0) gradients_.push_back({own, own_});
  for (const int ward : shards_.wards(rank)) {
    const ElementRange theirs = shards_.owned[static_cast<std::size_t>(ward)];
    const auto& copy = copies_.emplace_back(theirs.size());
    if (theirs.size() > 0) gradients_.push_back({theirs, copy.data()});
  }
  list_log(shards.processes());
}

ElementRange ShardedExchange::tail_of(int rank, int processes) const {
  const ElementRange tail{shards_.trained, size_.elements};
  const ElementRange own = intersection(owned_elements(rank, processes, size_.elements), tail);
  if (own.size() == 0) return {};
  return {own.begin - shards_.trained, own.end - shards_.trained};
}

/// Empty pieces are left out on both sides.
void ShardedExchange::list_log(int processes) {
  const ElementRange own = shards_.owned[static_cast<std::size_t>(rank_)];
  const ElementRange own_tail = tail_of(rank_, processes);
  const ElementRange own_blocks = measured_blocks(own, size_.measured);
  const std::vector<int> wards = shards_.wards(rank_);
  for (int peer = 0; peer < processes; ++peer) {
    if (peer == rank_) continue;
    const ElementRange theirs = shards_.owned[static_cast<std::size_t>(peer)];
    const auto ward = std::find(wards.begin(), wards.end(), peer);
    if (ward != wards.end() && theirs.size() > 0) {
      auto& copy = copies_[static_cast<std::size_t>(ward - wards.begin())];
      receives_.push_back({peer, copy.data(), payload(theirs)});
    }
    if (const auto tail = tail_of(peer, processes); tail.size() > 0) {
      receives_.push_back({peer, tail_.data() + tail.begin, payload(tail)});
    }
    if (const auto blocks = measured_blocks(theirs, size_.measured); blocks.size() > 0) {
      receives_.push_back({peer, block_squares_.data() + blocks.begin, payload(blocks)});
    }
    if (buddy_of(shards_, rank_) == peer && own.size() > 0) {
      sends_.push_back({peer, own_, payload(own)});
    }
    if (own_tail.size() > 0) {
      sends_.push_back({peer, tail_.data() + own_tail.begin, payload(own_tail)});
    }
    if (own_blocks.size() > 0) {
      sends_.push_back({peer, block_squares_.data() + own_blocks.begin, payload(own_blocks)});
    }
  }
}

void ShardedExchange::finish_sum(kernels::cpu::Context& context) {
  if (!reduced_.empty()) sum_.add(context, reduced_.data());
  const ElementRange own = shards_.owned[static_cast<std::size_t>(rank_)];
  const ElementRange tail = tail_of(rank_, shards_.processes());
  std::copy_n(own_ + own.size(), tail.size(), tail_.data() + tail.begin);
  const ElementRange blocks = measured_blocks(own, size_.measured);
  if (blocks.size() == 0) return;
  kernels::cpu::block_squares(context, own.size(), own_, block_squares_.data() + blocks.begin);
}

Status ShardedExchange::log(comm::Communicator& communicator, kernels::cpu::Context& context,
                            std::uint64_t step, MonoTime deadline, const ExchangePoint& point) {
  if (communicator.size() == 1) {
    finish_sum(context);
    return {};
  }
  MUSTER_RETURN_IF_ERROR(sum_.collect(communicator, step, deadline, point));
  finish_sum(context);
  MUSTER_RETURN_IF_ERROR(point ? point("reduced") : Status());
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends_, receives_));
  MUSTER_RETURN_IF_ERROR(point ? point("log") : Status());
  return work->wait(deadline);
}

Status ShardedExchange::confirm(comm::Communicator& communicator, std::uint64_t step,
                                MonoTime deadline, const ExchangePoint& point) {
  if (communicator.size() == 1) return {};
  const std::byte here{1};
  std::vector<std::byte> theirs(static_cast<std::size_t>(communicator.size()));
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    if (peer == rank_) continue;
    sends.push_back({peer, &here, 1});
    receives.push_back({peer, &theirs[static_cast<std::size_t>(peer)], 1});
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("logged") : Status());
  return work->wait(deadline);
}

Status ShardedExchange::gather(comm::Communicator& communicator, std::uint64_t step,
                               std::span<float> parameters, MonoTime deadline,
                               const ExchangePoint& point) {
  if (communicator.size() == 1) return {};
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  const ElementRange own = shards_.owned[static_cast<std::size_t>(rank_)];
  for (int peer = 0; peer < shards_.processes(); ++peer) {
    if (peer == rank_) continue;
    const ElementRange theirs = shards_.owned[static_cast<std::size_t>(peer)];
    if (own.size() > 0 && buddy_of(shards_, rank_) != peer) {
      sends.push_back({peer, parameters.data() + own.begin, payload(own)});
    }
    if (theirs.size() > 0 && buddy_of(shards_, peer) != rank_) {
      receives.push_back({peer, parameters.data() + theirs.begin, payload(theirs)});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator.start(step, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(point ? point("gather") : Status());
  return work->wait(deadline);
}

}  // namespace muster::engine
