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
    "evaluation": {"everyEpochs": 2, "everySteps": 250, "maxSamples": 160},
    "checkpoint": {"path": "/p", "everySteps": 50, "keep": 3, "volumeClaimName": "c"},
    "optimizerState": "Replicated", "parallelism": {"tensor": 1, "pipeline": 1}})");
}

/// Why it is refused.
std::string sentence_of(const Json& json) {
  const auto config = parse_training(json);
  REQUIRE_FALSE(config.has_value());
  CHECK(config.error().exit_code() == contract::exit_code::kInvalidSpec);
  return config.error().message();
}

/// The sentence when the value at the JSON pointer `at` is replaced (or removed, when null).
std::string refused(const std::string& at, const Json& value, Json json = digits()) {
  const Json::json_pointer pointer(at);
  if (value.is_null()) {
    json[pointer.parent_pointer()].erase(pointer.back());
  } else {
    json[pointer] = value;
  }
  return sentence_of(json);
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
  CHECK(config->evaluate_every_steps == 250);
  CHECK(config->evaluate_samples_most == 160);
  CHECK(config->checkpoint_path == "/p");
  CHECK(config->checkpoint_durable);
  CHECK(config->checkpoint_every_steps == 50);
  CHECK(config->checkpoint_keep == 3);
}

TEST_CASE("a batch may be as large as the definition lets it be") {
  for (const char* field : {"batchSize", "microBatchSize"}) {
    Json json = digits();
    json["batchSize"] = 1 << 24;
    json[field] = 1 << 24;
    CHECK(parse_training(json).has_value());
    json[field] = (1 << 24) + 64;
    const auto refused = parse_training(json);
    REQUIRE_FALSE(refused.has_value());
    CHECK(begins(refused.error().message(), std::string("spec.training.") + field + ": "));
  }
}

TEST_CASE("AdamW and clipping are read as written, or have their defaults") {
  Json json = digits();
  json["optimizer"] = *parse_json(R"({"adamw": {"learningRate": "0.002"}})");
  auto config = parse_training(json);
  REQUIRE(config.has_value());
  REQUIRE(config->adamw.has_value());
  CHECK(config->adamw->learning_rate == 0.002f);
  CHECK(config->adamw->beta1 == 0.9f);
  CHECK(config->adamw->beta2 == 0.999f);
  CHECK(config->adamw->epsilon == 1e-8f);
  CHECK(config->adamw->weight_decay == 0.01f);
  CHECK(config->adamw->decays_all);
  CHECK(config->gradient_norm_max == 0);
  json["optimizer"] = *parse_json(R"({"adamw": {"learningRate": "0.002", "beta1": "0.8",
    "beta2": "0.99", "epsilon": "1e-6", "weightDecay": "0", "weightDecayOf": "Matrices"}})");
  json["gradientClipping"] = Json{{"maxNorm", "1.5"}};
  config = parse_training(json);
  REQUIRE(config.has_value());
  CHECK(config->adamw->beta1 == 0.8f);
  CHECK(config->adamw->beta2 == 0.99f);
  CHECK(config->adamw->epsilon == 1e-6f);
  CHECK(config->adamw->weight_decay == 0);
  CHECK_FALSE(config->adamw->decays_all);
  CHECK(config->gradient_norm_max == 1.5f);
}

