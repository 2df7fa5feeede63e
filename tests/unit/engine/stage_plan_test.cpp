// Where a model is cut into stages, held against every way to cut it, and what the stages are.
#include "worker/engine/stage_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/split.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/stage_state.h"

using namespace muster;
using namespace muster::engine;

namespace {

ModelShape chain_of(std::vector<std::size_t> widths, float dropout = 0) {
  return ModelShape::mlp(widths, dropout);
}

ModelShape convolutional() {
  TrainingConfig config;
  config.cnn = CnnConfig{{4, 8}, 3, true, {16}, 0.25f};
  return *ModelShape::of(config, {8, 8, 1}, 10);
}

ModelShape transformer(int layers = 3) { return ModelShape::gpt({layers, 2, 32, 16}, 256); }

std::vector<ModelShape> models_to_cut() {
  return {chain_of({64, 32, 10}), chain_of({64, 128, 128, 64, 64, 10}, 0.5f),
          convolutional(),        transformer(1),
          transformer(3),         transformer(12)};
}

/// Every plan of so many stages whose layers are those of `plan`'s model.
std::uint64_t least_dearest(const ModelShape& whole, int stages) {
  const auto finest = *plan_stages(whole, static_cast<int>(pieces_of(whole)));
  std::vector<std::uint64_t> costs;
  for (const Stage& one : finest.stages) costs.push_back(one.cost);
  // A model that is not cut has its embedding in front, a piece of its own in none.
  std::function<std::uint64_t(std::size_t, int)> best = [&](std::size_t first, int left) {
    const auto sum = [&](std::size_t end) {
      return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(first),
                             costs.begin() + static_cast<std::ptrdiff_t>(end), std::uint64_t{0});
    };
    if (left == 1) return sum(costs.size());
    std::uint64_t least = UINT64_MAX;
    for (std::size_t end = first + 1; end + static_cast<std::size_t>(left) - 1 <= costs.size();
         ++end) {
      least = std::min(least, std::max(sum(end), best(end, left - 1)));
    }
    return least;
  };
  return best(0, stages);
}

std::uint64_t dearest(const StagePlan& plan) {
  std::uint64_t most = 0;
  for (const Stage& one : plan.stages) most = std::max(most, one.cost);
  return most;
}

}  // namespace

TEST_CASE("no way to cut a model has a cheaper dearest stage") {
  for (const ModelShape& whole : models_to_cut()) {
    for (int stages = 1; stages <= std::min<int>(6, static_cast<int>(pieces_of(whole))); ++stages) {
      CAPTURE(stages);
      CHECK(dearest(*plan_stages(whole, stages)) == least_dearest(whole, stages));
    }
  }
}

TEST_CASE("the stages have every value of the model once, in its place and with its first bits") {
  for (const ModelShape& whole : models_to_cut()) {
    std::vector<float> right(whole.values());
    initialise(whole, 7, right);
    for (int stages = 1; stages <= static_cast<int>(pieces_of(whole)); ++stages) {
      CAPTURE(stages);
      std::vector<float> values(whole.values());
      std::vector<int> owners(whole.values());
      std::size_t next_layer = stages > 1 && whole.reads_tokens() ? 1 : 0;
      const StagePlan plan = *plan_stages(whole, stages);
      REQUIRE(plan.size() == stages);
      for (const Stage& stage : plan.stages) {
        CHECK(stage.first_layer == next_layer);
        next_layer = stage.last_layer;
        CHECK(stage.shape.is_begin() == (stage.first_layer == 0));
        CHECK(stage.shape.is_end() == (stage.last_layer == whole.layers().size()));
        std::vector<float> own(stage.shape.values());
        initialise(stage.shape, 7, own);
        std::size_t of_stage = 0;
        for (const StageStretch& stretch : stretches_of(stage.shape, whole)) {
          const bool is_trained = stretch.own < stage.shape.parameters();
          CHECK((stretch.whole.begin < whole.parameters()) == is_trained);
          CHECK((stretch.whole.end <= whole.parameters()) == is_trained);
          for (std::size_t i = 0; i < stretch.whole.size(); ++i) {
            values[stretch.whole.begin + i] = own[stretch.own + i];
            ++owners[stretch.whole.begin + i];
          }
          of_stage += stretch.whole.size();
        }
        CHECK(of_stage == stage.shape.values());
        CHECK(stage.shape.parameters() > 0);
      }
      CHECK(next_layer == whole.layers().size());
      CHECK(std::all_of(owners.begin(), owners.end(), [](int count) { return count == 1; }));
      CHECK(block_digests(values) == block_digests(right));
    }
  }
}

