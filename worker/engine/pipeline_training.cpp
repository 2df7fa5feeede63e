#include "worker/engine/pipeline_training.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/memory_needs.h"
#include "worker/engine/record.h"
#include "worker/engine/schedule.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

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

Error not_finite(std::int64_t step, const char* what, float value) {
  return Error(ErrorCode::kInvalid,
               "step " + std::to_string(step) + ": the " + what + " is " + decimal(value))
      .with_exit_code(contract::exit_code::kNumerics);
}

}  // namespace

PipelineTraining::PipelineTraining(const TrainingConfig& config, ModelShape whole, StagePlan plan,
                                   PipelinePlace place, const Clock& clock)
    : config_(config),
      whole_(std::move(whole)),
      plan_(std::move(plan)),
      place_(place),
      clock_(clock),
      context_(std::max(1, config.threads),
               config.is_bfloat16 ? kernels::Products::kBfloat16 : kernels::Products::kFloat32),
      values_(shape().values()),
      optimizer_(config, shape().parameters()),
      sums_(shape().values() + kStageTailSize) {
  MUSTER_CHECK(place.group.size() == plan_.size());
  initialise(shape(), config.seed, values_);
  const auto rank = static_cast<std::size_t>(place.copies.rank());
  const auto assignment = assign(config.logical_ranks, place.copies.size());
  MUSTER_CHECK(assignment.has_value());
  const auto rows = static_cast<std::size_t>(config.batch_size / config.logical_ranks);
  StageWork work;
  work.nodes = assignment->nodes[rank];
  work.rows_per_rank = rows;
  work.targets = whole_.targets();
  work.ranks_at_once = ranks_at_once_ = choose_ranks(*assignment, rows);
  if (config.recomputes_activations) work.activations = Activations::kRecomputed;
  sums_.hold(work.nodes);
  std::vector<float*> nodes;
  for (std::size_t k = 0; k < sums_.count(); ++k) nodes.push_back(sums_.buffer(k).data());
  computation_.emplace(plan_, place.group.rank(), std::move(work), context_);
  const Buckets buckets(sums_.elements(), shape().layer_starts(), config.bucket_blocks);
  exchange_.emplace(*assignment, place.copies.rank(),
                    Reduction{Ownership(buckets, place.copies.size()), shape().parameters()}, nodes,
                    exchange_memory_);
}

/// As many as the user and the memory of every process allow. All stages of a copy come to the
/// same.
int PipelineTraining::choose_ranks(const Assignment& assignment, std::size_t rows_per_rank) const {
  const auto rank = static_cast<std::size_t>(place_.copies.rank());
  int most = std::max(1, count_ranks(assignment.nodes[rank]));
  if (config_.micro_batch_size > 0) {
    most = std::clamp(config_.micro_batch_size / static_cast<int>(rows_per_rank), 1, most);
  }
  return ranks_that_fit(config_, plan_, {assignment, place_.copies.rank(), rows_per_rank}, most)
      .value_or(1);
}

Status PipelineTraining::step(const data::Dataset& data, const data::Loader& loader,
                              std::int64_t total_steps) {
  const auto batch_targets =
      static_cast<float>(static_cast<std::size_t>(config_.batch_size) * data.targets);
  sums_.forget();
  MUSTER_RETURN_IF_ERROR(
      computation_->compute({config_.seed, steps_, 1.0f / batch_targets, data, loader}, values_,
                            sums_, place_.group, clock_, config_.peer_deadline));
  MUSTER_RETURN_IF_ERROR(exchange_->sum(place_.copies, context_, stamp() + 1, deadline(), nullptr));
  // Nobody updates before all stages know that the step can be made.
  MUSTER_RETURN_IF_ERROR(share_loss(batch_targets));
  MUSTER_RETURN_IF_ERROR(measure());
  return update(total_steps);
}

/// That of the last stage goes to all.
Status PipelineTraining::share_loss(float batch_targets) {
  float sum = exchange_->tail()[shape().running() + kStageLoss];
  MUSTER_RETURN_IF_ERROR(comm::broadcast(place_.group, stamp() + 1, plan_.size() - 1,
                                         std::as_writable_bytes(std::span(&sum, 1)), deadline()));
  loss_ = sum / batch_targets;
  if (!std::isfinite(loss_)) return not_finite(steps_ + 1, "loss", loss_);
  return {};
}

/// The norm is that of the gradient of all stages.
Status PipelineTraining::measure() {
  scale_ = 1;
  if (!(config_.gradient_norm_max > 0)) return {};
  std::vector<Gradient> gradients(exchange_->gradients().begin(), exchange_->gradients().end());
  std::sort(gradients.begin(), gradients.end(),
            [](const Gradient& a, const Gradient& b) { return a.range.begin < b.range.begin; });
  BlockItem item;
  item.bytes = sizeof(float);
  item.make = [&](std::span<const float> block, std::byte* to) {
    float square = 0;
    cpu::block_squares(context_, block.size(), block.data(), &square);
    std::memcpy(to, &square, sizeof square);
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    read_gradients(gradients, first, elements);
  };
  MUSTER_ASSIGN_OR_RETURN(const auto items,
                          gather_items(block_parts(plan_, whole_, whole_.parameters()), item,
                                       place_.group, stamp() + 1, deadline()));
  std::vector<float> squares(items.size() / sizeof(float));
  std::memcpy(squares.data(), items.data(), items.size());
  gradient_norm_ = norm_of(squares);
  if (!std::isfinite(gradient_norm_)) {
    return not_finite(steps_ + 1, "norm of the gradient", gradient_norm_);
  }
  scale_ = clip_scale(gradient_norm_, config_.gradient_norm_max);
  return {};
}

