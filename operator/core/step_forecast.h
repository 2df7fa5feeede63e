// How long a step takes where a gang stands, as it is told to users beside what was measured. It
// counts what step_time.h leaves out, because it tells no two places of a gang apart: that blocks
// are added up whole, that a worker may hold several sums, and what of the exchange goes on while
// gradients are still computed. How the engine cuts its exchange: worker/engine/{assignment,
// buckets,hosts}.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "common/exchange_sizes.h"
#include "common/messages.h"
#include "operator/api/training_job.h"
#include "operator/core/step_time.h"

namespace muster::core {

/// What one worker adds up.
inline constexpr double kBlockBytes = sizeof(float) * exchange_sizes::kBlockElements;
/// Gradients go out while others are computed in pieces of so many bytes at least.
inline constexpr double kBucketBytes = exchange_sizes::kBucketBlocks * kBlockBytes;
/// Of forward and backward pass together: two products of matrices of three.
inline constexpr double kBackwardShare = 2.0 / 3;

/// Sums of gradients that the members send to their owners: the complete subtrees of the tree over
/// the logical ranks that each has a range of.
struct HeldSums {
  int most = 1, least = 1;  ///< of one member, or of one team of them
  double mean = 1;          ///< of all
};

/// As the engine divides so many logical ranks, a power of two; more than 256 are taken to be
/// divided evenly. None: one sum each. So many members each, one after the other, are a team that
/// adds up what it holds together.
HeldSums held_sums(int logical_ranks, int members, int team = 1);

/// Of so many bytes, what the member with the largest share adds up.
double largest_share(double bytes, int members);

/// The engine's exchange, as far as it is known.
struct ExchangeShape {
  int logical_ranks = 0;        ///< 0: each member sends one sum
  int layers = 1;               ///< that have parameters
  double backward_seconds = 0;  ///< of the computing, beside which gradients may go out
  int processes = 1;            ///< of each pod
};

/// `hosts` ascending by node, each with at least one pod. Processes of one pod add up their sums by
/// memory before these leave it, and what comes for all of them comes once, unless the gradients
/// are small (exchange_sizes::kHostBlocks); then each sends for itself.
StepTime forecast_step(const StepModel& model, const std::vector<HostShare>& hosts,
                       const ExchangeShape& shape);

/// Of a job of the built-in engine whose workers have told what they compute: their computing as
/// they measured it, and the exchange between `placement` as if nobody else sent. Where the model
/// is split (split_forecast.h) what the workers told in their newest `reports`, by slot, counts,
/// too. Absent: nothing is known of the network there, or of the step, or of some part of a split
/// model.
std::optional<double> forecast_seconds(const api::TrainingJob& job, const ProgressReport& report,
                                       const std::map<int, ProgressReport>& reports,
                                       const Topology& topology);

}  // namespace muster::core
