#include "worker/engine/exchange.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace muster::engine {
namespace {

std::size_t bytes_of_floats(ElementRange range) { return range.size() * sizeof(float); }

ElementRange trained_part(const Reduction& reduction, ElementRange range) {
  return intersection(range, {0, reduction.trained});
}

/// Counted from the first element of the tail.
ElementRange tail_part(const Reduction& reduction, ElementRange range) {
  const std::size_t elements = reduction.ownership.buckets().elements();
  const ElementRange part = intersection(range, {reduction.trained, elements});
  if (part.size() == 0) return {};
  return {part.begin - reduction.trained, part.end - reduction.trained};
}

/// Blocks. One of the tail alone has no measured elements.
ElementRange measured_part(const Reduction& reduction, ElementRange range) {
  if (!reduction.is_measured) return {};
  const auto block = [&](std::size_t at) { return blocks_of(std::min(at, reduction.trained)); };
  return {block(range.begin), block(range.end)};
}

/// What of a stretch `rank` makes the update of.
Ranges updated_part(const Reduction& reduction, int rank, ElementRange range) {
  const ElementRange trained = trained_part(reduction, range);
  if (trained.size() == 0) return {};
  if (!reduction.keeping) return {trained};
  return within(reduction.keeping->kept[static_cast<std::size_t>(rank)], trained);
}

/// Whether the node is added up on its host before `owner` is sent it.
bool is_made_for(const Reduction& reduction, int owner, const HostNode& node) {
  return node.is_made() && !reduction.hosts.are_together(owner, node.holders[0]);
}

std::size_t parts_of(const HostNode& node, int rank) {
  return static_cast<std::size_t>(std::ranges::count(node.parts, rank, &HeldNode::process));
}

/// The nodes in which `owner` adds up the sum. Where one is made by several in turn the first of
/// them stands for all.
std::vector<HeldNode> nodes_added(const Reduction& reduction, const std::vector<HostNode>& nodes,
                                  int owner) {
  std::vector<HeldNode> added;
  for (const HostNode& node : nodes) {
    if (is_made_for(reduction, owner, node)) {
      added.push_back({node.holders[0], node.ranks});
    } else {
      added.insert(added.end(), node.parts.begin(), node.parts.end());
    }
  }
  return added;
}

/// What comes from others: node sums of what `rank` adds up, for itself or for others, in which it
/// adds, and what they have reduced.
std::size_t memory_for(const Reduction& reduction, const std::vector<HostNode>& nodes, int rank) {
  const std::vector<HeldNode> added = nodes_added(reduction, nodes, rank);
  const auto received =
      std::ranges::count_if(added, [&](const HeldNode& node) { return node.process != rank; });
  const std::size_t chunks =
      std::max<std::size_t>(added.size() > 1 ? 1 : 0, static_cast<std::size_t>(received));
  std::vector<const HostNode*> shared;
  for (const HostNode& node : nodes) {
    if (node.is_made() && parts_of(node, rank) > 0) shared.push_back(&node);
  }
  std::size_t elements = 0;
  for (std::size_t bucket = 0; bucket < reduction.ownership.buckets().count(); ++bucket) {
    elements += chunks * reduction.ownership.of(bucket, rank).size();
    for (int owner = 0; owner < reduction.ownership.processes(); ++owner) {
      if (owner == rank) continue;
      const ElementRange owned = reduction.ownership.of(bucket, owner);
      elements += size_of(updated_part(reduction, rank, owned));
      for (const HostNode* node : shared) {
        if (!is_made_for(reduction, owner, *node)) continue;
        if (node->maker(turn_of(owner, bucket)) != rank) continue;
        elements += (node->parts.size() - parts_of(*node, rank)) * owned.size();
      }
    }
  }
  return elements;
}

}  // namespace

GradientExchange::GradientExchange(const Assignment& assignment, int rank, Reduction reduction,
                                   const std::vector<float*>& nodes, std::vector<float>& memory)
    : reduction_(std::move(reduction)),
      rank_(rank),
      is_by_hosts_(reduction_.hosts.is_any_shared()),
      beside_(reduction_.hosts.beside(rank)),
      nodes_(host_nodes(assignment, reduction_.hosts)),
      passes_(sum_passes(nodes_added(reduction_, nodes_, rank))),
      memory_(memory),
      tail_(reduction_.ownership.buckets().elements() - reduction_.trained),
      block_squares_(reduction_.is_measured ? blocks_of(reduction_.trained) : 0),
      owns_elements_(!reduction_.ownership.of(rank).empty()),
      buckets_(reduction_.ownership.buckets().count()) {
  MUSTER_CHECK(nodes.size() == assignment.nodes.at(static_cast<std::size_t>(rank)).size());
  MUSTER_CHECK(assignment.processes() == reduction_.ownership.processes());
  const std::size_t size = memory_for(reduction_, nodes_, rank);
  // Nor is what an earlier division needed kept for good; and there are never both.
  if (memory_.size() < size || memory_.size() / 2 > size) {
    memory_ = std::vector<float>();
    memory_.resize(size);
  }
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    if (parts_of(nodes_[k], rank) == 0) continue;
    held_nodes_.push_back(k);
    host_passes_.push_back(nodes_[k].is_made() ? sum_passes(nodes_[k].parts)
                                               : std::vector<SumPass>());
  }
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    list_nodes(nodes, bucket);
    list_reduced(bucket);
  }
}

