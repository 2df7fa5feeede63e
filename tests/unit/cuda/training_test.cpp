// Whole trainings whose passes are computed by a device: the same bits as on the processor alone,
// also where some workers have one and others do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "kernels/cuda/ops.h"
#include "tests/golden.h"
#include "tests/unit/cuda/cases.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_state.h"
#include "worker/engine/memory_needs.h"
#include "worker/engine/model.h"
#include "worker/engine/sample.h"
#include "worker/engine/training.h"

#ifdef MUSTER_CUDA_ON_HOST
#include "cuda_runtime_api.h"
#endif

using namespace muster;
using namespace muster::engine;
using muster::test::has_gpu;

namespace {

struct Trained {
  std::string model_sha256;
  double accuracy = 0;
};

/// `devices`: the ranks that have one; they share it.
Trained train(const TrainingConfig& config, int processes, int devices) {
  std::vector<Trained> all(static_cast<std::size_t>(processes));
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    TrainingHooks hooks;
    std::unique_ptr<kernels::Context> device;
    const auto products =
        config.is_bfloat16 ? kernels::Products::kBfloat16 : kernels::Products::kFloat32;
    if (communicator.rank() < devices) {
      device = std::make_unique<kernels::cuda::Context>(kernels::cuda::DeviceShare(), products);
    }
    hooks.device = device.get();
    const auto summary = run_training(config, communicator, clock, hooks);
    MUSTER_CHECK_MSG(summary.has_value(), summary ? "" : summary.error().message());
    all[static_cast<std::size_t>(communicator.rank())] = {summary->model_sha256, summary->accuracy};
  });
  for (const Trained& one : all) CHECK(one.model_sha256 == all[0].model_sha256);
  return all[0];
}

void check_same(const TrainingConfig& config) {
  const Trained expected = train(config, 1, 0);
  // Of six processes some have two nodes of the tree in one pass.
  for (const auto& [processes, devices] : {std::pair(1, 1), std::pair(3, 1), std::pair(6, 6)}) {
    CAPTURE(processes);
    CAPTURE(devices);
    const Trained got = train(config, processes, devices);
    CHECK(got.model_sha256 == expected.model_sha256);
    CHECK(got.accuracy == expected.accuracy);
  }
}

}  // namespace

TEST_CASE("an MLP trained on a device has the bits of the processor") {
  if (!has_gpu("training an MLP")) return;
  check_same(test::digits(4));
}

TEST_CASE("convolutions, batch normalisation and dropout, too") {
  if (!has_gpu("training a CNN")) return;
  check_same(test::digits_with_layers(2));
}

TEST_CASE("patches of convolutions in pieces, too") {
  if (!has_gpu("laying out patches in pieces")) return;
  const ModelShape shape =
      ModelShape({6, 5, 4}).stage({8, 3, true}).stage({5, 3, false}).linear(3, false).finish();
  std::vector<float> values(shape.values());
  initialise(shape, 7, values);
  constexpr std::size_t kRowBytes = sizeof(float) * 6 * 5 * 4 * 9;
  // Whole subtrees at once, one logical rank, or pieces of one.
  const auto gradient = [&](kernels::Context& context, std::size_t rows) {
    constexpr std::size_t kRanks = 8, kRows = 3;
    Model model(shape, kRanks * kRows, context, Activations::kKept, rows * kRowBytes);
    for (std::size_t i = 0; i < model.input().size(); ++i) {
      model.input()[i] = static_cast<float>(i * 37 % 101) / 101.0F;
    }
    for (std::size_t i = 0; i < model.labels().size(); ++i) {
      model.labels()[i] = static_cast<std::int32_t>(i % 3);
    }
    std::vector<float> sum(shape.values());
    const Model::Node node{0, kRanks, sum.data(), 0};
    const Model::Batch batch{7, 0, kRows, std::span(&node, 1)};
    model.use(values);
    model.forward(batch);
    model.losses_with_gradient(batch, 1.0F / (kRanks * kRows));
    model.backward(batch);
    CHECK(model.status());
    return sum;
  };
  kernels::cpu::Context host;
  kernels::cuda::Context device;
  const std::vector<float> expected = gradient(host, 100);
  for (const std::size_t rows : {1, 2, 3, 7, 12, 100}) {
    CAPTURE(rows);
    CHECK(gradient(device, rows) == expected);
  }
}

