#include "worker/engine/stage_state.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/block_parts.h"

namespace muster::engine {
namespace {

/// Copies elements from `first` on out of gradients that lie in pieces, ascending.
void read_gradients(std::span<const Gradient> gradients, std::size_t first,
                    std::span<float> elements) {
  const ElementRange wanted{first, first + elements.size()};
  auto piece = std::upper_bound(
      gradients.begin(), gradients.end(), first,
      [](std::size_t at, const Gradient& gradient) { return at < gradient.range.end; });
  for (; piece != gradients.end() && piece->range.begin < wanted.end; ++piece) {
    const ElementRange both = intersection(piece->range, wanted);
    std::copy_n(piece->values + (both.begin - piece->range.begin), both.size(),
                elements.data() + (both.begin - first));
  }
}

/// A stretch of one of a stage's buffers, and where it lies in the whole model's. Buffer 0 are the
/// values, the others what the optimiser keeps.
struct StatePart {
  std::size_t buffer = 0, whole = 0, own = 0, size = 0;
};

std::vector<StatePart> state_parts(const StageGroup& group, std::size_t stage,
                                   std::size_t optimizer_buffers) {
  std::vector<StatePart> all;
  const ModelShape& shape = group.plan.stages[stage].shape;
  for (std::size_t b = 0; b <= optimizer_buffers; ++b) {
    for (const StageStretch& stretch : stretches_of(shape, group.whole)) {
      // Running statistics have no optimiser's state.
      if (b > 0 && stretch.own >= shape.parameters()) continue;
      all.push_back({b, stretch.whole.begin, stretch.own, stretch.whole.size()});
    }
  }
  return all;
}

std::vector<float*> buffers_of(std::span<float> values, OptimizerState& optimizer) {
  std::vector<float*> all{values.data()};
  for (auto& buffer : optimizer.buffers) all.push_back(buffer.values.data());
  return all;
}

Status move_parts(const StageGroup& group, std::span<const comm::SendBuffer> sends,
                  std::span<const comm::ReceiveBuffer> receives, const Meeting& meeting) {
  MUSTER_ASSIGN_OR_RETURN(
      const auto work, group.processes.start(meeting.stamp, comm::Memory::kHost, sends, receives));
  return work->wait(meeting.deadline);
}

}  // namespace

Result<Sha256Digest> hash_of_stages(const StageGroup& group, std::span<const float> values,
                                    const Meeting& meeting) {
  BlockItem item;
  item.bytes = sizeof(Sha256Digest);
  item.make = [](std::span<const float> block, std::byte* to) {
    const Sha256Digest digest = block_digests(block)[0];
    std::memcpy(to, digest.data(), sizeof digest);
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    std::copy_n(values.data() + first, elements.size(), elements.data());
  };
  MUSTER_ASSIGN_OR_RETURN(const auto items,
                          gather_items(block_parts(group.plan, group.whole, group.whole.values()),
                                       item, group.processes, meeting.stamp, meeting.deadline));
  std::vector<Sha256Digest> digests(items.size() / sizeof(Sha256Digest));
  std::memcpy(digests.data(), items.data(), items.size());
  return combine(digests);
}

Result<std::vector<float>> squares_of_stages(const StageGroup& group,
                                             kernels::cpu::Context& context,
                                             std::span<const Gradient> gradients,
                                             const Meeting& meeting) {
  std::vector<Gradient> ascending(gradients.begin(), gradients.end());
  std::sort(ascending.begin(), ascending.end(),
            [](const Gradient& a, const Gradient& b) { return a.range.begin < b.range.begin; });
  BlockItem item;
  item.bytes = sizeof(float);
  item.make = [&](std::span<const float> block, std::byte* to) {
    float square = 0;
    kernels::cpu::block_squares(context, block.size(), block.data(), &square);
    std::memcpy(to, &square, sizeof square);
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    read_gradients(ascending, first, elements);
  };
  MUSTER_ASSIGN_OR_RETURN(
      const auto items, gather_items(block_parts(group.plan, group.whole, group.whole.parameters()),
                                     item, group.processes, meeting.stamp, meeting.deadline));
  std::vector<float> squares(items.size() / sizeof(float));
  std::memcpy(squares.data(), items.data(), items.size());
  return squares;
}

WholeState whole_like(const ModelShape& whole, const OptimizerState& optimizer) {
  WholeState state;
  state.values.resize(whole.values());
  state.optimizer = laid_out(laid_out(optimizer, {}), {{0, whole.parameters()}});
  state.optimizer.held = state.optimizer.room;
  return state;
}

void take_stage(const ModelShape& whole, const ModelShape& stage,
                std::span<const float> whole_values, std::span<float> values) {
  for (const StageStretch& stretch : stretches_of(stage, whole)) {
    std::copy_n(whole_values.data() + stretch.whole.begin, stretch.whole.size(),
                values.data() + stretch.own);
  }
}

Result<std::optional<WholeState>> collect_stages(const StageGroup& group,
                                                 std::span<const float> values,
                                                 const OptimizerState* optimizer,
                                                 const Meeting& meeting) {
  std::optional<WholeState> whole;
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  const std::size_t buffers = optimizer != nullptr ? optimizer->buffers.size() : 0;
  std::vector<const float*> own{values.data()};
  for (std::size_t b = 0; b < buffers; ++b) own.push_back(optimizer->buffers[b].values.data());
  if (group.stage() > 0) {
    for (const StatePart& part : state_parts(group, group.stage(), buffers)) {
      sends.push_back({0, own[part.buffer] + part.own, part.size * sizeof(float)});
    }
  } else {
    whole = whole_like(group.whole, optimizer != nullptr ? *optimizer : OptimizerState());
    const auto into = buffers_of(whole->values, whole->optimizer);
    for (const StatePart& part : state_parts(group, 0, buffers)) {
      std::copy_n(own[part.buffer] + part.own, part.size, into[part.buffer] + part.whole);
    }
    for (std::size_t from = 1; from < group.plan.stages.size(); ++from) {
      for (const StatePart& part : state_parts(group, from, buffers)) {
        receives.push_back(
            {static_cast<int>(from), into[part.buffer] + part.whole, part.size * sizeof(float)});
      }
    }
  }
  MUSTER_RETURN_IF_ERROR(move_parts(group, sends, receives, meeting));
  return whole;
}

Status deal_stages(const StageGroup& group, std::span<float> values, OptimizerState& optimizer,
                   const WholeState* whole, const Meeting& meeting) {
  MUSTER_CHECK((whole != nullptr) == (group.stage() == 0));
  const auto own = buffers_of(values, optimizer);
  const std::size_t buffers = optimizer.buffers.size();
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  if (whole != nullptr) {
    std::vector<const float*> from{whole->values.data()};
    for (const auto& buffer : whole->optimizer.buffers) from.push_back(buffer.values.data());
    for (const StatePart& part : state_parts(group, 0, buffers)) {
      std::copy_n(from[part.buffer] + part.whole, part.size, own[part.buffer] + part.own);
    }
    for (std::size_t to = 1; to < group.plan.stages.size(); ++to) {
      for (const StatePart& part : state_parts(group, to, buffers)) {
        sends.push_back(
            {static_cast<int>(to), from[part.buffer] + part.whole, part.size * sizeof(float)});
      }
    }
    for (std::size_t i = 0; i < optimizer.scalars.size(); ++i) {
      optimizer.scalars[i].value = whole->optimizer.scalars[i].value;
    }
  } else {
    for (const StatePart& part : state_parts(group, group.stage(), buffers)) {
      receives.push_back({0, own[part.buffer] + part.own, part.size * sizeof(float)});
    }
  }
  MUSTER_RETURN_IF_ERROR(move_parts(group, sends, receives, meeting));
  std::vector<double> powers;
  for (const auto& scalar : optimizer.scalars) powers.push_back(scalar.value);
  MUSTER_RETURN_IF_ERROR(comm::broadcast(group.processes, meeting.stamp, 0,
                                         std::as_writable_bytes(std::span(powers)),
                                         meeting.deadline));
  for (std::size_t i = 0; i < powers.size(); ++i) optimizer.scalars[i].value = powers[i];
  return {};
}

}  // namespace muster::engine