float* GradientExchange::take_memory(std::size_t elements) {
  MUSTER_CHECK(memory_taken_ + elements <= memory_.size());
  return memory_.data() + std::exchange(memory_taken_, memory_taken_ + elements);
}

/// Whoever two processes send for, they list owners, and nodes of each, in ascending order on both
/// sides, so several from one peer match in the order given. Empty pieces are left out on both
/// sides: there may be fewer blocks than processes.
void GradientExchange::list_nodes(const std::vector<float*>& nodes, std::size_t bucket) {
  buckets_[bucket].owned = reduction_.ownership.of(bucket, rank_);
  for (int owner = 0; owner < reduction_.ownership.processes(); ++owner) {
    if (owner != rank_) list_for_owner(nodes, owner, bucket);
  }
  if (buckets_[bucket].owned.size() > 0) list_owned(nodes, bucket);
}

/// What this process sends, and makes, of what another adds up.
void GradientExchange::list_for_owner(const std::vector<float*>& nodes, int owner,
                                      std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  const ElementRange theirs = reduction_.ownership.of(bucket, owner);
  if (theirs.size() == 0) return;
  const std::size_t bytes = bytes_of_floats(theirs);
  std::size_t next = 0;  // of the nodes that this process holds
  for (std::size_t k = 0; k < held_nodes_.size(); ++k) {
    const HostNode& node = nodes_[held_nodes_[k]];
    const bool is_made = is_made_for(reduction_, owner, node);
    const int maker = node.maker(turn_of(owner, bucket));
    std::vector<Chunk> chunks;
    for (const HeldNode& part : node.parts) {
      const bool is_own = part.process == rank_;
      const float* const values = is_own ? nodes[next++] + theirs.begin : nullptr;
      if (!is_made) {
        if (is_own) own.nodes.sends.push_back({owner, values, bytes});
      } else if (maker == rank_) {
        float* const received = is_own ? nullptr : take_memory(theirs.size());
        chunks.push_back({is_own ? values : received, received});
        if (!is_own) own.to_makers.receives.push_back({part.process, received, bytes});
      } else if (is_own) {
        own.to_makers.sends.push_back({maker, values, bytes});
      }
    }
    if (chunks.empty()) continue;
    own.host_sums.push_back(list_passes(std::move(chunks), theirs.size(), host_passes_[k]));
    own.nodes.sends.push_back({owner, own.host_sums.back().result, bytes});
  }
}

/// What this process adds up.
void GradientExchange::list_owned(const std::vector<float*>& nodes, std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  std::vector<Chunk> chunks;
  const auto receive = [&](int from) {
    float* const values = take_memory(own.owned.size());
    chunks.push_back({values, values});
    own.nodes.receives.push_back({from, values, bytes_of_floats(own.owned)});
  };
  std::size_t next = 0;
  for (const HostNode& node : nodes_) {
    if (is_made_for(reduction_, rank_, node)) {
      receive(node.maker(turn_of(rank_, bucket)));
      continue;
    }
    for (const HeldNode& part : node.parts) {
      if (part.process == rank_) {
        chunks.push_back({nodes[next++] + own.owned.begin, nullptr});
      } else {
        receive(part.process);
      }
    }
  }
  own.sum = list_passes(std::move(chunks), own.owned.size(), passes_);
}

/// A pass leaves its sum in the place of an input that was received, where it has one; the sum
/// stands for its first input from then on.
GradientExchange::Addition GradientExchange::list_passes(std::vector<Chunk> chunks,
                                                         std::size_t elements,
                                                         const std::vector<SumPass>& passes) {
  Addition own{&passes, elements, {}, {}, chunks[0].values};
  for (std::size_t p = 0; p < passes.size(); ++p) {
    auto& inputs = own.inputs.emplace_back();
    float* sum = nullptr;
    for (const int input : passes[p].inputs) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(input)];
      inputs.push_back(chunk.values);
      if (sum == nullptr) sum = chunk.writable;
    }
    if (sum == nullptr && p + 1 == passes.size()) sum = take_memory(elements);
    if (sum == nullptr) sum = between_.emplace_back(elements).data();
    own.sums.push_back(sum);
    chunks[static_cast<std::size_t>(passes[p].inputs[0])] = {sum, sum};
    own.result = sum;
  }
  return own;
}

