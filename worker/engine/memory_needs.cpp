#include "worker/engine/memory_needs.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "common/check.h"
#include "worker/comm/memory_lane.h"
#include "worker/engine/block_parts.h"
#include "worker/engine/model.h"
#include "worker/engine/passes.h"
#include "worker/engine/pipeline_stage.h"
#include "worker/engine/stage_state.h"

namespace muster::engine {
namespace {

/// A trainer that trains next to nothing, and its sentinel, which the same limit is for.
constexpr std::size_t kProcessBytes = std::size_t{23} << 20;
/// A thread's stack, and what it packs of products.
constexpr std::size_t kThreadBytes = std::size_t{512} << 10;

std::size_t floats(std::size_t count) { return count * sizeof(float); }

std::size_t portion(std::size_t all, double part) {
  return static_cast<std::size_t>(static_cast<double>(all) * part);
}

const std::vector<RankRange>& own_nodes(const MemoryShare& share) {
  return share.assignment.nodes[static_cast<std::size_t>(share.rank)];
}

std::size_t rows_trained(const MemoryShare& share, int ranks_at_once) {
  const int ranks = std::min(count_ranks(own_nodes(share)), ranks_at_once);
  return static_cast<std::size_t>(ranks) * share.rows_per_rank;
}

/// Buffers for sums of parts of a node, beside the node's own.
std::size_t spare_buffers(const std::vector<RankRange>& nodes, int ranks_at_once) {
  unsigned highest = 0;
  for (const ComputePass& pass : plan_passes(nodes, ranks_at_once)) {
    for (const Piece& piece : pass) highest = std::max(highest, piece.slot);
  }
  return highest;
}

/// Node sums of the own part of the gradient from all others, and of theirs what they have added;
/// node sums from others of the host, too.
std::size_t received_floats(const TrainingConfig& config, const MemoryShare& share,
                            std::size_t elements) {
  const auto processes = static_cast<std::size_t>(share.assignment.processes());
  if (processes == 1) return 0;
  const std::size_t nodes = chunks_received(share.assignment, share.hosts, share.rank);
  if (!share.weights.empty()) {
    std::size_t all = 0, most = 0;
    for (const std::uint8_t weight : share.weights) {
      all += weight;
      most = std::max<std::size_t>(most, weight);
    }
    MUSTER_CHECK(all > 0 && share.weights.size() == processes);
    const std::size_t own = share.weights[static_cast<std::size_t>(share.rank)];
    // What is made for owners on other hosts is as long as their parts.
    const std::size_t received = share.hosts.is_any_shared() ? most : own;
    return (nodes * received + (all - own)) * elements / all;
  }
  if (share.kept) return nodes * elements / processes + portion(elements, share.kept->received);
  const std::size_t others =
      config.is_sharded ? static_cast<std::size_t>(config.buddies) : processes - 1;
  return (nodes + std::min(others, processes - 1)) * elements / processes;
}

std::size_t moments_of(const TrainingConfig& config) { return config.adamw ? 2 : 1; }

/// Memory that this process shares with the others of its machine, a ring each way: of both one is
/// counted here, and one there. Rings are larger where fewer are left.
std::size_t lane_bytes(const TrainingConfig& config, const MemoryShare& share) {
  const int others = share.assignment.processes() * config.group_size() - 1;
  const int beside = std::min(config.together - 1, others);
  if (beside < 1) return 0;
  return static_cast<std::size_t>(beside) *
         comm::MemoryLane::ring_bytes(static_cast<std::size_t>(others));
}

/// What the processes of a copy take to make what is made of all of the model (its norm, its hash,
/// its files). All of it counts, because what one has given back is not all there for the next.
std::size_t together_bytes(const TrainingConfig& config, const StagePlan& plan, int place) {
  if (plan.places() == 1) return 0;
  const bool is_reader = place == 0 && !config.checkpoint_path.empty();
  return gathering_bytes(plan, place) +
         (is_reader ? PartsSource::bytes(plan, moments_of(config)) : 0);
}

int threads_of(const TrainingConfig& config) { return std::max(1, config.threads); }

/// All but what a pass needs.
MemoryNeeds lasting_needs(const TrainingConfig& config, const ModelShape& shape,
                          const MemoryShare& share, int ranks_at_once) {
  const std::vector<RankRange>& nodes = own_nodes(share);
  const auto processes = static_cast<std::size_t>(share.assignment.processes());
  MemoryNeeds needs;
  needs.parameters = floats(shape.values());
  needs.optimizer = floats(shape.parameters()) * moments_of(config);
  if (config.is_sharded) {
    if (!config.checkpoint_path.empty()) needs.loading = needs.optimizer;
    const std::size_t keepers = std::min(processes, 1 + static_cast<std::size_t>(config.buddies));
    needs.optimizer = share.kept ? portion(needs.optimizer, share.kept->held)
                                 : needs.optimizer * keepers / processes;
  }
  const std::size_t elements = shape.values();
  needs.gradients = floats(elements * (nodes.size() + spare_buffers(nodes, ranks_at_once)) +
                           received_floats(config, share, elements));
  const int threads = threads_of(config);
  needs.rest = kProcessBytes + static_cast<std::size_t>(threads) * kThreadBytes +
               lane_bytes(config, share) + share.data_bytes +
               Model::scratch_bytes(shape, rows_trained(share, ranks_at_once), threads);
  return needs;
}

/// `most`, or the first of its halves that fits.
template <typename Needs>
std::optional<int> first_that_fits(const TrainingConfig& config, int most, const Needs& needs) {
  if (config.memory_bytes == 0) return most;
  for (int ranks = most; ranks >= 1; ranks /= 2) {
    if (needs(ranks) <= config.memory_bytes) return ranks;
  }
  return std::nullopt;
}

Activations activations_of(const TrainingConfig& config) {
  return config.recomputes_activations ? Activations::kRecomputed : Activations::kKept;
}

}  // namespace

std::string mebibytes(std::size_t bytes) {
  return std::to_string((bytes + (std::size_t{1} << 20) - 1) >> 20) + " MiB";
}

std::size_t rows_of(const MemoryShare& share, int ranks_at_once) {
  return std::max(rows_trained(share, ranks_at_once), share.rows_evaluated);
}

MemoryNeeds memory_needs(const TrainingConfig& config, const ModelShape& shape,
                         const MemoryShare& share, int ranks_at_once) {
  MemoryNeeds needs = lasting_needs(config, shape, share, ranks_at_once);
  if (const std::size_t rows = rows_of(share, ranks_at_once); rows > 0) {
    const auto passes = plan_passes(own_nodes(share), ranks_at_once);
    needs.activations = Model::bytes(shape, rows, activations_of(config), threads_of(config)) +
                        Model::table_bytes(shape, later_ranks_most(passes));
  }
  return needs;
}

std::size_t device_needs(const TrainingConfig& config, const ModelShape& shape,
                         const MemoryShare& share, int ranks_at_once, std::size_t rows_had) {
  const std::size_t rows = std::max(rows_of(share, ranks_at_once), rows_had);
  if (rows == 0) return 0;
  const auto passes = plan_passes(own_nodes(share), ranks_at_once);
  Model::PassSize most;
  most.further_ranks = later_ranks_most(passes);
  for (const ComputePass& pass : passes) most.nodes = std::max(most.nodes, pass.size());
  return Model::device_bytes(shape, rows, activations_of(config), most);
}

MemoryNeeds memory_needs(const TrainingConfig& config, const StagePlan& plan, int place,
                         const MemoryShare& share, int ranks_at_once) {
  const ModelShape& shape = plan.part(place);
  MemoryNeeds needs = lasting_needs(config, shape, share, ranks_at_once);
  needs.rest += together_bytes(config, plan, place);
  StageWork work;
  work.nodes = own_nodes(share);
  work.ranks_at_once = ranks_at_once;
  work.rows_per_rank = share.rows_per_rank;
  work.activations = activations_of(config);
  work.threads = threads_of(config);
  // One after the other: what computes steps is given up for an evaluation.
  needs.activations = pass_bytes(plan, place, work);
  if (share.rows_evaluated > 0) {
    needs.activations = std::max(needs.activations, Model::bytes(shape, share.rows_evaluated,
                                                                 work.activations, work.threads));
  }
  return needs;
}

std::optional<int> ranks_that_fit(const TrainingConfig& config, const ModelShape& shape,
                                  const MemoryShare& share, int most) {
  return first_that_fits(
      config, most, [&](int ranks) { return memory_needs(config, shape, share, ranks).total(); });
}

std::optional<int> ranks_that_fit(const TrainingConfig& config, const StagePlan& plan,
                                  const MemoryShare& share, int most) {
  return first_that_fits(config, most, [&](int ranks) {
    std::size_t greatest = 0;
    for (int place = 0; place < plan.places(); ++place) {
      greatest = std::max(greatest, memory_needs(config, plan, place, share, ranks).total());
    }
    return greatest;
  });
}

namespace {

/// Of the process that needs the most.
MemoryNeeds greatest_needs(const TrainingConfig& config, const StagePlan& plan,
                           const MemoryShare& share) {
  MemoryNeeds greatest;
  for (int place = 0; place < plan.places(); ++place) {
    const MemoryNeeds one = memory_needs(config, plan, place, share, 1);
    if (one.total() > greatest.total()) greatest = one;
  }
  return greatest;
}

MemoryNeeds needs_of(const TrainingConfig& config, const ModelShape& whole,
                     const MemoryShare& share) {
  if (config.group_size() == 1) return memory_needs(config, whole, share, 1);
  return greatest_needs(config, *plan_stages(whole, config.stages, config.slices), share);
}

/// Whether the model can be split so, and each process fits then.
bool fits_split(TrainingConfig config, const Split& split, const ModelShape& whole,
                const MemoryShare& share) {
  config.slices = split.tensor;
  config.stages = split.pipeline;
  const auto plan = plan_stages(whole, split.pipeline, split.tensor);
  return plan && ranks_that_fit(config, *plan, share, 1);
}

/// The least of `parts`, more than there are, with which it fits; 0 where none does.
int least_that_fits(const TrainingConfig& config, int Split::* parts, const ModelShape& whole,
                    const MemoryShare& share) {
  Split split{config.slices, config.stages};
  while (++(split.*parts) <= kMaxSplit) {
    if (fits_split(config, split, whole, share)) return split.*parts;
  }
  return 0;
}

}  // namespace

std::vector<Split> splits_that_fit(const TrainingConfig& config, const ModelShape& whole,
                                   const MemoryShare& share) {
  std::vector<Split> fit;
  for (int parts = config.group_size() + 1; parts <= config.processes; ++parts) {
    if (config.processes % parts != 0) continue;
    const auto even = assign(config.logical_ranks, config.processes / parts);
    if (!even) continue;
    MemoryShare of_copy = share;
    of_copy.assignment = *even;
    of_copy.rank = 0;
    for (int slices = 1; slices <= std::min(parts, kMaxSplit); ++slices) {
      const Split split{slices, parts / slices};
      if (parts % slices != 0 || split.pipeline > kMaxSplit) continue;
      if (fits_split(config, split, whole, of_copy)) fit.push_back(split);
      if (fit.size() == kMaxSplitsTold) return fit;
    }
  }
  return fit;
}

std::string what_it_needs(const TrainingConfig& config, const ModelShape& whole,
                          const MemoryShare& share) {
  return "each of " + std::to_string(share.assignment.processes() * config.group_size()) +
         " processes needs at least " + mebibytes(needs_of(config, whole, share).total()) +
         " and may have " + mebibytes(config.memory_bytes);
}

std::string why_it_does_not_fit(const TrainingConfig& config, const ModelShape& whole,
                                const MemoryShare& share) {
  const MemoryNeeds needs = needs_of(config, whole, share);
  std::vector<std::string> ways;
  const auto consider = [&](const TrainingConfig& other, const std::string& way) {
    const std::size_t total = needs_of(other, whole, share).total();
    if (total <= config.memory_bytes) ways.push_back(way + " (" + mebibytes(total) + ")");
  };
  TrainingConfig other = config;
  other.recomputes_activations = config.gpt.has_value();
  if (other.recomputes_activations && !config.recomputes_activations) {
    consider(other, "spec.training.activations: Recomputed");
  }
  if (!config.is_sharded && share.assignment.processes() > 2) {
    other = config;
    other.is_sharded = true;
    consider(other, "spec.training.optimizerState: Sharded");
  }
  for (const auto& [field, parts, of_config] :
       {std::tuple("pipeline", &Split::pipeline, &TrainingConfig::stages),
        std::tuple("tensor", &Split::tensor, &TrainingConfig::slices)}) {
    other = config;
    other.*of_config = least_that_fits(config, parts, whole, share);
    if (other.*of_config == 0) continue;
    consider(other, std::string("spec.training.parallelism.") + field + ": " +
                        std::to_string(other.*of_config));
  }
  std::string text = what_it_needs(config, whole, share) + "; it would fit with ";
  for (const std::string& way : ways) text += way + ", or ";
  return text + "spec.worker.resources.memory of that for each process (parameters " +
         mebibytes(needs.parameters) + ", optimizer " + mebibytes(needs.optimizer) +
         ", gradients " + mebibytes(needs.gradients) + ", activations " +
         mebibytes(needs.activations) + ", the rest " + mebibytes(needs.rest) +
         (needs.loading > needs.optimizer + needs.activations
              ? "; worker 0 has all of the optimizer, " + mebibytes(needs.loading) +
                    ", when it begins)"
              : ")");
}

}  // namespace muster::engine