TEST_CASE("a transformer is read with its text, and refused with images") {
  Json json = digits();
  json["model"] =
      *parse_json(R"({"gpt": {"layers": 4, "heads": 2, "width": 128, "contextLength": 64}})");
  json["data"] =
      *parse_json(R"({"train": {"text": {"file": "a"}}, "test": {"text": {"file": "b"}}})");
  const auto config = parse_training(json);
  REQUIRE(config.has_value());
  REQUIRE(config->gpt.has_value());
  CHECK(config->gpt->layers == 4);
  CHECK(config->gpt->heads == 2);
  CHECK(config->gpt->width == 128);
  CHECK(config->gpt->context_length == 64);
  CHECK(config->gpt->dropout == 0);
  CHECK(config->gpt->attention_dropout == 0);
  CHECK(config->train.text == "a");
  CHECK(config->test.text == "b");
  const auto sentence = [&](const std::string& at, const Json& value) {
    return refused(at, value, json);
  };
  CHECK(sentence("/model/gpt/width", 127) ==
        "spec.training.model.gpt.width: must be a multiple of heads (2); it is 127");
  CHECK(begins(sentence("/model/gpt/layers", 97), "spec.training.model.gpt.layers: "));
  CHECK(begins(sentence("/model/gpt/heads", 0), "spec.training.model.gpt.heads: "));
  CHECK(begins(sentence("/model/gpt/contextLength", 4097),
               "spec.training.model.gpt.contextLength: "));
  CHECK(begins(sentence("/model/gpt/depth", 1), "spec.training.model.gpt.depth: "));
  CHECK(begins(sentence("/model/gpt/dropout", "1"), "spec.training.model.gpt.dropout: "));
  CHECK(begins(sentence("/model/gpt/attentionDropout", "0.9991"),
               "spec.training.model.gpt.attentionDropout: must be a decimal string from 0 to "
               "0.999, "));
  json["model"]["gpt"]["attentionDropout"] = "0.999";
  CHECK(parse_training(json).has_value());
  json["model"]["gpt"]["attentionDropout"] = "0.1";
  const auto dropped = parse_training(json);
  REQUIRE(dropped.has_value());
  CHECK(dropped->gpt->attention_dropout == 0.1f);
  CHECK(dropped->gpt->dropout == 0);
  CHECK(begins(sentence("/batchSize", 1 << 19),
               "spec.training.model.gpt.contextLength: times batchSize must be at most 16777216"));
  CHECK(begins(sentence("/data/test", Json{{"idx", {{"images", "a"}, {"labels", "b"}}}}),
               "spec.training.data.test: must be text"));
  CHECK(begins(sentence("/data/train/text/file", ""), "spec.training.data.train.text.file: "));
  CHECK(begins(sentence("/model/mlp", Json{{"hidden", {3}}}),
               "spec.training.model: must have exactly one of mlp, cnn or gpt"));
  CHECK(begins(sentence("/model", Json{{"mlp", {{"hidden", {3}}}}}),
               "spec.training.data.train: must be idx"));
}

TEST_CASE("an mlp and a cnn are read with a directory of pictures") {
  Json json = digits();
  json["data"] = *parse_json(R"({"train": {"imageFolder": {"directory": "a"}},
                                 "test": {"imageFolder": {"directory": "b", "height": 8,
                                                          "width": 9, "colors": "Gray"}}})");
  for (const char* model : {R"({"mlp": {"hidden": [3]}})", R"({"cnn": {"channels": [3]}})"}) {
    json["model"] = *parse_json(model);
    const auto config = parse_training(json);
    REQUIRE_MESSAGE(config, config.error().message());
    CHECK(config->train.folder == "a");
    CHECK(config->train.height == 0);
    CHECK_FALSE(config->train.is_gray);
    CHECK(config->test.folder == "b");
    CHECK(config->test.height == 8);
    CHECK(config->test.width == 9);
    CHECK(config->test.is_gray);
  }
  const auto sentence = [&](const std::string& at, const Json& value) {
    return refused("/data" + at, value, json);
  };
  const std::string test = "spec.training.data.test.imageFolder";
  CHECK(begins(sentence("/test/imageFolder/directory", ""), test + ".directory: "));
  CHECK(begins(sentence("/test/imageFolder/height", 2049), test + ".height: "));
  CHECK(sentence("/test/imageFolder/width", nullptr) ==
        test + ": must have both height and width, or neither");
  CHECK(sentence("/test/imageFolder/colors", "CMYK") == test + ".colors: must be RGB or Gray");
  CHECK(sentence("/test", Json{{"idx", {{"images", "a"}, {"labels", "b"}}}}) ==
        "spec.training.data.test: must be of the same kind as train: idx, imageFolder or csv");
}