TEST_CASE("of a transformer the last stage has the table, and what it embeds comes from there") {
  const ModelShape whole = transformer(3);
  const StagePlan plan = *plan_stages(whole, 3);
  CHECK(plan.is_tied);
  CHECK(plan.stages[0].first_layer == 1);
  CHECK(!plan.stages[0].shape.tied_embedding());
  CHECK(plan.stages[0].shape.input().size() == 16u * 32u);
  const ModelShape& last = plan.stages[2].shape;
  REQUIRE(last.tied_embedding());
  CHECK(last.tensors()[0].name == "wte.weight");
  CHECK(last.tensors()[1].name == "wpe.weight");
  CHECK(last.layers().back().weight == last.tied_embedding()->weight);
  CHECK(last.targets() == 16);
  CHECK(!plan_stages(whole, 1)->is_tied);
  CHECK(pieces_of(whole) == 2u * 3u + 1u);
}

TEST_CASE("equal blocks make equal stages") {
  const StagePlan plan = *plan_stages(chain_of({64, 64, 64, 64, 64, 64, 64}), 3);
  for (const Stage& stage : plan.stages) CHECK(stage.last_layer - stage.first_layer == 2);
}

TEST_CASE("among plans of equal cost the one whose largest stage is smallest") {
  // The first convolution is dearer than all that follows, which could be shared more evenly with
  // the third one beside the last layer, where most of the parameters are.
  TrainingConfig config;
  config.cnn = CnnConfig{{64, 2, 64}, 3, false, {}, 0};
  const StagePlan plan = *plan_stages(*ModelShape::of(config, {32, 32, 1}, 10), 3);
  CHECK(plan.stages[0].last_layer == 2);
  CHECK(plan.stages[1].last_layer == 6);
}

TEST_CASE("slices count every value of the model once, and first values are those of the whole") {
  const ModelShape mlp = chain_of({64, 24, 24, 24, 10}), gpt = transformer(2);
  for (const auto& [whole, slices] : {std::pair(&mlp, 2), std::pair(&mlp, 8), std::pair(&gpt, 2)}) {
    std::vector<float> all(whole->values());
    initialise(*whole, 7, all);
    for (const int stages : {1, 3}) {
      CAPTURE(slices);
      CAPTURE(stages);
      const StagePlan plan = *plan_stages(*whole, stages, slices);
      REQUIRE(plan.places() == stages * slices);
      std::vector<int> counted(whole->values());
      for (int place = 0; place < plan.places(); ++place) {
        const ModelShape& part = plan.part(place);
        std::vector<float> own(part.values()), taken(part.values());
        initialise(part, 7, own);
        REQUIRE(take_stage(
            *whole, part,
            [&](ElementRange range, std::span<float> out) {
              std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(range.begin), range.size(),
                          out.begin());
              return Status();
            },
            taken));
        CHECK(own == taken);
        std::size_t next = 0;
        for (const StageStretch& stretch : stretches_of(part, *whole)) {
          CHECK(stretch.own == next);
          next += stretch.whole.size();
        }
        CHECK(next == part.values());
        for (const StageStretch& stretch : counted_stretches_of(part, *whole)) {
          for (std::size_t i = stretch.whole.begin; i < stretch.whole.end; ++i) ++counted[i];
        }
      }
      CHECK(std::ranges::count(counted, 1) == std::ssize(counted));
    }
  }
  // Of a block's twelve squares of the width a slice has its share.
  const ModelShape block = transformer(1);
  const auto divided = plan_stages(block, 1, 2)->part(0).parameters();
  const std::size_t embedded = block.layers()[1].weight;
  CHECK(divided - embedded < (block.parameters() - embedded) * 11 / 20);
}

