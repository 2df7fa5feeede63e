#include "worker/engine/stage_state.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "worker/engine/block_hash.h"

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

std::vector<StatePart> state_parts(const ModelShape& shape,
                                   const std::vector<StageStretch>& stretches,
                                   std::size_t optimizer_buffers) {
  std::vector<StatePart> all;
  for (std::size_t b = 0; b <= optimizer_buffers; ++b) {
    for (const StageStretch& stretch : stretches) {
      // Running statistics have no optimiser's state.
      if (b > 0 && stretch.own >= shape.parameters()) continue;
      all.push_back({b, stretch.whole.begin, stretch.own, stretch.whole.size()});
    }
  }
  return all;
}

/// Pieces after which the reader lets the others know that it gets on.
constexpr std::size_t kPiecesTold = 8;

Status move_parts(comm::Communicator& processes, std::span<const comm::SendBuffer> sends,
                  std::span<const comm::ReceiveBuffer> receives, const Meeting& meeting) {
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          processes.start(meeting.stamp, comm::Memory::kHost, sends, receives));
  return work->wait(meeting.deadline);
}

}  // namespace

Result<Sha256Digest> hash_of_stages(const StageGroup& group, kernels::cpu::Context& context,
                                    std::span<const float> values, const Meeting& meeting) {
  BlockItem item;
  item.bytes = sizeof(Sha256Digest);
  item.make = [&](std::span<const std::span<const float>> blocks, std::byte* to) {
    const auto digests = block_digests(blocks, context);
    std::ranges::copy(std::as_bytes(std::span(digests)), to);
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    std::copy_n(values.data() + first, elements.size(), elements.data());
  };
  MUSTER_ASSIGN_OR_RETURN(const auto items, gather_items(group.hashed, item, group.processes,
                                                         meeting.stamp, meeting.deadline));
  std::vector<Sha256Digest> digests(items.size() / sizeof(Sha256Digest));
  std::memcpy(digests.data(), items.data(), items.size());
  return combine(digests);
}

Result<std::vector<float>> squares_of_parts(const BlockPlan& plan, comm::Communicator& processes,
                                            kernels::cpu::Context& context,
                                            std::span<const Gradient> gradients,
                                            const Meeting& meeting) {
  std::vector<Gradient> ascending(gradients.begin(), gradients.end());
  std::sort(ascending.begin(), ascending.end(),
            [](const Gradient& a, const Gradient& b) { return a.range.begin < b.range.begin; });
  BlockItem item;
  item.bytes = sizeof(float);
  item.make = [&](std::span<const std::span<const float>> blocks, std::byte* to) {
    for (const auto block : blocks) {
      float square = 0;
      kernels::cpu::block_squares(context, block.size(), block.data(), &square);
      std::memcpy(to, &square, sizeof square);
      to += sizeof square;
    }
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    read_gradients(ascending, first, elements);
  };
  MUSTER_ASSIGN_OR_RETURN(const auto items,
                          gather_items(plan, item, processes, meeting.stamp, meeting.deadline));
  std::vector<float> squares(items.size() / sizeof(float));
  std::memcpy(squares.data(), items.data(), items.size());
  return squares;
}

Status take_stage(const ModelShape& whole, const ModelShape& part, const ReadWhole& read,
                  std::span<float> values) {
  for (const StageStretch& stretch : stretches_of(part, whole)) {
    MUSTER_RETURN_IF_ERROR(read(stretch.whole, values.subspan(stretch.own, stretch.whole.size())));
  }
  return {};
}

std::vector<StatePart> state_parts(const ModelShape& part, const ModelShape& whole,
                                   std::size_t optimizer_buffers) {
  return state_parts(part, counted_stretches_of(part, whole), optimizer_buffers);
}

PartsSource::PartsSource(const ModelShape& whole, const StateParts& parts, std::uint64_t stamp,
                         std::function<MonoTime()> deadline)
    : processes_(parts.processes),
      reader_(parts.reader),
      stamp_(stamp),
      deadline_(std::move(deadline)),
      own_(parts.own),
      pieces_(state_pieces(whole, parts.own.size() - 1)) {
  for (int process = 0; process < processes_.size(); ++process) {
    if (!is_reader() && process != processes_.rank()) continue;
    for (const StatePart& part : parts.by_process[static_cast<std::size_t>(process)]) {
      parts_.push_back({process, part});
    }
  }
  std::ranges::sort(parts_, {}, &PlacedPart::position);
}

