// In which order the stages of a pipeline compute their micro-batches and hand them on. Pure
// functions of three numbers: every stage computes its own list, and the lists fit together.
//
// Time is counted in ticks. In one tick a stage computes at most one micro-batch, forward or
// backward; what is handed on goes in the tick's one group of transfers, once all that the tick
// computes is there. Sender and receiver put a transfer in the same tick, so that the groups of all
// stages have the same numbers (comm::Communicator::start), and a stage waits for nobody but those
// it has a transfer with, and not before it wants what that brings. Ticks order things; they are no
// clock: the neighbours of a stage go forward while it goes back, which takes twice as long, and
// all are in step again a tick later.
//
// What moves is given as late as it can be: to the receiver in the tick before it computes with it.
// Until then it lies with the sender, which keeps it for its own backward pass anyway, so nothing
// is ever held twice.
#pragma once

#include <vector>

namespace muster::engine {

enum class Pipelining {
  kGpipe,  ///< all forward, then all backward. Source: Huang et al., arXiv:1811.06965
  kOneForwardOneBackward,  ///< a stage has no more alive than it needs to be busy. Source:
                           ///< Narayanan et al., arXiv:2104.04473
};

struct PipelineShape {
  int stages = 1, micro_batches = 1;  ///< at least 1
  Pipelining pipelining = Pipelining::kOneForwardOneBackward;
  /// The last stage also embeds each micro-batch before the first one computes it, and takes the
  /// gradient of that back, because the table of the embedding is its own.
  bool is_tied = false;
};

/// In one tick in this order.
enum class PipelineAction {
  kEmbed,  ///< tied
  kForward,
  kBackward,
  kFinishTable,      ///< tied: the embedding's share in the table's gradient, after the head's; the
                     ///< first stage has gone back for it while this one went forward and back
  kSendActivations,  ///< of a forward pass, or of kEmbed, to be the input of `peer`
  kReceiveActivations,
  kSendGradient,  ///< of a stage's input, which is that of what `peer` has put out
  kReceiveGradient
};

struct PipelineOperation {
  int tick = 0;
  PipelineAction action = PipelineAction::kForward;
  int micro_batch = 0;
  int peer = -1;  ///< the stage at the other end of a transfer
  bool operator==(const PipelineOperation&) const = default;
};

/// What `stage` does, ascending by tick, and within one by action.
std::vector<PipelineOperation> pipeline_operations(const PipelineShape& shape, int stage);

/// Ticks until all stages are done: each of them has a group of transfers, maybe an empty one.
int pipeline_ticks(const PipelineShape& shape);

/// Micro-batches that `stage` has at most between their forward and their backward pass.
int alive_most(const PipelineShape& shape, int stage);

/// Of a tied pipeline, micro-batches that the last stage has at most between kEmbed and
/// kFinishTable, for each of which it keeps the tokens.
int embedded_most(const PipelineShape& shape);

/// Of a tied pipeline, micro-batches that the last stage has at most between kBackward and
/// kFinishTable, for each of which it keeps the head's gradient of the table.
int tables_most(const PipelineShape& shape);

/// The share of the time in which a stage has nothing to compute, where a forward and a backward
/// pass of every stage take as long: (p - 1) / (m + p - 1), whatever the order.
double idle_share(const PipelineShape& shape);

}  // namespace muster::engine