/// What comes out of an owner's sum goes to all but for the gradient where not all update all: that
/// is sent to each who does by its owner, because copies of one shard are on different workers.
void GradientExchange::list_reduced(std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  const auto reduced_of = [&](ElementRange part) {
    return own.sum.result + (part.begin - own.owned.begin);
  };
  const ElementRange trained = trained_part(reduction_, own.owned);
  if (trained.size() > 0) owned_gradients_.push_back({trained, reduced_of(trained)});
  std::vector<comm::SendBuffer> for_all;
  const auto tell_all = [&](ElementRange part, const float* values) {
    if (part.size() > 0) for_all.push_back({-1, values, bytes_of_floats(part)});
  };
  for (const ElementRange part : updated_part(reduction_, rank_, own.owned)) {
    gradients_.push_back({part, reduced_of(part)});
  }
  if (!reduction_.keeping && trained.size() > 0) tell_all(trained, reduced_of(trained));
  const ElementRange tail = tail_part(reduction_, own.owned);
  tell_all(tail, tail_.data() + tail.begin);
  const ElementRange blocks = measured_part(reduction_, own.owned);
  tell_all(blocks, block_squares_.data() + blocks.begin);
  for (int peer = 0; peer < reduction_.ownership.processes(); ++peer) {
    if (peer == rank_) continue;
    list_reduced_of(peer, bucket);
    if (reduction_.keeping) {
      for (const ElementRange part : updated_part(reduction_, peer, own.owned)) {
        own.reduced.sends.push_back({peer, reduced_of(part), bytes_of_floats(part)});
      }
    }
    if (taken_first_by(peer, rank_, bucket) != peer) continue;
    for (comm::SendBuffer& piece : for_all) {
      piece.peer = peer;
      own.reduced.sends.push_back(piece);
    }
  }
}

/// Who of the host of `rank` is sent what `owner` has for all of it.
int GradientExchange::taken_first_by(int rank, int owner, std::size_t bucket) const {
  if (reduction_.hosts.are_together(rank, owner)) return rank;
  return reduction_.hosts.first_of(rank, turn_of(owner, bucket));
}

/// What comes from another owner.
void GradientExchange::list_reduced_of(int owner, std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  const ElementRange theirs = reduction_.ownership.of(bucket, owner);
  std::vector<comm::ReceiveBuffer> for_all;
  const auto told_all = [&](ElementRange part, float* values) {
    if (part.size() > 0) for_all.push_back({owner, values, bytes_of_floats(part)});
  };
  for (const ElementRange part : updated_part(reduction_, rank_, theirs)) {
    float* const values = take_memory(part.size());
    gradients_.push_back({part, values});
    if (!reduction_.keeping) told_all(part, values);
    if (reduction_.keeping) own.reduced.receives.push_back({owner, values, bytes_of_floats(part)});
  }
  const ElementRange tail = tail_part(reduction_, theirs);
  told_all(tail, tail_.data() + tail.begin);
  const ElementRange blocks = measured_part(reduction_, theirs);
  told_all(blocks, block_squares_.data() + blocks.begin);
  const int first = taken_first_by(rank_, owner, bucket);
  for (const comm::ReceiveBuffer& piece : for_all) {
    if (first != rank_) {
      own.given_on.receives.push_back({first, piece.data, piece.bytes});
      continue;
    }
    own.reduced.receives.push_back(piece);
    if (reduction_.hosts.are_together(rank_, owner)) continue;
    for (const int other : beside_) {
      if (other != rank_) own.given_on.sends.push_back({other, piece.data, piece.bytes});
    }
  }
}

void GradientExchange::begin(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, ExchangePoint point) {
  MUSTER_CHECK(communicator.size() == reduction_.ownership.processes());
  for (const Bucket& bucket : buckets_) {
    for (const Transfers* group :
         {&bucket.to_makers, &bucket.nodes, &bucket.reduced, &bucket.given_on}) {
      MUSTER_CHECK_MSG(!group->under_way, "a sum is begun before the last one has ended");
    }
  }
  communicator_ = &communicator;
  context_ = &context;
  step_ = step;
  point_ = std::move(point);
  round_ = 0;
  is_last_ = false;
  status_ = Status();
}

void GradientExchange::advance(std::size_t first, MonoTime deadline) {
  const Buckets& buckets = reduction_.ownership.buckets();
  while (status_ && round_ < buckets_.size() && buckets[round_].begin >= first) {
    status_ = make_round(round_++, deadline);
  }
}

