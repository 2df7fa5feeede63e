#include <doctest/doctest.h>

#include <string>

#include "common/contract.h"
#include "worker/engine/training.h"

using namespace muster;
using namespace muster::engine;

namespace {

Json digits() {
  return *parse_json(R"({
    "algorithm": "Backpropagation", "mode": "Strict", "seed": 7, "logicalRanks": 16,
    "batchSize": 64, "epochs": 20, "model": {"mlp": {"hidden": [128]}},
    "data": {"train": {"idx": {"images": "a", "labels": "b"}},
             "test": {"idx": {"images": "c", "labels": "d"}}},
    "optimizer": {"sgd": {"learningRate": "0.1", "momentum": "0.9"}},
    "evaluation": {"everyEpochs": 2},
    "checkpoint": {"path": "/p", "everySteps": 50, "keep": 3, "volumeClaimName": "c"},
    "optimizerState": "Replicated", "parallelism": {"tensor": 1, "pipeline": 1}})");
}

/// The sentence when the value at the JSON pointer `at` is replaced (or removed, when null).
std::string refused(const std::string& at, const Json& value) {
  Json json = digits();
  const Json::json_pointer pointer(at);
  if (value.is_null()) {
    json[pointer.parent_pointer()].erase(pointer.back());
  } else {
    json[pointer] = value;
  }
  const auto config = parse_training(json);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().exit_code() == contract::exit_code::kInvalidSpec);
  return config.error().message();
}

bool begins(const std::string& text, const std::string& part) { return text.starts_with(part); }

}  // namespace

TEST_CASE("a whole spec is read as written") {
  const auto config = parse_training(digits());
  REQUIRE(config.has_value());
  CHECK(config->seed == 7);
  CHECK(config->logical_ranks == 16);
  CHECK(config->batch_size == 64);
  CHECK(config->epochs == 20);
  CHECK(config->mlp.hidden == std::vector<int>{128});
  CHECK(config->train.images == "a");
  CHECK(config->test.labels == "d");
  CHECK(config->has_test);
  CHECK(config->sgd.learning_rate == 0.1f);
  CHECK(config->sgd.momentum == 0.9f);
  CHECK(config->evaluate_every_epochs == 2);
  CHECK(config->checkpoint_path == "/p");
  CHECK(config->checkpoint_durable);
  CHECK(config->checkpoint_every_steps == 50);
  CHECK(config->checkpoint_keep == 3);
}

TEST_CASE("what may be left out has its default") {
  Json json = digits();
  for (const char* field : {"algorithm", "mode", "evaluation", "checkpoint", "optimizerState",
                            "parallelism", "seed", "logicalRanks", "batchSize"}) {
    json.erase(field);
  }
  json["data"].erase("test");
  const auto config = parse_training(json);
  REQUIRE(config.has_value());
  CHECK(config->checkpoint_path.empty());
  CHECK_FALSE(config->has_test);
  CHECK(config->logical_ranks == 16);
  CHECK(config->batch_size == 64);
}

TEST_CASE("every wrong field is refused by its path") {
  CHECK(begins(refused("/algorithm", "ForwardForward"), "spec.training.algorithm: "));
  CHECK(begins(refused("/mode", "Loose"), "spec.training.mode: "));
  CHECK(begins(refused("/seed", -1), "spec.training.seed: "));
  CHECK(begins(refused("/logicalRanks", 12), "spec.training.logicalRanks: must be a power of two"));
  CHECK(begins(refused("/logicalRanks", 8192), "spec.training.logicalRanks: "));
  CHECK(begins(refused("/batchSize", 65), "spec.training.batchSize: must be a multiple"));
  CHECK(begins(refused("/batchSize", "64"), "spec.training.batchSize: "));
  CHECK(begins(refused("/epochs", 0), "spec.training.epochs: exactly one"));
  CHECK(begins(refused("/steps", 5), "spec.training.epochs: exactly one"));
  CHECK(begins(refused("/model", nullptr), "spec.training.model: is required"));
  CHECK(begins(refused("/model", Json{{"gpt", Json::object()}}), "spec.training.model.gpt: "));
  CHECK(begins(refused("/model/mlp/hidden", Json{0}), "spec.training.model.mlp.hidden: "));
  CHECK(begins(refused("/model/mlp/depth", 3), "spec.training.model.mlp.depth: "));
  CHECK(begins(refused("/data/train", nullptr), "spec.training.data.train: is required"));
  CHECK(begins(refused("/data/train/idx/labels", nullptr), "spec.training.data.train.idx.labels"));
  CHECK(begins(refused("/data/test/idx/images", ""), "spec.training.data.test.idx.images: "));
  const std::string rate = "/optimizer/sgd/learningRate";
  for (const Json& value : {Json("0"), Json("-1"), Json("inf"), Json("nan"), Json("0.1x"), Json(""),
                            Json("1e99"), Json(0.1)}) {
    CAPTURE(dump_json(value));
    CHECK(begins(refused(rate, value), "spec.training.optimizer.sgd.learningRate: "));
  }
  CHECK(begins(refused(rate, nullptr), "spec.training.optimizer.sgd.learningRate: is required"));
  CHECK(begins(refused("/optimizer/sgd/momentum", "1"), "spec.training.optimizer.sgd.momentum: "));
  CHECK(begins(refused("/optimizer/adam", Json::object()), "spec.training.optimizer.adam: "));
  CHECK(begins(refused("/evaluation/everyEpochs", 0), "spec.training.evaluation.everyEpochs: "));
  CHECK(begins(refused("/checkpoint/keep", 0), "spec.training.checkpoint.keep: "));
  CHECK(begins(refused("/optimizerState", "Sharded"), "spec.training.optimizerState: "));
  CHECK(begins(refused("/parallelism/tensor", 2), "spec.training.parallelism.tensor: "));
  CHECK(begins(refused("/colour", "red"), "spec.training.colour: "));
}