TEST_CASE("processes with parts of a model know of those whose items they make, and hash as one") {
  // More blocks than are moved at once.
  const ModelShape whole = ModelShape::gpt({6, 4, 128, 16}, 256);
  std::vector<float> values(whole.values());
  initialise(whole, 7, values);
  const Sha256Digest right = combine(block_digests(values));
  for (const auto& [stages, slices] : {std::pair(1, 1), std::pair(3, 1), std::pair(2, 2)}) {
    CAPTURE(stages);
    const StagePlan plan = *plan_stages(whole, stages, slices);
    const auto parts = block_parts(plan, whole, whole.values());
    std::size_t all = 0, known = 0, kept_at_home = 0;
    for (int own = 0; own < plan.places(); ++own) {
      const auto at = static_cast<std::size_t>(own);
      const BlockPlan blocks = plan_blocks(parts, own);
      all += parts[at].size();
      REQUIRE(blocks.parts.size() == parts.size());
      CHECK(blocks.parts[at].size() == parts[at].size());
      for (const auto& of_place : blocks.parts) known += of_place.size();
      for (const BlockPart& part : parts[at])
        kept_at_home += blocks.makers[part.block] == at ? 1 : 0;
    }
    // A part that is moved two know of: who has it, and who makes something of it.
    CHECK(known == 2 * all - kept_at_home);
    test::on_all_ranks(plan.places(), [&](comm::Communicator& processes) {
      const ModelShape& part = plan.part(processes.rank());
      std::vector<float> own(part.values());
      initialise(part, 7, own);
      const BlockPlan blocks = plan_blocks(parts, processes.rank());
      const auto at = static_cast<std::size_t>(processes.rank());
      const auto made = static_cast<std::size_t>(std::ranges::count(blocks.makers, at));
      for (const int threads : {1, 3}) {
        kernels::cpu::Context context(threads);
        std::size_t signs = 0;
        context.set_on_alive([&] { ++signs; });
        const Meeting meeting{static_cast<std::uint64_t>(threads),
                              SystemClock().mono_now() + seconds(60)};
        const auto hash = hash_of_stages({whole, plan, processes, blocks}, context, own, meeting);
        REQUIRE(hash.has_value());
        CHECK(*hash == right);
        // Else whoever hashes much is taken for one that hangs: a sign for four blocks.
        if (threads == 1) CHECK(signs >= made / 4);
      }
    });
  }
}

TEST_CASE("layers that cannot be divided evenly are refused by the field's name") {
  const auto refusal = [](const ModelShape& whole, int slices) {
    const auto plan = plan_stages(whole, 1, slices);
    return plan ? std::string() : plan.error().message();
  };
  CHECK(refusal(chain_of({64, 24, 10}), 3).empty());
  CHECK(refusal(chain_of({64, 24, 10}), 5) ==
        "spec.training.parallelism.tensor: is 5, but a hidden layer is 24 wide; must divide all of "
        "spec.training.model.mlp.hidden");
  CHECK(refusal(chain_of({64, 10}), 2).find("has no hidden layer") != std::string::npos);
  CHECK(refusal(transformer(2), 3).find("must divide spec.training.model.gpt.heads") !=
        std::string::npos);
  TrainingConfig config;
  config.cnn = CnnConfig{{4}, 3, false, {}, 0};
  CHECK(refusal(*ModelShape::of(config, {8, 8, 1}, 10), 2).find("must be 1 with a cnn") !=
        std::string::npos);
}

TEST_CASE("a model that has fewer pieces than a pipeline stages is refused") {
  const auto refused = plan_stages(chain_of({64, 32, 10}), 3);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().message() ==
        "spec.training.parallelism.pipeline: is 3, but the model can be cut into at most 2 stages");
  CHECK(refused.error().exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(!plan_stages(transformer(2), 6).has_value());
  CHECK(plan_stages(transformer(2), 5).has_value());
}

TEST_CASE("before a worker starts it is known into how many stages its model can be cut") {
  const auto pieces = [](const ModelShape& whole) { return static_cast<int>(pieces_of(whole)); };
  for (const int blocks : {1, 2, 12}) {
    CHECK(pieces(transformer(blocks)) == stages_at_most({.blocks = blocks}));
  }
  CHECK(pieces(ModelShape::gpt({2, 2, 32, 16, 256, 0.1f, 0.1f}, 256)) ==
        stages_at_most({.blocks = 2}));
  CHECK(pieces(chain_of({64, 32, 10})) == stages_at_most({.hidden = 1}));
  CHECK(pieces(chain_of({64, 32, 16, 8, 10}, 0.5f)) == stages_at_most({.hidden = 3}));
  for (const bool normalise : {false, true}) {
    TrainingConfig config;
    config.cnn = CnnConfig{{4, 8}, 3, normalise, {16}, 0.25f};
    CHECK(pieces(*ModelShape::of(config, {8, 8, 1}, 10)) ==
          stages_at_most({.convolutions = 2, .normalisations = normalise ? 2 : 0, .hidden = 1}));
  }
}