TEST_CASE("an mlp is read with a table") {
  Json json = digits();
  json["data"] = *parse_json(R"({"train": {"csv": {"file": "a", "label": "kind"}},
                                 "test": {"csv": {"file": "b", "label": "kind"}}})");
  const auto config = parse_training(json);
  REQUIRE_MESSAGE(config, config.error().message());
  CHECK(config->train.csv == "a");
  CHECK(config->train.label == "kind");
  CHECK(config->train.rules == data::TableRules{});
  CHECK(config->test.csv == "b");
  const auto sentence = [&](const std::string& at, const Json& value) {
    return refused(at, value, json);
  };
  CHECK(begins(sentence("/data/train/csv/label", ""), "spec.training.data.train.csv.label: "));
  CHECK(begins(sentence("/data/train/csv/file", ""), "spec.training.data.train.csv.file: "));
  json["data"]["train"]["csv"].update({{"scale", "Standard"}, {"missing", "Mean"}});
  CHECK(parse_training(json)->train.rules ==
        data::TableRules{.is_scaled = true, .fills_missing = true});
  CHECK(sentence("/data/train/csv/words", "Hashed") ==
        "spec.training.data.train.csv.words: must be Refused or OneHot");
  CHECK(begins(sentence("/data/test/csv/scale", "Standard"),
               "spec.training.data.test.csv.scale: unknown field"));
  CHECK(sentence("/data/test", Json{{"idx", {{"images", "a"}, {"labels", "b"}}}}) ==
        "spec.training.data.test: must be of the same kind as train: idx, imageFolder or csv");
  CHECK(sentence("/model", Json{{"cnn", {{"channels", {3}}}}}) ==
        "spec.training.data.train: must be idx: {images, labels} or imageFolder: {directory}, "
        "because the model reads images");
}

