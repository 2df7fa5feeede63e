#include "worker/engine/tied_table.h"

#include <algorithm>

#include "common/check.h"
#include "worker/data/tokens.h"
#include "worker/engine/divided_table.h"

namespace muster::engine {

namespace cpu = kernels::cpu;

TiedTable::TiedTable(const ModelShape& stage, const Size& size, cpu::Context& context)
    : embedding_(*stage.tied_embedding()),
      is_divided_(stage.has_divided_table()),
      size_(size),
      context_(context),
      sequences_(static_cast<std::size_t>(size.embedded)),
      tables_(static_cast<std::size_t>(size.tables)),
      embedded_(size.rows * embedding_.out.size()),
      gradient_(embedded_.size()),
      packed_(is_divided_ ? embedded_.size() : 0) {
  for (Sequences& one : sequences_) {
    one.tokens.resize(size.rows * embedding_.out.pixels());
    one.labels.resize(one.tokens.size());
  }
  for (auto& table : tables_) table.resize(size.ranks * table_size());
}

std::size_t TiedTable::bytes(const ModelShape& stage, const Size& size) {
  const LayerShape& embedding = *stage.tied_embedding();
  const std::size_t sequences = static_cast<std::size_t>(size.embedded) * size.rows;
  const std::size_t tables = static_cast<std::size_t>(size.tables) * size.ranks;
  return sequences * embedding.out.pixels() * 2 * sizeof(std::int32_t) +
         sizeof(float) * (tables * (embedding.positions - embedding.weight) +
                          (stage.has_divided_table() ? 3 : 2) * size.rows * embedding.out.size());
}

std::size_t TiedTable::end_of(const ModelShape& stage) {
  const LayerShape& embedding = *stage.tied_embedding();
  return embedding.positions + embedding.out.size();
}

Status TiedTable::set_row(int micro_batch, std::size_t row, const data::Dataset& samples,
                          std::size_t index) {
  const std::size_t positions = embedding_.out.pixels();
  Sequences& own = of(micro_batch);
  return data::read_sample(samples, index,
                           std::span(own.tokens).subspan(row * positions, positions),
                           std::span(own.labels).subspan(row * positions, positions));
}

std::span<const std::int32_t> TiedTable::labels(int micro_batch) const {
  return sequences_[static_cast<std::size_t>(micro_batch) % sequences_.size()].labels;
}

Result<std::span<const float>> TiedTable::embed(int micro_batch, std::span<const float> values,
                                                std::size_t rows, TensorTeam& team) {
  const std::size_t positions = embedding_.out.pixels();
  const auto tokens = std::span(of(micro_batch).tokens).first(rows * positions);
  if (is_divided_) {
    embed_divided(context_, team, embedding_, tokens, values.data(), packed_, embedded_.data());
    MUSTER_RETURN_IF_ERROR(team.status());
  } else {
    cpu::embed(context_, tokens.size(), positions, embedding_.out.channels, tokens.data(),
               values.data() + embedding_.weight, values.data() + embedding_.positions,
               embedded_.data());
  }
  return std::span<const float>(embedded_).first(rows * embedding_.out.size());
}

std::span<float> TiedTable::tables(int micro_batch, std::size_t ranks) {
  MUSTER_CHECK(ranks <= size_.ranks);
  auto& own = tables_[static_cast<std::size_t>(micro_batch) % tables_.size()];
  return std::span(own).first(ranks * table_size());
}

void TiedTable::finish(int micro_batch, const Model::Batch& batch) {
  float* next = tables(micro_batch, batch.ranks()).data();
  std::vector<float*> of_node;
  for (const Model::Node& node : batch.nodes) {
    of_node.clear();
    for (std::size_t rank = 0; rank < node.ranks; ++rank, next += table_size()) {
      of_node.push_back(next);
    }
    Model::finish_table(
        context_, embedding_, batch.rows_per_rank,
        {node, of_node, of(micro_batch).tokens.data() + node.first_row * embedding_.out.pixels(),
         gradient_.data() + node.first_row * embedding_.out.size()});
    std::copy_n(of_node[0], table_size(), node.gradient + embedding_.weight);
  }
}

}  // namespace muster::engine