/// The next group of several buckets, the same ones on all processes: of the newest its first one,
/// of the one before its second, and so on.
Status GradientExchange::make_round(std::size_t round, MonoTime deadline) {
  const auto bucket = [&](std::size_t behind) -> Bucket* {
    return round >= behind && round - behind < buckets_.size() ? &buckets_[round - behind]
                                                               : nullptr;
  };
  const std::size_t later = is_by_hosts_ ? 1 : 0;
  if (is_by_hosts_ && bucket(0) != nullptr) {
    MUSTER_RETURN_IF_ERROR(start(bucket(0)->to_makers));
    MUSTER_RETURN_IF_ERROR(reached_bucket(*bucket(0)));
  }
  if (Bucket* const own = bucket(later)) MUSTER_RETURN_IF_ERROR(send_nodes(*own, deadline));
  if (Bucket* const own = bucket(later + 1)) MUSTER_RETURN_IF_ERROR(reduce(*own, deadline));
  if (Bucket* const own = is_by_hosts_ ? bucket(3) : nullptr) {
    MUSTER_RETURN_IF_ERROR(end(own->reduced, deadline));
    MUSTER_RETURN_IF_ERROR(start(own->given_on));
  }
  return {};
}

Status GradientExchange::finish(MonoTime deadline) {
  is_last_ = true;
  advance(0, deadline);
  MUSTER_RETURN_IF_ERROR(status_);
  if (communicator_->size() > 1) MUSTER_RETURN_IF_ERROR(reached("scatter"));
  while (round_ < rounds()) MUSTER_RETURN_IF_ERROR(make_round(round_++, deadline));
  for (Bucket& bucket : buckets_) {
    MUSTER_RETURN_IF_ERROR(end(is_by_hosts_ ? bucket.given_on : bucket.reduced, deadline));
  }
  return {};
}

Status GradientExchange::sum(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, MonoTime deadline, const ExchangePoint& point) {
  begin(communicator, context, step, point);
  return finish(deadline);
}

Status GradientExchange::start(Transfers& transfers) {
  MUSTER_ASSIGN_OR_RETURN(
      transfers.under_way,
      communicator_->start(step_, comm::Memory::kHost, transfers.sends, transfers.receives));
  if (is_overlapped()) transfers.under_way->proceed_alone();
  return {};
}

/// Of one process alone nothing is under way.
Status GradientExchange::end(Transfers& transfers, MonoTime deadline) {
  if (!transfers.under_way) return {};
  MUSTER_RETURN_IF_ERROR(transfers.under_way->wait(deadline));
  transfers.under_way.reset();
  return {};
}

Status GradientExchange::send_nodes(Bucket& bucket, MonoTime deadline) {
  if (communicator_->size() == 1) return {};
  MUSTER_RETURN_IF_ERROR(end(bucket.to_makers, deadline));
  for (const Addition& one : bucket.host_sums) add(one);
  MUSTER_RETURN_IF_ERROR(start(bucket.nodes));
  return is_by_hosts_ ? Status() : reached_bucket(bucket);
}

Status GradientExchange::reduce(Bucket& bucket, MonoTime deadline) {
  MUSTER_RETURN_IF_ERROR(end(bucket.nodes, deadline));
  add_owned(bucket);
  if (communicator_->size() == 1) return {};
  const bool is_last = &bucket == &buckets_.back();
  if (is_last) MUSTER_RETURN_IF_ERROR(reached("reduced"));
  MUSTER_RETURN_IF_ERROR(start(bucket.reduced));
  return is_last ? reached(reduction_.keeping ? "log" : "gather") : Status();
}

void GradientExchange::add(const Addition& addition) {
  for (std::size_t p = 0; p < addition.passes->size(); ++p) {
    const auto& order = (*addition.passes)[p].order;
    kernels::cpu::sum_nodes(*context_, addition.inputs[p].data(), order.data(), order.size(),
                            addition.elements, addition.sums[p]);
  }
}

void GradientExchange::add_owned(const Bucket& own) {
  if (own.owned.size() == 0) return;
  add(own.sum);
  const ElementRange trained = trained_part(reduction_, own.owned);
  const ElementRange tail = tail_part(reduction_, own.owned);
  std::copy_n(own.sum.result + trained.size(), tail.size(), tail_.data() + tail.begin);
  const ElementRange blocks = measured_part(reduction_, own.owned);
  if (blocks.size() == 0) return;
  kernels::cpu::block_squares(*context_, trained.size(), own.sum.result,
                              block_squares_.data() + blocks.begin);
}

}  // namespace muster::engine
