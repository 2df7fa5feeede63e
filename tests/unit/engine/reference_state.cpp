#include "tests/unit/engine/reference_state.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"
#include "tests/unit/engine/ranks.h"
#include "worker/data/dataset.h"
#include "worker/data/text.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/shard.h"

namespace muster::test {

using engine::ElementRange;
using engine::OptimizerState;
using engine::TrainingConfig;

namespace {

std::string hash_of_model(std::span<const float> values) {
  return to_hex(engine::combine(engine::block_digests(values)));
}

}  // namespace

TrainingConfig digits(std::int64_t steps) {
  TrainingConfig config;
  config.seed = 7;
  config.steps = steps;
  config.mlp.hidden = {32};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.test = {"digits-test-images.idx.gz", "digits-test-labels.idx.gz"};
  config.has_test = true;
  config.sgd = {0.1f, 0.9f};
  config.host_blocks = 1;
  config.data_root = "examples/data";
  return config;
}

TrainingConfig digits_with_layers(std::int64_t steps) {
  TrainingConfig config = digits(steps);
  config.cnn = engine::CnnConfig{{4, 8}, 3, true, {16}, 0.25f};
  return config;
}

TrainingConfig with_adamw(TrainingConfig config) {
  config.adamw = engine::AdamwConfig{0.003f, 0.9f, 0.99f, 1e-8f, 0.05f};
  config.gradient_norm_max = 1.0f;
  return config;
}

TrainingConfig small_gpt(std::int64_t steps) {
  TrainingConfig config = with_adamw(digits(steps));
  config.gpt = engine::GptConfig{2, 2, 32, 16};
  config.train = {"", "", "shakespeare-test.txt"};
  config.has_test = false;
  config.batch_size = 32;
  config.adamw->learning_rate = 0.01f;
  return config;
}

TrainingConfig dropped_gpt(std::int64_t steps) {
  TrainingConfig config = small_gpt(steps);
  config.gpt->dropout = 0.25f;
  config.gpt->attention_dropout = 0.125f;
  return config;
}

TrainingConfig digits_in_buckets(std::int64_t steps) {
  TrainingConfig config = with_adamw(digits(steps));
  config.mlp.hidden = {128, 128, 64, 64};
  config.bucket_blocks = 1;
  return config;
}

const std::map<std::int64_t, ReferenceState>& reference(const TrainingConfig& wanted) {
  using Key = std::tuple<std::int64_t, int, std::vector<int>, std::vector<int>, bool, int, int, int,
                         int, int, float, float, bool, bool, bool, std::string>;
  static std::map<Key, std::map<std::int64_t, ReferenceState>> known;
  const auto layers = wanted.cnn ? wanted.cnn->hidden : std::vector<int>();
  auto& states =
      known[{wanted.steps, wanted.logical_ranks, wanted.mlp.hidden, layers, wanted.cnn.has_value(),
             wanted.gpt ? wanted.gpt->layers : 0, wanted.gpt ? wanted.gpt->heads : 0,
             wanted.gpt ? wanted.gpt->width : 0, wanted.gpt ? wanted.gpt->context_length : 0,
             wanted.gpt ? wanted.gpt->vocabulary_size : 0, wanted.gpt ? wanted.gpt->dropout : 0.0f,
             wanted.gpt ? wanted.gpt->attention_dropout : 0.0f, wanted.adamw.has_value(),
             wanted.is_bfloat16, wanted.group_size() > 1, wanted.train.folder}];
  if (!states.empty()) return states;
  on_all_ranks(1, [&](comm::Communicator& communicator) {
    engine::TrainingHooks hooks;
    hooks.on_state = [&](std::int64_t step, std::span<const float> parameters,
                         const OptimizerState& optimizer) {
      ReferenceState& state = states[step];
      state.parameters = hash_of_model(parameters);
      for (const auto& buffer : optimizer.buffers) {
        state.state.push_back(engine::block_digests(buffer.values));
      }
      for (const auto& scalar : optimizer.scalars) state.scalars.push_back(scalar.value);
      if (wanted.group_size() == 1) return;
      state.whole.emplace_back(parameters.begin(), parameters.end());
      for (const auto& buffer : optimizer.buffers) state.whole.push_back(buffer.values);
    };
    hooks.on_batch = [&](std::int64_t step, data::RankRange ranks,
                         std::span<const std::uint64_t> samples) {
      MUSTER_CHECK(ranks.size() == wanted.logical_ranks);
      states[step].samples.assign(samples.begin(), samples.end());
    };
    const SystemClock clock;
    TrainingConfig config = wanted;
    config.checkpoint_path.clear();
    config.is_sharded = false;
    config.stages = config.slices = 1;
    config.micro_batch_size = 0;
    config.memory_bytes = 0;
    config.bucket_blocks = TrainingConfig().bucket_blocks;
    MUSTER_CHECK(run_training(config, communicator, clock, hooks).has_value());
  });
  return states;
}

bool is_right(const ReferenceState& right, std::span<const float> parameters,
              const OptimizerState& optimizer) {
  if (hash_of_model(parameters) != right.parameters) return false;
  if (optimizer.buffers.size() != right.state.size()) return false;
  if (optimizer.scalars.size() != right.scalars.size()) return false;
  for (std::size_t i = 0; i < right.scalars.size(); ++i) {
    if (optimizer.scalars[i].value != right.scalars[i]) return false;
  }
  for (std::size_t b = 0; b < right.state.size(); ++b) {
    const std::span<const float> values = optimizer.buffers[b].values;
    for (const ElementRange range : optimizer.held) {
      const auto digests = engine::block_digests(
          values.subspan(engine::offset_of(optimizer.room, range), range.size()));
      const auto first = static_cast<std::ptrdiff_t>(range.begin / kernels::kBlockElements);
      if (range.begin % kernels::kBlockElements != 0) return false;
      if (!std::equal(digests.begin(), digests.end(), right.state[b].begin() + first)) return false;
    }
  }
  return true;
}

StageReference::StageReference(const TrainingConfig& config) {
  const auto path = [&](const std::string& name) { return config.data_root + "/" + name; };
  if (config.gpt) {
    whole_ = *engine::ModelShape::of(config, {}, config.gpt->vocabulary_size);
  } else {
    const auto data = *data::load_dataset({path(config.train.images), path(config.train.labels)});
    whole_ = *engine::ModelShape::of(config, {data.height, data.width, 1}, data.classes);
  }
  plan_ = *engine::plan_stages(whole_, config.stages, config.slices);
}

bool StageReference::is_right(int place, const ReferenceState& right,
                              std::span<const float> parameters,
                              const OptimizerState& optimizer) const {
  const engine::ModelShape& shape = plan_.part(place);
  if (parameters.size() != shape.values()) return false;
  if (right.whole.size() != optimizer.buffers.size() + 1) return false;
  for (std::size_t i = 0; i < right.scalars.size(); ++i) {
    if (optimizer.scalars[i].value != right.scalars[i]) return false;
  }
  for (std::size_t b = 0; b < right.whole.size(); ++b) {
    const auto own = b == 0 ? parameters : std::span<const float>(optimizer.buffers[b - 1].values);
    const engine::Ranges all{{0, shape.values()}};
    const engine::Ranges& held = b == 0 ? all : optimizer.held;
    const engine::Ranges& room = b == 0 ? all : optimizer.room;
    for (const auto& stretch : engine::stretches_of(shape, whole_)) {
      const engine::ElementRange in_part{stretch.own, stretch.own + stretch.whole.size()};
      for (const engine::ElementRange part : engine::within(held, in_part)) {
        const std::size_t first = stretch.whole.begin + (part.begin - stretch.own);
        const auto wanted = std::as_bytes(std::span(right.whole[b]).subspan(first, part.size()));
        const auto there = std::as_bytes(own.subspan(engine::offset_of(room, part), part.size()));
        if (!std::ranges::equal(wanted, there)) return false;
      }
    }
  }
  return true;
}

}  // namespace muster::test
