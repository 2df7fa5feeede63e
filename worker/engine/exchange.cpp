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

/// What comes from others: their node sums of what `rank` owns, in which it adds, and what they
/// have reduced.
std::size_t memory_for(const Assignment& assignment, int rank, const Reduction& reduction,
                       bool is_added) {
  std::size_t nodes = is_added ? 1 : 0;
  std::size_t received = 0;
  for (int peer = 0; peer < assignment.processes(); ++peer) {
    if (peer != rank) received += assignment.nodes[static_cast<std::size_t>(peer)].size();
  }
  nodes = std::max(nodes, received);
  std::size_t elements = 0;
  for (std::size_t bucket = 0; bucket < reduction.ownership.buckets().count(); ++bucket) {
    for (int owner = 0; owner < assignment.processes(); ++owner) {
      const ElementRange owned = reduction.ownership.of(bucket, owner);
      if (owner == rank) {
        elements += nodes * owned.size();
      } else {
        elements += size_of(updated_part(reduction, rank, owned));
      }
    }
  }
  return elements;
}

}  // namespace

std::uint64_t expected_bytes(const Assignment& assignment, int rank, const Reduction& reduction) {
  const std::uint64_t nodes = assignment.nodes.at(static_cast<std::size_t>(rank)).size();
  std::uint64_t floats = 0;
  for (std::size_t bucket = 0; bucket < reduction.ownership.buckets().count(); ++bucket) {
    const ElementRange own = reduction.ownership.of(bucket, rank);
    for (int peer = 0; peer < assignment.processes(); ++peer) {
      if (peer == rank) continue;
      floats += nodes * reduction.ownership.of(bucket, peer).size();
      floats += size_of(updated_part(reduction, peer, own));
      floats += tail_part(reduction, own).size() + measured_part(reduction, own).size();
    }
  }
  return sizeof(float) * floats;
}

GradientExchange::GradientExchange(const Assignment& assignment, int rank, Reduction reduction,
                                   const std::vector<float*>& nodes, std::vector<float>& memory)
    : reduction_(std::move(reduction)),
      passes_(sum_passes(held_nodes(assignment))),
      memory_(memory),
      tail_(reduction_.ownership.buckets().elements() - reduction_.trained),
      block_squares_(reduction_.is_measured ? blocks_of(reduction_.trained) : 0),
      owns_elements_(!reduction_.ownership.of(rank).empty()),
      buckets_(reduction_.ownership.buckets().count()) {
  MUSTER_CHECK(nodes.size() == assignment.nodes.at(static_cast<std::size_t>(rank)).size());
  MUSTER_CHECK(assignment.processes() == reduction_.ownership.processes());
  const std::size_t size = memory_for(assignment, rank, reduction_, !passes_.empty());
  // Nor is what an earlier division needed kept for good; and there are never both.
  if (memory_.size() < size || memory_.size() / 2 > size) {
    memory_ = std::vector<float>();
    memory_.resize(size);
  }
  const std::vector<HeldNode> held = held_nodes(assignment);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    list_nodes(rank, nodes, held, bucket);
    list_reduced(rank, bucket);
  }
}

float* GradientExchange::take_memory(std::size_t elements) {
  MUSTER_CHECK(memory_taken_ + elements <= memory_.size());
  return memory_.data() + std::exchange(memory_taken_, memory_taken_ + elements);
}

/// A peer's nodes ascend on both sides, so several from one peer match in the order given. Empty
/// pieces are left out on both sides: there may be fewer blocks than processes.
void GradientExchange::list_nodes(int rank, const std::vector<float*>& nodes,
                                  const std::vector<HeldNode>& held, std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  own.owned = reduction_.ownership.of(bucket, rank);
  for (int peer = 0; peer < reduction_.ownership.processes(); ++peer) {
    const ElementRange theirs = reduction_.ownership.of(bucket, peer);
    if (peer == rank || theirs.size() == 0) continue;
    for (const float* node : nodes) {
      own.node_sends.push_back({peer, node + theirs.begin, bytes_of_floats(theirs)});
    }
  }
  if (own.owned.size() == 0) return;
  std::vector<Chunk> chunks;
  std::size_t next = 0;
  for (const HeldNode& node : held) {
    if (node.process == rank) {
      chunks.push_back({nodes[next++] + own.owned.begin, nullptr});
      continue;
    }
    float* const values = take_memory(own.owned.size());
    chunks.push_back({values, values});
    own.node_receives.push_back({node.process, values, bytes_of_floats(own.owned)});
  }
  list_passes(std::move(chunks), own);
}

/// A pass leaves its sum in the place of an input that was received, where it has one; the sum
/// stands for its first input from then on.
void GradientExchange::list_passes(std::vector<Chunk> chunks, Bucket& own) {
  own.reduced = chunks[0].values;
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    auto& inputs = own.inputs.emplace_back();
    float* sum = nullptr;
    for (const int input : passes_[p].inputs) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(input)];
      inputs.push_back(chunk.values);
      if (sum == nullptr) sum = chunk.writable;
    }
    if (sum == nullptr && p + 1 == passes_.size()) sum = take_memory(own.owned.size());
    if (sum == nullptr) sum = between_.emplace_back(own.owned.size()).data();
    own.sums.push_back(sum);
    chunks[static_cast<std::size_t>(passes_[p].inputs[0])] = {sum, sum};
    own.reduced = sum;
  }
}