TEST_CASE("a GPT, in one pass or several, with activations kept or made again") {
  if (!has_gpu("training a GPT")) return;
  CHECK(train(test::small_gpt(12), 2, 1).model_sha256 == test::kSmallGptGolden);
  TrainingConfig config = test::dropped_gpt(2);
  config.recomputes_activations = true;
  config.micro_batch_size = 3 * config.batch_size / config.logical_ranks;
  CHECK(train(config, 1, 1).model_sha256 == train(config, 1, 0).model_sha256);
}

TEST_CASE("a GPT's head that makes its logits in several pieces, too") {
  if (!has_gpu("making logits in pieces")) return;
  constexpr std::size_t kTokens = 5'000, kPositions = 300;
  const ModelShape shape = ModelShape::gpt({1, 1, 4, kPositions}, kTokens);
  std::vector<float> values(shape.values());
  initialise(shape, 7, values);
  struct Found {
    std::vector<float> losses, evaluated, gradient;
    bool operator==(const Found&) const = default;
  };
  const auto found_on = [&](kernels::Context& context) {
    Model model(shape, 1, context);
    // Fewer logits than there are.
    CHECK(model.arena_bytes() < kPositions * kTokens * sizeof(float));
    for (std::size_t i = 0; i < kPositions; ++i) {
      model.tokens()[i] = static_cast<std::int32_t>(i * 37 % kTokens);
      model.labels()[i] = static_cast<std::int32_t>(i * 41 % kTokens);
    }
    Found found;
    found.gradient.resize(shape.values());
    const Model::Node node{0, 1, found.gradient.data(), 0};
    const Model::Batch batch{7, 0, 1, std::span(&node, 1)};
    model.use(values);
    model.forward(batch);
    model.losses_with_gradient(batch, 1.0F / kPositions);
    found.losses.assign(model.loss().begin(), model.loss().end());
    model.backward(batch);
    model.forward(1);
    model.losses(1);
    found.evaluated.assign(model.loss().begin(), model.loss().end());
    CHECK(model.status());
    return found;
  };
  kernels::cpu::Context host;
  kernels::cuda::Context device;
  CHECK((found_on(device) == found_on(host)));
}

TEST_CASE("products of bfloat16, too") {
  if (!has_gpu("training a GPT in bfloat16")) return;
  TrainingConfig config = test::small_gpt(12);
  config.is_bfloat16 = true;
  CHECK(train(config, 2, 1).model_sha256 == test::kSmallGptBfloat16Golden);
}

#ifdef MUSTER_CUDA_ON_HOST
namespace {

struct TrainedOnDevice {
  std::optional<Result<TrainingSummary>> outcome;
  std::size_t samples_at_once = 0, held_most = 0;
};

/// By one process, on a device of whose memory it may have so much.
TrainedOnDevice trained_within(const TrainingConfig& config, std::size_t memory) {
  on_host::set_memory(memory + (std::size_t{512} << 20));
  TrainedOnDevice trained;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    kernels::cuda::Context device;
    CHECK(device.memory_most() == memory);
    std::size_t of_pass = 0;
    TrainingHooks hooks;
    hooks.device = &device;
    hooks.on_batch = [&](std::int64_t, data::RankRange, std::span<const std::uint64_t> samples) {
      of_pass += samples.size();
      trained.samples_at_once = std::max(trained.samples_at_once, of_pass);
    };
    hooks.at = [&](std::string_view point, std::int64_t) {
      if (point == point::kForward) of_pass = 0;
      if (point == point::kBackward) {
        trained.held_most = std::max(trained.held_most, device.memory_held());
      }
      return Status();
    };
    const SystemClock clock;
    trained.outcome = run_training(config, communicator, clock, hooks);
  });
  on_host::set_memory(on_host::kMemory);
  return trained;
}

}  // namespace

