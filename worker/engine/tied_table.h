// The embedding of a transformer that is split: it belongs to the last stage, with the head whose
// table it shares. The stage embeds for the first one, and ends the table's gradient when that one
// sends the gradient of the embedding back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/engine/model.h"

namespace muster::engine {

/// Threads: one.
class TiedTable {
 public:
  /// What is in hand at once: of a micro-batch, and how many of them.
  struct Size {
    std::size_t rows = 0, ranks = 0;
    int embedded = 1;  ///< embedded_most()
    int tables = 1;    ///< tables_most()
  };
  /// `stage` has a tied_embedding(), and outlives it, as `context` does.
  TiedTable(const ModelShape& stage, const Size& size, kernels::cpu::Context& context);
  static std::size_t bytes(const ModelShape& stage, const Size& size);

  /// Fills one row of a micro-batch with a sample.  Errors: as data::read_sample.
  Status set_row(int micro_batch, std::size_t row, const data::Dataset& samples, std::size_t index);
  /// Shape: (rows, positions).
  std::span<const std::int32_t> labels(int micro_batch) const;
  /// The first stage's input, until the next call; made by the `team` of the stage where the table
  /// is divided.  Errors: as of TensorTeam::gather.  Shape: (rows, positions x width).
  Result<std::span<const float>> embed(int micro_batch, std::span<const float> values,
                                       std::size_t rows, TensorTeam& team);
  /// For Model::Batch.  Shape: (ranks, table).
  std::span<float> tables(int micro_batch, std::size_t ranks);
  /// Of what embed() returned, to be filled before finish().  Shape: (rows, positions x width).
  std::span<float> gradient() { return gradient_; }
  /// Both tables' gradients of all nodes of `batch`, whose head's share is in tables().
  void finish(int micro_batch, const Model::Batch& batch);

  /// Behind the embedding's tensors, which are the first ones of the stage.
  static std::size_t end_of(const ModelShape& stage);

 private:
  struct Sequences {
    std::vector<std::int32_t> tokens, labels;
  };
  Sequences& of(int micro_batch) {
    return sequences_[static_cast<std::size_t>(micro_batch) % sequences_.size()];
  }
  std::size_t table_size() const { return embedding_.positions - embedding_.weight; }

  const LayerShape& embedding_;
  const bool is_divided_;
  Size size_;
  kernels::cpu::Context& context_;
  std::vector<Sequences> sequences_;
  std::vector<std::vector<float>> tables_;
  std::vector<float> embedded_, gradient_;
  std::vector<float> packed_;  ///< of a divided table, for embedding
};

}  // namespace muster::engine