void GradientExchange::list_reduced(int rank, std::size_t bucket) {
  Bucket& own = buckets_[bucket];
  const ElementRange own_tail = tail_part(reduction_, own.owned);
  const ElementRange own_blocks = measured_part(reduction_, own.owned);
  const auto reduced_of = [&](ElementRange part) {
    return own.reduced + (part.begin - own.owned.begin);
  };
  const ElementRange trained = trained_part(reduction_, own.owned);
  if (trained.size() > 0) owned_gradients_.push_back({trained, reduced_of(trained)});
  for (const ElementRange part : updated_part(reduction_, rank, own.owned)) {
    gradients_.push_back({part, reduced_of(part)});
  }
  for (int peer = 0; peer < reduction_.ownership.processes(); ++peer) {
    if (peer == rank) continue;
    const auto send = [&](ElementRange part, const float* values) {
      if (part.size() > 0) own.sends.push_back({peer, values, bytes_of_floats(part)});
    };
    const auto receive = [&](ElementRange part, float* values) {
      if (part.size() > 0) own.receives.push_back({peer, values, bytes_of_floats(part)});
    };
    const ElementRange theirs = reduction_.ownership.of(bucket, peer);
    for (const ElementRange part : updated_part(reduction_, rank, theirs)) {
      float* const values = take_memory(part.size());
      gradients_.push_back({part, values});
      receive(part, values);
    }
    const ElementRange tail = tail_part(reduction_, theirs);
    receive(tail, tail_.data() + tail.begin);
    const ElementRange blocks = measured_part(reduction_, theirs);
    receive(blocks, block_squares_.data() + blocks.begin);
    for (const ElementRange part : updated_part(reduction_, peer, own.owned)) {
      send(part, reduced_of(part));
    }
    send(own_tail, tail_.data() + own_tail.begin);
    send(own_blocks, block_squares_.data() + own_blocks.begin);
  }
}

void GradientExchange::begin(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, ExchangePoint point) {
  MUSTER_CHECK(communicator.size() == reduction_.ownership.processes());
  for (const Bucket& bucket : buckets_) {
    MUSTER_CHECK_MSG(!bucket.nodes_under_way && !bucket.reduced_under_way,
                     "a sum is begun before the last one has ended");
  }
  communicator_ = &communicator;
  context_ = &context;
  step_ = step;
  point_ = std::move(point);
  sent_ = reduced_ = 0;
  is_last_ = false;
  status_ = Status();
}

void GradientExchange::advance(std::size_t first, MonoTime deadline) {
  const Buckets& buckets = reduction_.ownership.buckets();
  while (status_ && sent_ < buckets_.size() && buckets[sent_].begin >= first) {
    status_ = send_nodes(sent_++);
    if (status_ && sent_ > 1) status_ = reduce(reduced_++, deadline);
  }
}

Status GradientExchange::finish(MonoTime deadline) {
  is_last_ = true;
  advance(0, deadline);
  MUSTER_RETURN_IF_ERROR(status_);
  if (communicator_->size() > 1) MUSTER_RETURN_IF_ERROR(reached("scatter"));
  while (reduced_ < buckets_.size()) MUSTER_RETURN_IF_ERROR(reduce(reduced_++, deadline));
  for (Bucket& bucket : buckets_) {
    if (!bucket.reduced_under_way) continue;
    MUSTER_RETURN_IF_ERROR(bucket.reduced_under_way->wait(deadline));
    bucket.reduced_under_way.reset();
  }
  return {};
}

Status GradientExchange::sum(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, MonoTime deadline, const ExchangePoint& point) {
  begin(communicator, context, step, point);
  return finish(deadline);
}

Status GradientExchange::send_nodes(std::size_t bucket) {
  if (communicator_->size() == 1) return {};
  Bucket& own = buckets_[bucket];
  MUSTER_ASSIGN_OR_RETURN(
      own.nodes_under_way,
      communicator_->start(step_, comm::Memory::kHost, own.node_sends, own.node_receives));
  if (is_overlapped()) own.nodes_under_way->proceed_alone();
  return bucket + 1 < buckets_.size() ? reached("bucket") : Status();
}

Status GradientExchange::reduce(std::size_t bucket, MonoTime deadline) {
  Bucket& own = buckets_[bucket];
  if (own.nodes_under_way) {
    MUSTER_RETURN_IF_ERROR(own.nodes_under_way->wait(deadline));
    own.nodes_under_way.reset();
  }
  add(own);
  if (communicator_->size() == 1) return {};
  const bool is_last = bucket + 1 == buckets_.size();
  if (is_last) MUSTER_RETURN_IF_ERROR(reached("reduced"));
  MUSTER_ASSIGN_OR_RETURN(own.reduced_under_way, communicator_->start(step_, comm::Memory::kHost,
                                                                      own.sends, own.receives));
  if (is_overlapped()) own.reduced_under_way->proceed_alone();
  return is_last ? reached(reduction_.keeping ? "log" : "gather") : Status();
}

void GradientExchange::add(const Bucket& own) {
  if (own.owned.size() == 0) return;
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const auto& order = passes_[p].order;
    kernels::cpu::sum_nodes(*context_, own.inputs[p].data(), order.data(), order.size(),
                            own.owned.size(), own.sums[p]);
  }
  const ElementRange trained = trained_part(reduction_, own.owned);
  const ElementRange tail = tail_part(reduction_, own.owned);
  std::copy_n(own.reduced + trained.size(), tail.size(), tail_.data() + tail.begin);
  const ElementRange blocks = measured_part(reduction_, own.owned);
  if (blocks.size() == 0) return;
  kernels::cpu::block_squares(*context_, trained.size(), own.reduced,
                              block_squares_.data() + blocks.begin);
}

}  // namespace muster::engine