TEST_CASE("a pass of a GPT takes no more samples than the device has memory for") {
  const TrainingConfig config = test::small_gpt(1);
  const auto shape = ModelShape::of(config, {1, 16, 1}, 256);
  REQUIRE(shape);
  const MemoryShare share{*assign(config.logical_ranks, 1), 0, 2, 0, 0};
  const auto needs = [&](int at_once) { return device_needs(config, *shape, share, at_once); };
  const std::string expected = train(config, 1, 0).model_sha256;
  for (const int at_once : {16, 4, 1}) {
    CAPTURE(at_once);
    const TrainedOnDevice trained = trained_within(config, needs(at_once));
    REQUIRE(trained.outcome->has_value());
    CHECK((*trained.outcome)->model_sha256 == expected);
    CHECK(trained.samples_at_once == 2 * static_cast<std::size_t>(at_once));
    CHECK(trained.held_most == needs(at_once));  // to the byte
  }
  const TrainedOnDevice refused = trained_within(config, needs(1) - 1);
  REQUIRE_FALSE(*refused.outcome);
  CHECK(refused.outcome->error().exit_code() == contract::exit_code::kDevice);
  CHECK(refused.outcome->error().message().find("a pass needs at least 1 MiB of the GPU's memory, "
                                                "of which this process may have 1 MiB beside") !=
        std::string::npos);
}

TEST_CASE("of a GPT on a device each part of a pass that is complete is a sign of life") {
  const TrainingConfig config = test::small_gpt(1);
  const auto shape = ModelShape::of(config, {1, 16, 1}, 256);
  REQUIRE(shape);
  kernels::cuda::Context device;
  Model model(*shape, 2, device);
  const std::vector<float> values(shape->values());
  std::vector<float> gradient(shape->values());
  const Model::Node node{0, 1, gradient.data(), 0};
  const Model::Batch batch{7, 0, 2, std::span(&node, 1)};
  std::size_t signs = 0;
  device.set_on_alive([&] { ++signs; });
  model.use(values);
  model.forward(batch);
  model.losses_with_gradient(batch, 1.0F);
  // The head comes with the losses.
  CHECK(signs >= shape->layers().size());
  std::size_t beats = 0;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    TrainingHooks hooks;
    hooks.device = &device;
    hooks.on_alive = [&] { ++beats; };
    CHECK(run_training(config, communicator, clock, hooks).has_value());
  });
  // Layers are told of when they are begun, on either way, and when they are complete.
  CHECK(beats >= 4 * shape->layers().size());
}

TEST_CASE("values are brought to a device once a step, and once for all passes of an evaluation") {
  TrainingConfig config = test::digits(3);
  config.micro_batch_size = config.batch_size / 4;
  std::size_t passes = 0, steps = 0, evaluations = 0, bytes = 0;
  const on_host::Traffic before = on_host::traffic();
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    kernels::cuda::Context device;
    TrainingHooks hooks;
    hooks.device = &device;
    hooks.at = [&](std::string_view point, std::int64_t) {
      passes += point == point::kForward ? 1 : 0;
      steps += point == point::kUpdate ? 1 : 0;
      evaluations += point == point::kEvaluate ? 1 : 0;
      return Status();
    };
    hooks.on_state = [&](std::int64_t, std::span<const float> values, const OptimizerState&) {
      bytes = values.size_bytes();
    };
    const SystemClock clock;
    CHECK(run_training(config, communicator, clock, hooks).has_value());
  });
  const on_host::Traffic after = on_host::traffic();
  CHECK(steps == 3);
  CHECK(passes == 4 * steps);
  REQUIRE(evaluations > 0);
  CHECK(after.to_device - before.to_device == (steps + evaluations) * bytes);
  CHECK(after.to_host - before.to_host == passes * bytes);
}