TEST_CASE("a transformer is read with tokens and their vocabulary") {
  Json json = digits();
  json["model"] = *parse_json(
      R"({"gpt": {"layers": 1, "heads": 2, "width": 8, "contextLength": 64, "vocabularySize": 50257}})");
  json["data"] = *parse_json(
      R"({"train": {"tokens": {"files": ["a", "b"]}}, "test": {"tokens": {"files": ["c"]}}})");
  const auto config = parse_training(json);
  REQUIRE_MESSAGE(config, config.error().message());
  CHECK(config->gpt->vocabulary_size == 50'257);
  CHECK(config->train.shards == std::vector<std::string>{"a", "b"});
  CHECK(config->test.shards == std::vector<std::string>{"c"});
  const auto sentence = [&](const std::string& at, const Json& value) {
    return refused(at, value, json);
  };
  const std::string at = "spec.training.model.gpt.vocabularySize: ";
  CHECK(sentence("/model/gpt/vocabularySize", nullptr) ==
        at + "is required, because the data are tokens");
  CHECK(sentence("/data/test", Json{{"text", {{"file", "b"}}}}) ==
        at + "must be 256 or left out, because the data are the bytes of a text");
  CHECK(begins(sentence("/model/gpt/vocabularySize", 1), at));
  CHECK(begins(sentence("/model/gpt/vocabularySize", (1 << 20) + 1), at));
  const std::string files = "spec.training.data.train.tokens.files: ";
  CHECK(sentence("/data/train/tokens/files", Json::array()) ==
        files + "is required: the shards, at least one");
  CHECK(sentence("/data/train/tokens/files", nullptr) ==
        files + "is required: the shards, at least one");
  CHECK(begins(sentence("/data/train/tokens/files", Json{"a", ""}), files));
  CHECK(begins(sentence("/data/train/tokens/files", Json{"a", 3}), files));
  CHECK(begins(sentence("/data/train/tokens/files", std::vector<std::string>(257, "a")), files));
  CHECK(begins(sentence("/data/train/text", Json{{"file", "a"}}),
               "spec.training.data.train: must be text: {file} or tokens: {files}"));
  CHECK(begins(sentence("/model", Json{{"mlp", {{"hidden", {3}}}}}),
               "spec.training.data.train: must be idx"));
  json["data"]["vocabulary"] = Json{{"directory", "bpe"}};
  CHECK(parse_training(json)->vocabulary == "bpe");
  CHECK(begins(sentence("/data/vocabulary/directory", ""),
               "spec.training.data.vocabulary.directory: "));
  json["pretrained"] = Json{{"directory", "gpt2"}};
  CHECK(parse_training(json)->pretrained == "gpt2");
  CHECK(begins(sentence("/pretrained/directory", ""), "spec.training.pretrained.directory: "));
  CHECK(begins(sentence("/pretrained/file", "a"), "spec.training.pretrained.file: "));
  json = digits();
  CHECK(sentence("/data/vocabulary", Json{{"directory", "a"}}) ==
        "spec.training.data.vocabulary: is for tokens alone");
  CHECK(sentence("/pretrained", Json{{"directory", "a"}}) ==
        "spec.training.pretrained: is for a gpt alone");
}

TEST_CASE("how many samples are computed at once") {
  Json json = digits();
  CHECK(parse_training(json)->micro_batch_size == 0);
  json["microBatchSize"] = 4;
  CHECK(parse_training(json)->micro_batch_size == 4);
  json["microBatchSize"] = 3;
  CHECK(parse_training(json).error().message() ==
        "spec.training.microBatchSize: must be at least batchSize / logicalRanks (4); it is 3");
}

TEST_CASE("what becomes of activations") {
  CHECK_FALSE(parse_training(digits())->recomputes_activations);
  CHECK(refused("/activations", "Recomputed") ==
        "spec.training.activations: Recomputed is for a gpt alone");
  CHECK(refused("/activations", "Lost") == "spec.training.activations: must be Kept or Recomputed");
}

TEST_CASE("what is done where the loss is not finite") {
  Json json = digits();
  CHECK(parse_training(json)->rolls_back);
  json["onNonFinite"] = "RollBack";
  CHECK(parse_training(json)->rolls_back);
  json["onNonFinite"] = "Stop";
  CHECK_FALSE(parse_training(json)->rolls_back);
  CHECK(refused("/onNonFinite", "Skip") == "spec.training.onNonFinite: must be RollBack or Stop");
}

TEST_CASE("what products multiply") {
  Json json = digits();
  CHECK_FALSE(parse_training(json)->is_bfloat16);
  json["precision"] = "Float32";
  CHECK_FALSE(parse_training(json)->is_bfloat16);
  json["precision"] = "BFloat16";
  CHECK(parse_training(json)->is_bfloat16);
  CHECK(refused("/precision", "Float16") == "spec.training.precision: must be Float32 or BFloat16");
}

TEST_CASE("where the optimiser's state lives") {
  Json json = digits();
  json["optimizerState"] = "Sharded";
  CHECK(parse_training(json)->is_sharded);
  json["buddies"] = 2;
  CHECK(parse_training(json)->buddies == 2);
  json["optimizerState"] = "Replicated";
  CHECK_FALSE(parse_training(json).has_value());
  json.erase("buddies");
  CHECK_FALSE(parse_training(json)->is_sharded);
  json["optimizerState"] = "Sharded";
  json["parallelism"] = {{"tensor", 2}};
  CHECK(parse_training(json)->is_sharded);
  CHECK(parse_training(json)->slices == 2);
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
  CHECK_FALSE(config->is_sharded);
  CHECK(config->logical_ranks == 16);
  CHECK(config->batch_size == 64);
}

TEST_CASE("a convolutional model is read as written, its defaults filled in") {
  Json json = digits();
  json["model"] = Json{{"cnn",
                        {{"channels", {8, 16}},
                         {"kernelSize", 5},
                         {"normalization", "None"},
                         {"hidden", {32}},
                         {"dropout", "0.25"}}}};
  const auto config = parse_training(json);
  REQUIRE(config.has_value());
  REQUIRE(config->cnn.has_value());
  CHECK(config->cnn->channels == std::vector<int>{8, 16});
  CHECK(config->cnn->kernel_size == 5);
  CHECK_FALSE(config->cnn->normalise);
  CHECK(config->cnn->hidden == std::vector<int>{32});
  CHECK(config->cnn->dropout == 0.25f);
  json["model"] = Json{{"cnn", {{"channels", {4}}}}};
  const auto least = parse_training(json);
  REQUIRE(least.has_value());
  CHECK(least->cnn->kernel_size == 3);
  CHECK(least->cnn->normalise);
  CHECK(least->cnn->hidden.empty());
  CHECK(least->cnn->dropout == 0);
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
  CHECK(
      begins(refused("/model", Json{{"gpt", Json::object()}}), "spec.training.model.gpt.layers: "));
  CHECK(begins(refused("/model/mlp/hidden", Json{0}), "spec.training.model.mlp.hidden: "));
  CHECK(begins(refused("/model/mlp/depth", 3), "spec.training.model.mlp.depth: "));
  CHECK(begins(refused("/model", Json::object()), "spec.training.model: must have exactly one"));
  CHECK(
      begins(refused("/model/cnn", Json::object()), "spec.training.model: must have exactly one"));
  for (const Json& value : {Json("1"), Json("-0.1"), Json("nan"), Json(0.5)}) {
    CHECK(begins(refused("/model/mlp/dropout", value), "spec.training.model.mlp.dropout: "));
  }
  const auto cnn = [](const char* field, const Json& value) {
    Json model{{"channels", {8, 16}}};
    model[field] = value;
    return refused("/model", Json{{"cnn", model}});
  };
  CHECK(begins(cnn("channels", Json::array()), "spec.training.model.cnn.channels: is required"));
  CHECK(begins(cnn("channels", Json{8, 0}), "spec.training.model.cnn.channels: "));
  CHECK(begins(cnn("channels", Json(std::vector<int>(13, 1))), "spec.training.model.cnn.channels"));
  CHECK(begins(cnn("kernelSize", 4), "spec.training.model.cnn.kernelSize: must be odd"));
  CHECK(begins(cnn("kernelSize", 17), "spec.training.model.cnn.kernelSize: "));
  CHECK(begins(cnn("normalization", "Layer"), "spec.training.model.cnn.normalization: must be"));
  CHECK(begins(cnn("hidden", Json{70'000}), "spec.training.model.cnn.hidden: "));
  CHECK(begins(cnn("dropout", "1.5"), "spec.training.model.cnn.dropout: "));
  CHECK(begins(cnn("pooling", 2), "spec.training.model.cnn.pooling: "));
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
  const Json adamw = *parse_json(R"({"adamw": {"learningRate": "0.001"}})");
  CHECK(begins(refused("/optimizer/adamw", adamw["adamw"]),
               "spec.training.optimizer: must have exactly one of sgd or adamw"));
  CHECK(begins(refused("/optimizer", Json::object()), "spec.training.optimizer: "));
  CHECK(begins(refused("/optimizer", Json{{"adamw", Json::object()}}),
               "spec.training.optimizer.adamw.learningRate: is required"));
  for (const char* field : {"learningRate", "beta1", "beta2", "epsilon", "weightDecay"}) {
    for (const char* value : {"-1", "1001e9", "nan", "x"}) {
      Json wrong = adamw;
      wrong["adamw"][field] = value;
      CHECK(begins(refused("/optimizer", wrong),
                   std::string("spec.training.optimizer.adamw.") + field + ": "));
    }
  }
  Json odd = adamw;
  odd["adamw"]["weightDecayOf"] = "Weights";
  CHECK(begins(refused("/optimizer", odd),
               "spec.training.optimizer.adamw.weightDecayOf: must be All or Matrices"));
  for (const char* value : {"1", "0.9999999"}) {
    Json wrong = adamw;
    wrong["adamw"]["beta2"] = value;
    CHECK(begins(refused("/optimizer", wrong), "spec.training.optimizer.adamw.beta2: "));
  }
  for (const Json& value : {Json("0"), Json("1e10"), Json(1), Json("inf")}) {
    CHECK(begins(refused("/gradientClipping", Json{{"maxNorm", value}}),
                 "spec.training.gradientClipping.maxNorm: "));
  }
  CHECK(begins(refused("/gradientClipping", Json::object()),
               "spec.training.gradientClipping.maxNorm: is required"));
  for (const char* field : {"everyEpochs", "everySteps", "maxSamples"}) {
    CHECK(begins(refused(std::string("/evaluation/") + field, 0),
                 std::string("spec.training.evaluation.") + field + ": "));
  }
  CHECK(begins(refused("/checkpoint/keep", 0), "spec.training.checkpoint.keep: "));
  CHECK(begins(refused("/optimizerState", "sharded"),
               "spec.training.optimizerState: must be Replicated or Sharded"));
  CHECK(begins(refused("/optimizerState", 1), "spec.training.optimizerState: "));
  CHECK(begins(refused("/parallelism/tensor", 65), "spec.training.parallelism.tensor: "));
  CHECK(begins(refused("/parallelism/mode", "auto"),
               "spec.training.parallelism.mode: must be Fixed or Auto"));
  CHECK(begins(refused("/colour", "red"), "spec.training.colour: "));
}