Status PipelineTraining::update(std::int64_t total_steps) {
  optimizer_.set_learning_rate(learning_rate_at(config_, steps_, total_steps));
  optimizer_.update(context_, exchange_->gradients(), scale_,
                    std::span(values_).first(shape().parameters()));
  update_running(shape(), config_.logical_ranks, exchange_->tail(), values_);
  ++steps_;
  return {};
}

Result<std::string> PipelineTraining::hash() {
  BlockItem item;
  item.bytes = sizeof(Sha256Digest);
  item.make = [](std::span<const float> block, std::byte* to) {
    const Sha256Digest digest = block_digests(block)[0];
    std::memcpy(to, digest.data(), sizeof digest);
  };
  item.read = [&](std::size_t first, std::span<float> elements) {
    std::copy_n(values_.data() + first, elements.size(), elements.data());
  };
  MUSTER_ASSIGN_OR_RETURN(const auto items,
                          gather_items(block_parts(plan_, whole_, whole_.values()), item,
                                       place_.group, stamp(), deadline()));
  std::vector<Sha256Digest> digests(items.size() / sizeof(Sha256Digest));
  std::memcpy(digests.data(), items.data(), items.size());
  return to_hex(combine(digests));
}

/// The values, and of those that are trained what the optimiser keeps.
PipelineTraining::Buffers PipelineTraining::own_buffers() {
  Buffers all{values_};
  for (auto& buffer : optimizer_.state().buffers) all.emplace_back(buffer.values);
  return all;
}

/// What the state of a stage is in that of the whole model, for moving the one to the other.
std::vector<PipelineTraining::Place> PipelineTraining::places(std::size_t stage) const {
  std::vector<Place> all;
  const ModelShape& shape = plan_.stages[stage].shape;
  for (std::size_t b = 0; b <= optimizer_.state().buffers.size(); ++b) {
    for (const StageStretch& stretch : stretches_of(shape, whole_)) {
      // Running statistics have no optimiser's state.
      if (b > 0 && stretch.own >= shape.parameters()) continue;
      all.push_back({b, stretch.whole.begin, stretch.own, stretch.whole.size()});
    }
  }
  return all;
}

Result<std::optional<WholeState>> PipelineTraining::collect() {
  std::optional<WholeState> whole;
  if (place_.copies.rank() != 0) return whole;
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  const Buffers own = own_buffers();
  if (!is_first()) {
    for (const Place& place : places(stage())) {
      sends.push_back({0, own[place.buffer].data() + place.own, place.size * sizeof(float)});
    }
  } else {
    whole.emplace();
    whole->values.resize(whole_.values());
    whole->optimizer = laid_out(optimizer_.state(), {});
    whole->optimizer = laid_out(whole->optimizer, {{0, whole_.parameters()}});
    Buffers into{whole->values};
    for (auto& buffer : whole->optimizer.buffers) into.emplace_back(buffer.values);
    for (const Place& place : places(0)) {
      std::copy_n(own[place.buffer].data() + place.own, place.size,
                  into[place.buffer].data() + place.whole);
    }
    for (std::size_t from = 1; from < plan_.stages.size(); ++from) {
      for (const Place& place : places(from)) {
        receives.push_back({static_cast<int>(from), into[place.buffer].data() + place.whole,
                            place.size * sizeof(float)});
      }
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          place_.group.start(stamp(), comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline()));
  return whole;
}

/// To the stages of the first copy, and from each of them to its copies.
Status PipelineTraining::deal(const WholeState* whole, std::int64_t steps) {
  MUSTER_CHECK((whole != nullptr) == is_first());
  steps_ = steps;
  const Buffers own = own_buffers();
  auto& scalars = optimizer_.state().scalars;
  std::vector<double> powers(scalars.size());
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  if (is_first()) {
    std::vector<std::span<const float>> from{whole->values};
    for (const auto& buffer : whole->optimizer.buffers) from.emplace_back(buffer.values);
    for (std::size_t i = 0; i < powers.size(); ++i) powers[i] = whole->optimizer.scalars[i].value;
    for (std::size_t to = 0; to < plan_.stages.size(); ++to) {
      for (const Place& place : places(to)) {
        const float* const values = from[place.buffer].data() + place.whole;
        if (to == 0) std::copy_n(values, place.size, own[place.buffer].data() + place.own);
        if (to > 0) sends.push_back({static_cast<int>(to), values, place.size * sizeof(float)});
      }
    }
  } else if (place_.copies.rank() == 0) {
    for (const Place& place : places(stage())) {
      receives.push_back({0, own[place.buffer].data() + place.own, place.size * sizeof(float)});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          place_.group.start(stamp(), comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline()));
  std::vector<std::span<std::byte>> parts{std::as_writable_bytes(std::span(powers))};
  MUSTER_RETURN_IF_ERROR(broadcast(place_.group, stamp(), 0, parts[0], deadline()));
  for (const std::span<float> buffer : own) parts.push_back(std::as_writable_bytes(buffer));
  for (const std::span<std::byte> part : parts) {
    MUSTER_RETURN_IF_ERROR(broadcast(place_.copies, stamp(), 0, part, deadline()));
  }
  for (std::size_t i = 0; i < powers.size(); ++i) scalars[i].value = powers[i];
  return {};
}

}  // namespace muster::engine