namespace {

constexpr std::size_t kNodes = 2, kRowsOfNode = 2;

/// A model that drops, of small_gpt()'s size, and its batch of kNodes logical ranks.
struct OneStep {
  explicit OneStep(kernels::Context& context)
      : shape(*ModelShape::of(test::dropped_gpt(1), {1, 16, 1}, 256)),
        values(shape.values()),
        gradients(kNodes, std::vector<float>(shape.values())),
        model(shape, kNodes * kRowsOfNode, context) {
    initialise(shape, 7, values);
    for (std::size_t i = 0; i < model.tokens().size(); ++i) {
      model.tokens()[i] = static_cast<std::int32_t>(i * 37 % 256);
      model.labels()[i] = static_cast<std::int32_t>(i * 41 % 256);
    }
    for (std::size_t n = 0; n < kNodes; ++n) {
      nodes.push_back({n * kRowsOfNode, 1, gradients[n].data(), n});
    }
  }
  Model::Batch batch() const { return {7, 0, kRowsOfNode, nodes}; }
  void make(const std::function<Status()>& between, const Model::Finished& finished) {
    model.use(values);
    CHECK(model.forward(batch(), between));
    model.losses_with_gradient(batch(), 1.0F);
    model.backward(batch(), finished);
    CHECK(model.status());
  }

  ModelShape shape;
  std::vector<float> values;
  std::vector<std::vector<float>> gradients;
  std::vector<Model::Node> nodes;
  Model model;
};

}  // namespace

TEST_CASE("a device computes while values are brought to it and gradients are fetched from it") {
  kernels::cpu::Context host;
  OneStep right(host);
  right.make(nullptr, nullptr);
  kernels::cuda::Context device;
  OneStep step(device);
  step.make(nullptr, nullptr);  // takes all the memory that a step needs
  for (auto& gradient : step.gradients) std::fill(gradient.begin(), gradient.end(), 0.0F);

  std::vector<std::size_t> ahead, behind;
  std::size_t end = step.shape.values(), wrong = 0;
  const auto between = [&] {
    ahead.push_back(on_host::under_way());
    return Status();
  };
  const auto finished = [&](std::size_t first) {
    behind.push_back(on_host::under_way());
    for (std::size_t n = 0; n < kNodes; ++n) {
      for (std::size_t i = first; i < end; ++i) {
        wrong += step.gradients[n][i] != right.gradients[n][i] ? 1 : 0;
      }
    }
    end = first;
  };
  step.make(between, finished);
  CHECK(end == 0);
  CHECK(wrong == 0);
  // Of eight layers nothing is waited for while the values of the next one are brought.
  REQUIRE(ahead.size() > 8);
  for (std::size_t l = 1; l < 8; ++l) CHECK(ahead[l] > ahead[l - 1]);
  REQUIRE(behind.size() == step.shape.layer_starts().size());
  for (std::size_t l = 0; l + 1 < behind.size(); ++l) CHECK(behind[l] > 0);
  CHECK(behind.back() == 0);
}

TEST_CASE("a backward pass waits for each layer and for its gradients, and for nothing else") {
  kernels::cuda::Context device;
  OneStep step(device);
  step.make(nullptr, nullptr);
  step.model.use(step.values);
  step.model.forward(step.batch());
  step.model.losses_with_gradient(step.batch(), 1.0F);
  const std::size_t before = on_host::traffic().waits;
  step.model.backward(step.batch());
  CHECK(on_host::traffic().waits - before == (1 + kNodes) * step.shape.layer_starts().size());
}

TEST_CASE("a device writes what the processor does, from values that it is given once") {
  kernels::cpu::Context host;
  OneStep right(host);
  kernels::cuda::Context device;
  OneStep step(device);
  const std::size_t before = on_host::traffic().to_device;
  const auto written = write_sample(step.model, step.values, {7, 4});
  CHECK(on_host::traffic().to_device - before == step.values.size() * sizeof(float));
  CHECK(written.value() == write_sample(right.model, right.values, {7, 4}).value());
}

TEST_CASE("a device without memory ends the training with the exit code for devices") {
  kernels::cuda::Context device;
  on_host::set_memory_left(10'000);
  const SystemClock clock;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    TrainingHooks hooks;
    hooks.device = &device;
    const auto summary = run_training(test::digits(2), communicator, clock, hooks);
    REQUIRE_FALSE(summary);
    CHECK(summary.error().exit_code() == contract::exit_code::kDevice);
    CHECK(summary.error().message().find("the GPU failed: out of memory") != std::string::npos);
  });
  on_host::set_memory_left(SIZE_MAX);
}
#endif