std::size_t PartsSource::bytes(const StagePlan& plan, std::size_t optimizer_buffers) {
  std::size_t listed = 0, piece = 0;
  for (int place = 0; place < plan.places(); ++place) {
    listed += counted_stretches_most(plan.part(place)) * (1 + optimizer_buffers);
  }
  for (const Stage& stage : plan.stages) {
    piece = std::max(piece, state_pieces(stage.shape, 0).front().range.size());
  }
  return listed * (sizeof(StatePart) + sizeof(PlacedPart)) + piece * sizeof(float);
}

Result<std::span<const float>> PartsSource::read(const StatePiece& piece) {
  MUSTER_CHECK(moved_ < pieces_.size() && pieces_[moved_].buffer == piece.buffer &&
               pieces_[moved_].range == piece.range);
  MUSTER_RETURN_IF_ERROR(move(piece));
  return std::span<const float>(values_);
}

Status PartsSource::finish() {
  while (moved_ < pieces_.size()) MUSTER_RETURN_IF_ERROR(move(pieces_[moved_]));
  return {};
}

Status PartsSource::move(const StatePiece& piece) {
  // Of more processes after more pieces: else the news would take longer than the state.
  const auto between = kPiecesTold * (1 + static_cast<std::size_t>(processes_.size()) / 64);
  if (moved_ > 0 && moved_ % between == 0) {
    std::byte told{1};
    MUSTER_RETURN_IF_ERROR(
        comm::broadcast(processes_, stamp_, reader_, std::span(&told, 1), deadline_()));
  }
  ++moved_;
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  if (is_reader()) values_.resize(piece.range.size());
  // The last one that begins before the piece may reach into it.
  auto next = std::ranges::upper_bound(parts_, std::pair(piece.buffer, piece.range.begin), {},
                                       &PlacedPart::position);
  if (next != parts_.begin()) --next;
  for (; next != parts_.end() && next->position() < std::pair(piece.buffer, piece.range.end);
       ++next) {
    const StatePart& part = next->part;
    const ElementRange both = intersection(piece.range, {part.whole, part.whole + part.size});
    if (part.buffer != piece.buffer || both.size() == 0) continue;
    const std::size_t bytes = both.size() * sizeof(float);
    float* const into = is_reader() ? values_.data() + (both.begin - piece.range.begin) : nullptr;
    if (next->process != processes_.rank()) {
      receives.push_back({next->process, into, bytes});
      continue;
    }
    const float* const own = own_[part.buffer] + part.own + (both.begin - part.whole);
    if (is_reader()) {
      std::copy_n(own, both.size(), into);
    } else {
      sends.push_back({reader_, own, bytes});
    }
  }
  return move_parts(processes_, sends, receives, {stamp_, deadline_()});
}

Status deal_stages(const StageGroup& group, std::span<float> values, OptimizerState& optimizer,
                   const SavedState* whole, const Meeting& meeting) {
  MUSTER_CHECK((whole != nullptr) == (group.place() == 0));
  std::vector<float*> own{values.data()};
  for (auto& buffer : optimizer.buffers) own.push_back(buffer.values.data());
  const std::size_t buffers = optimizer.buffers.size();
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  const auto parts_of = [&](int place) {
    const ModelShape& shape = group.plan.part(place);
    return state_parts(shape, stretches_of(shape, group.whole), buffers);
  };
  for (const StatePart& part : parts_of(group.place())) {
    float* const into = own[part.buffer] + part.own;
    if (whole == nullptr) {
      receives.push_back({0, into, part.size * sizeof(float)});
    } else {
      const auto from = part.buffer == 0 ? whole->parameters : whole->buffers[part.buffer - 1];
      MUSTER_RETURN_IF_ERROR(whole->read(from.subspan(part.whole, part.size), {into, part.size}));
    }
  }
  for (int to = 1; whole != nullptr && to < group.plan.places(); ++to) {
    for (const StatePart& part : parts_of(to)) {
      const auto from = part.buffer == 0 ? whole->parameters : whole->buffers[part.buffer - 1];
      sends.push_back({to, from.data() + part.whole, part.size * sizeof(float)});
    }
  }
  MUSTER_RETURN_IF_ERROR(move_parts(group.processes, sends, receives, meeting));
  std::vector<double> powers(optimizer.scalars.size());
  if (whole != nullptr) powers = whole->scalars;
  MUSTER_RETURN_IF_ERROR(comm::broadcast(group.processes, meeting.stamp, 0,
                                         std::as_writable_bytes(std::span(powers)),
                                         meeting.deadline));
  for (std::size_t i = 0; i < powers.size(); ++i) optimizer.scalars[i].value = powers[i];
  return {};
}

}  // namespace muster::engine
