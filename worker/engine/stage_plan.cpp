#include "worker/engine/stage_plan.h"

#include <algorithm>
#include <functional>
#include <string>

#include "common/check.h"
#include "common/contract.h"

namespace muster::engine {
namespace {

/// What a value costs that is read and written and hardly computed with, in multiply-adds: a guess
/// that moves a cut only between stages that are alike otherwise.
constexpr std::uint64_t kValueCost = 8;

std::uint64_t cost_of(const LayerShape& layer) {
  const std::uint64_t pixels = layer.out.pixels(), channels = layer.out.channels;
  switch (layer.kind) {
    case LayerKind::kLinear:
      return layer.in.size() * layer.out.size();
    case LayerKind::kConvolution:
      return pixels * channels * layer.side * layer.side * layer.in.channels;
    case LayerKind::kProjection:
    case LayerKind::kHead:
      return pixels * channels * layer.in.channels;
    case LayerKind::kAttention:
      return pixels * (pixels + 1) * channels;  // scores and their use, of the half that is causal
    default:
      return kValueCost * layer.in.size();
  }
}

std::uint64_t trained_of(const ModelShape& whole, std::size_t first, std::size_t last) {
  return whole.cut(first, last).parameters();
}

/// Where a piece begins, and behind the last one the end of the chain.
std::vector<std::size_t> borders_of(const ModelShape& whole, bool is_tied) {
  std::vector<std::size_t> borders{is_tied ? std::size_t{1} : 0};
  bool has_tensors = whole.layers()[borders[0]].has_tensors();  // a dropout alone is no piece
  for (std::size_t l = borders[0] + 1; l < whole.layers().size(); ++l) {
    if (!whole.layers()[l].has_tensors()) continue;
    if (has_tensors && !whole.is_within_branch(l - 1)) borders.push_back(l);
    has_tensors = true;
  }
  borders.push_back(whole.layers().size());
  return borders;
}

bool is_tied_when_cut(const ModelShape& whole) { return whole.reads_tokens() && whole.has_head(); }

using Weight = std::function<std::uint64_t(std::size_t first, std::size_t last)>;

/// Cuts pieces [0, count) into `stages` so that the greatest weight is the least: by stages behind
/// and first piece, the best that can be had from there. Nothing weighs UINT64_MAX but what may not
/// be.
std::vector<std::size_t> cut_evenly(std::size_t count, std::size_t stages, const Weight& weight) {
  // best[k][i]: pieces from i on in k stages; end[k][i]: where the first of those ends.
  std::vector<std::vector<std::uint64_t>> best(stages + 1,
                                               std::vector<std::uint64_t>(count + 1, UINT64_MAX));
  std::vector<std::vector<std::size_t>> end(stages + 1, std::vector<std::size_t>(count + 1, count));
  best[0][count] = 0;
  for (std::size_t k = 1; k <= stages; ++k) {
    for (std::size_t i = 0; i + k <= count; ++i) {
      for (std::size_t j = i + 1; j + k - 1 <= count; ++j) {
        const std::uint64_t greatest = std::max(weight(i, j), best[k - 1][j]);
        if (greatest >= best[k][i]) continue;
        best[k][i] = greatest;
        end[k][i] = j;
      }
    }
  }
  std::vector<std::size_t> cuts{0};
  for (std::size_t k = stages; k > 0; --k) cuts.push_back(end[k][cuts.back()]);
  return cuts;
}

}  // namespace

std::size_t pieces_of(const ModelShape& whole) {
  return borders_of(whole, is_tied_when_cut(whole)).size() - 1;
}

Result<StagePlan> plan_stages(const ModelShape& whole, int stages, int slices) {
  MUSTER_CHECK(stages >= 1 && slices >= 1);
  if (slices > 1) MUSTER_RETURN_IF_ERROR(whole.check_slices(static_cast<std::size_t>(slices)));
  StagePlan plan;
  plan.slices = slices;
  plan.is_tied = stages > 1 && is_tied_when_cut(whole);
  const auto borders = borders_of(whole, plan.is_tied);
  const std::size_t pieces = borders.size() - 1, wanted = static_cast<std::size_t>(stages);
  if (wanted > pieces) {
    return Error(ErrorCode::kInvalid, "spec.training.parallelism.pipeline: is " +
                                          std::to_string(stages) +
                                          ", but the model can be cut into at most " +
                                          std::to_string(pieces) + " stages")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  std::vector<std::uint64_t> costs{0}, trained{0};  // of all pieces before
  for (std::size_t i = 0; i < pieces; ++i) {
    std::uint64_t cost = 0;
    for (std::size_t l = borders[i]; l < borders[i + 1]; ++l) cost += cost_of(whole.layers()[l]);
    if (plan.is_tied && i + 1 == pieces) cost += cost_of(whole.layers()[0]);
    costs.push_back(costs.back() + cost);
    trained.push_back(trained.back() + trained_of(whole, borders[i], borders[i + 1]));
  }
  const auto cost = [&](std::size_t i, std::size_t j) { return costs[j] - costs[i]; };
  std::uint64_t dearest = 0;
  const auto cheapest = cut_evenly(pieces, wanted, cost);
  for (std::size_t s = 0; s < wanted; ++s) {
    dearest = std::max(dearest, cost(cheapest[s], cheapest[s + 1]));
  }
  const auto cuts = cut_evenly(pieces, wanted, [&](std::size_t i, std::size_t j) {
    return cost(i, j) > dearest ? UINT64_MAX : trained[j] - trained[i];
  });
  for (std::size_t s = 0; s < wanted; ++s) {
    const std::size_t first = borders[cuts[s]], last = borders[cuts[s + 1]];
    Stage stage{first, last, cost(cuts[s], cuts[s + 1]), whole.cut(first, last), {}};
    for (int slice = 0; slice < slices; ++slice) {
      stage.slices.push_back(slices == 1 ? stage.shape
                                         : stage.shape.slice(static_cast<std::size_t>(slices),
                                                             static_cast<std::size_t>(slice)));
    }
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

namespace {

std::vector<StageStretch> list_stretches(const ModelShape& part, const ModelShape& whole,
                                         bool counted_alone) {
  std::vector<StageStretch> stretches;
  for (const Tensor& tensor : part.tensors()) {
    if (counted_alone && !tensor.is_counted) continue;
    for (std::size_t i = 0; i < tensor.size; i += tensor.run) {
      const std::size_t at = whole.tensors()[tensor.number].offset + tensor.index_in_whole(i);
      const std::size_t own = tensor.offset + i;
      const bool is_next_kind = own == part.parameters();
      if (!stretches.empty() && !is_next_kind && stretches.back().whole.end == at &&
          stretches.back().own + stretches.back().whole.size() == own) {
        stretches.back().whole.end += tensor.run;
      } else {
        stretches.push_back({{at, at + tensor.run}, own});
      }
    }
  }
  return stretches;
}

}  // namespace

std::vector<StageStretch> stretches_of(const ModelShape& part, const ModelShape& whole) {
  return list_stretches(part, whole, false);
}

std::vector<StageStretch> counted_stretches_of(const ModelShape& part, const ModelShape& whole) {
  return list_stretches(part, whole, true);
}

std::size_t counted_stretches_most(const ModelShape& part) {
  std::size_t count = 0;
  for (const Tensor& tensor : part.tensors()) {
    if (tensor.is_counted) count += tensor.size / tensor.run;
  }
  return count;
}

}  // namespace muster::engine
