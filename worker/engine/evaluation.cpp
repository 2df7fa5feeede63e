#include "worker/engine/evaluation.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "kernels/running_sum.h"
#include "worker/data/prefetch.h"

namespace muster::engine {
namespace {

Result<PartSum> evaluate_part(Model& model, const TestSet& test, SampleRange part,
                              const EvaluationLimits& limits) {
  kernels::cpu::RunningSum losses;
  PartSum sum;
  for (std::size_t first = part.first; first < part.last; first += model.rows_max()) {
    const std::size_t rows = std::min(model.rows_max(), part.last - first);
    MUSTER_RETURN_IF_ERROR(limits.before_pass ? limits.before_pass() : Status());
    test.prefetch(first, std::min(first + 2 * model.rows_max(), part.last));
    for (std::size_t i = 0; i < rows; ++i) {
      MUSTER_RETURN_IF_ERROR(model.set_row(i, test.data(), test.index(first + i)));
    }
    model.forward(rows);
    model.losses(rows);
    MUSTER_RETURN_IF_ERROR(model.status());
    const std::size_t targets = rows * test.targets();
    losses.add(model.loss().first(targets));
    for (const float correct : model.correct().first(targets)) sum.correct += correct > 0 ? 1 : 0;
  }
  sum.loss = losses.value();
  return sum;
}

}  // namespace

TestSet::TestSet(const data::Dataset& data, std::size_t most)
    : data_(data), taken_(most == 0 ? data.count : std::min(most, data.count)) {
  MUSTER_CHECK(taken_ > 0);
}

void TestSet::prefetch(std::size_t first, std::size_t last) const {
  std::vector<std::uint64_t> indices;
  for (std::size_t number = first; number < last; ++number) indices.push_back(index(number));
  data::prefetch(data_, indices);
}

SampleRange evaluated_samples(int rank, int logical_ranks, std::size_t samples) {
  const auto start = [&](int r) {
    return samples * static_cast<std::size_t>(r) / static_cast<std::size_t>(logical_ranks);
  };
  return {start(rank), start(rank + 1)};
}

float tree_sum(std::span<const float> values) {
  MUSTER_CHECK(!values.empty());
  if (values.size() == 1) return values[0];
  const std::size_t half = values.size() / 2;
  return tree_sum(values.first(half)) + tree_sum(values.subspan(half));
}

LossSums sum_losses(std::span<const float> losses, std::span<const float> correct,
                    std::size_t of_rank) {
  std::vector<float> of_ranks, correct_of_ranks;
  for (std::size_t at = 0; at < losses.size(); at += of_rank) {
    of_ranks.push_back(kernels::cpu::sum(losses.data() + at, of_rank));
    correct_of_ranks.push_back(kernels::cpu::sum(correct.data() + at, of_rank));
  }
  return {tree_sum(of_ranks), tree_sum(correct_of_ranks)};
}

PartRange evaluated_parts(int rank, int size, int logical_ranks) {
  const auto start = [&](int r) { return logical_ranks * r / size; };
  return {start(rank), start(rank + 1)};
}

Result<Evaluation> join_parts(std::vector<PartSum>& parts, const TestSet& test,
                              comm::Communicator& communicator, std::uint64_t step,
                              const EvaluationLimits& limits) {
  const int size = communicator.size(), count = static_cast<int>(parts.size());
  std::vector<std::size_t> offsets{0};
  for (int p = 0; p < size; ++p) {
    const PartRange range = evaluated_parts(p, size, count);
    offsets.push_back(static_cast<std::size_t>(range.last) * sizeof(PartSum));
  }
  if (size > 1) {
    MUSTER_RETURN_IF_ERROR(comm::all_gather(communicator, step,
                                            std::as_writable_bytes(std::span(parts)), offsets,
                                            limits.clock.mono_now() + limits.wait_max));
  }
  std::vector<float> sums;
  std::uint64_t correct = 0;
  for (const PartSum& part : parts) {
    sums.push_back(part.loss);
    correct += part.correct;
  }
  const std::size_t targets = test.taken() * test.targets();
  return Evaluation{static_cast<double>(correct) / static_cast<double>(targets),
                    tree_sum(sums) / static_cast<float>(targets)};
}

Result<Evaluation> evaluate(Model& model, std::span<const float> values, const TestSet& test,
                            EvaluatedParts& made, comm::Communicator& communicator,
                            std::uint64_t step, const EvaluationLimits& limits) {
  const int count = static_cast<int>(made.size());
  std::vector<PartSum> parts(made.size());
  model.use(values);
  const PartRange own = evaluated_parts(communicator.rank(), communicator.size(), count);
  for (int part = own.first; part < own.last; ++part) {
    auto& sum = made[static_cast<std::size_t>(part)];
    if (!sum) {
      MUSTER_ASSIGN_OR_RETURN(
          sum, evaluate_part(model, test, evaluated_samples(part, count, test.taken()), limits));
    }
    parts[static_cast<std::size_t>(part)] = *sum;
  }
  return join_parts(parts, test, communicator, step, limits);
}

}  // namespace muster::engine
