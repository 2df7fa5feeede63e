// spec.training as the engine reads it: every bound again, because a worker trusts nobody.
#include <bit>
#include <charconv>
#include <cmath>
#include <string>

#include "common/contract.h"
#include "common/training_bounds.h"
#include "worker/data/image_folder.h"
#include "worker/data/tokens.h"
#include "worker/engine/training.h"

namespace muster::engine {
namespace {

namespace bounds = training_bounds;

constexpr std::size_t kMaxDecimalBytes = 32;
/// Of AdamW's betas: 1 - beta^t must not vanish.
constexpr float kBetaMax = 0.999999f;

/// A decimal string ("0.1", "1e-3"): no sign, infinity, NaN or hexadecimal.
bool parse_decimal(const std::string& text, float& out) {
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string::npos ||
      text[0] == '-' || text[0] == '+') {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(out);
}

void read_decimal(JsonReader& in, std::string_view field, float& out, const char* range,
                  bool (*fits)(float)) {
  std::string text;
  in.optional(field, text, kMaxDecimalBytes);
  if (!in.status() || !in.has(field)) return;
  if (!parse_decimal(text, out) || !fits(out)) {
    in.fail(field, std::string("must be a decimal string ") + range);
  }
}

/// A list of integers from 1 to `most`.
struct Bounds {
  std::size_t items;
  int most;
};
void read_widths(JsonReader& in, const char* field, Bounds bounds, std::vector<int>& out) {
  const Json* list = in.array(field, bounds.items);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const Json& width = (*list)[i];
    if (!width.is_number_integer() || width < 1 || width > bounds.most) {
      return in.fail(field, "must be integers from 1 to " + std::to_string(bounds.most));
    }
    out.push_back(width.get<int>());
  }
}

/// A word of two, the first where it is left out.
struct Choice {
  std::string usual, other;
};
/// Whether it is the other one.
bool read_choice(JsonReader& in, const char* field, const Choice& choice) {
  std::string word = choice.usual;
  in.optional(field, word);
  if (word != choice.usual && word != choice.other) {
    in.fail(field, "must be " + choice.usual + " or " + choice.other);
  }
  return word == choice.other;
}

void read_dropout(JsonReader& in, const char* field, float& out) {
  read_decimal(in, field, out, "from 0 to below 1, like \"0.25\"",
               [](float v) { return v >= 0 && v < 1; });
}

void read_mlp(JsonReader& fields, MlpConfig& mlp) {
  if (!fields.has("hidden")) fields.fail("hidden", "is required: a list of widths, [128]");
  read_widths(fields, "hidden", {bounds::kMaxLayers, bounds::kMaxLayerWidth}, mlp.hidden);
  read_dropout(fields, "dropout", mlp.dropout);
}

void read_cnn(JsonReader& fields, CnnConfig& cnn) {
  read_widths(fields, "channels", {bounds::kMaxCnnStages, bounds::kMaxChannels}, cnn.channels);
  if (cnn.channels.empty()) {
    fields.fail("channels", "is required: the channels of each stage, [16, 32]");
  }
  fields.optional("kernelSize", cnn.kernel_size, {1, bounds::kMaxKernelSize});
  if (fields.status() && cnn.kernel_size % 2 == 0) fields.fail("kernelSize", "must be odd");
  cnn.normalise = !read_choice(fields, "normalization", {"Batch", "None"});
  read_widths(fields, "hidden", {bounds::kMaxLayers, bounds::kMaxLayerWidth}, cnn.hidden);
  read_dropout(fields, "dropout", cnn.dropout);
}

void read_gpt(JsonReader& fields, TrainingConfig& config) {
  GptConfig& gpt = config.gpt.emplace();
  fields.required("layers", gpt.layers, {1, bounds::kMaxBlocks});
  fields.required("heads", gpt.heads, {1, bounds::kMaxHeads});
  fields.required("width", gpt.width, {1, bounds::kMaxGptWidth});
  fields.required("contextLength", gpt.context_length, {1, bounds::kMaxContextLength});
  fields.optional("vocabularySize", gpt.vocabulary_size, {2, bounds::kMaxVocabularySize});
  read_dropout(fields, "dropout", gpt.dropout);
  read_decimal(fields, "attentionDropout", gpt.attention_dropout, "from 0 to 0.999, like \"0.1\"",
               [](float v) { return v >= 0 && v <= bounds::kMaxAttentionDropout; });
  if (!fields.status()) return;
  if (gpt.width % gpt.heads != 0) {
    fields.fail("width", "must be a multiple of heads (" + std::to_string(gpt.heads) + "); it is " +
                             std::to_string(gpt.width));
  }
  if (std::int64_t{config.batch_size} * gpt.context_length > bounds::kMaxBatchTokens) {
    fields.fail("contextLength", "times batchSize must be at most " +
                                     std::to_string(bounds::kMaxBatchTokens) + " tokens");
  }
}

void read_model(JsonReader& in, TrainingConfig& config) {
  const Json* model = in.object("model");
  if (model == nullptr) return in.fail("model", "is required: {mlp: {hidden: [128]}}");
  JsonReader one(*model, in.path_of("model"));
  const Json* mlp = one.object("mlp");
  const Json* cnn = one.object("cnn");
  const Json* gpt = one.object("gpt");
  one.no_other_fields();
  if (one.status() && (mlp != nullptr) + (cnn != nullptr) + (gpt != nullptr) != 1) {
    one.fail("", "must have exactly one of mlp, cnn or gpt");
  }
  in.take(one.status());
  if (!in.status()) return;
  const auto read = [&](const Json* fields_of, const char* name, const auto& fill) {
    if (fields_of == nullptr) return;
    JsonReader fields(*fields_of, one.path_of(name));
    fill(fields);
    fields.no_other_fields();
    in.take(fields.status());
  };
  read(mlp, "mlp", [&](JsonReader& fields) { read_mlp(fields, config.mlp); });
  read(cnn, "cnn", [&](JsonReader& fields) { read_cnn(fields, config.cnn.emplace()); });
  read(gpt, "gpt", [&](JsonReader& fields) { read_gpt(fields, config); });
}

void read_path(JsonReader& fields, const char* field, std::string& out) {
  fields.required(field, out, bounds::kMaxPathBytes);
  if (out.empty()) fields.fail(field, "must be a path");
}

void read_shards(JsonReader& fields, std::vector<std::string>& out) {
  const Json* files = fields.array("files", bounds::kMaxShards);
  for (const Json& file : files == nullptr ? Json::array() : *files) {
    const std::string path = file.is_string() ? file.get<std::string>() : "";
    if (path.empty() || path.size() > bounds::kMaxPathBytes) {
      return fields.fail(
          "files", "must be paths of at most " + std::to_string(bounds::kMaxPathBytes) + " bytes");
    }
    out.push_back(path);
  }
  if (out.empty()) fields.fail("files", "is required: the shards, at least one");
}

void read_folder(JsonReader& fields, DataSource& source) {
  read_path(fields, "directory", source.folder);
  fields.optional("height", source.height, {1, bounds::kMaxImageSide});
  fields.optional("width", source.width, {1, bounds::kMaxImageSide});
  if (fields.has("height") != fields.has("width")) {
    fields.fail("", "must have both height and width, or neither");
  }
  source.is_gray = read_choice(fields, "colors", {"RGB", "Gray"});
}

/// A test table is read by its training table's rules.
void read_table(JsonReader& fields, bool is_test, DataSource& source) {
  read_path(fields, "file", source.csv);
  fields.required("label", source.label, bounds::kMaxColumnBytes);
  if (!is_test) {
    source.rules.is_scaled = read_choice(fields, "scale", {"None", "Standard"});
    source.rules.takes_words = read_choice(fields, "words", {"Refused", "OneHot"});
    source.rules.fills_missing = read_choice(fields, "missing", {"Refused", "Mean"});
  }
  if (source.label.empty()) fields.fail("label", "must be the name of a column");
}

/// A gpt learns from a text or from tokens, the other models from images, and an mlp from a table,
/// too.
void read_source(JsonReader& data, const char* name, const TrainingConfig& config,
                 DataSource& source) {
  const Json* set = data.object(name);
  if (set == nullptr) return;
  JsonReader one(*set, data.path_of(name));
  std::string kind;
  int given = 0;
  for (const char* known : {"idx", "imageFolder", "csv", "text", "tokens"}) {
    if (one.object(known) == nullptr) continue;
    kind = known;
    ++given;
  }
  one.no_other_fields();
  const bool is_of_gpt = kind == "text" || kind == "tokens";
  if (given != 1 || is_of_gpt != config.gpt.has_value() || (kind == "csv" && config.cnn)) {
    const std::string images = "must be idx: {images, labels} or imageFolder: {directory}";
    one.fail("", config.gpt   ? "must be text: {file} or tokens: {files}, because the model is gpt"
                 : config.cnn ? images + ", because the model reads images"
                              : images + " or csv: {file, label}, because the model is mlp");
  }
  data.take(one.status());
  if (!one.status()) return;
  JsonReader fields((*set)[kind], one.path_of(kind));
  if (kind == "idx") {
    read_path(fields, "images", source.images);
    read_path(fields, "labels", source.labels);
  } else if (kind == "imageFolder") {
    read_folder(fields, source);
  } else if (kind == "csv") {
    read_table(fields, &source == &config.test, source);
  } else if (kind == "text") {
    read_path(fields, "file", source.text);
  } else {
    read_shards(fields, source.shards);
  }
  fields.no_other_fields();
  data.take(fields.status());
}

/// What stands for a label must be the same in both.
bool are_of_one_kind(const DataSource& train, const DataSource& test) {
  return train.csv.empty() == test.csv.empty() && train.folder.empty() == test.folder.empty();
}

/// Tokens are of a vocabulary that is said; a text is of bytes.
void check_vocabulary(JsonReader& in, const Json& model, const TrainingConfig& config) {
  if (!config.gpt) return;
  for (const DataSource* source : {&config.train, &config.test}) {
    if (!source->shards.empty() && model["gpt"].value("vocabularySize", Json()).is_null()) {
      return in.fail("model.gpt.vocabularySize", "is required, because the data are tokens");
    }
    if (!source->text.empty() && config.gpt->vocabulary_size != bounds::kByteTokens) {
      return in.fail("model.gpt.vocabularySize",
                     "must be 256 or left out, because the data are the bytes of a text");
    }
  }
}

void read_data(JsonReader& in, TrainingConfig& config) {
  const Json* data = in.object("data");
  if (data == nullptr) return in.fail("data", "is required: {train: {idx: {images, labels}}}");
  JsonReader fields(*data, in.path_of("data"));
  if (!fields.has("train")) fields.fail("train", "is required: {idx: {images, labels}}");
  read_source(fields, "train", config, config.train);
  if (const Json* vocabulary = fields.object("vocabulary")) {
    JsonReader one(*vocabulary, fields.path_of("vocabulary"));
    read_path(one, "directory", config.vocabulary);
    one.no_other_fields();
    fields.take(one.status());
    if (config.train.shards.empty()) fields.fail("vocabulary", "is for tokens alone");
  }
  config.has_test = fields.has("test");
  read_source(fields, "test", config, config.test);
  if (fields.status() && config.has_test && !are_of_one_kind(config.train, config.test)) {
    fields.fail("test", "must be of the same kind as train: idx, imageFolder or csv");
  }
  fields.no_other_fields();
  in.take(fields.status());
  if (in.status()) check_vocabulary(in, *in.object("model"), config);
}

void read_pretrained(JsonReader& in, TrainingConfig& config) {
  const Json* pretrained = in.object("pretrained");
  if (pretrained == nullptr) return;
  JsonReader fields(*pretrained, in.path_of("pretrained"));
  read_path(fields, "directory", config.pretrained);
  fields.no_other_fields();
  in.take(fields.status());
  if (!config.gpt) in.fail("pretrained", "is for a gpt alone");
}

constexpr const char* kRateRange = "above 0 and at most 1000, like \"0.1\"";
bool is_rate(float value) { return value > 0 && value <= 1000; }

Status read_sgd(JsonReader fields, SgdConfig& sgd) {
  if (!fields.has("learningRate")) fields.fail("learningRate", "is required: \"0.1\"");
  read_decimal(fields, "learningRate", sgd.learning_rate, kRateRange, is_rate);
  read_decimal(fields, "momentum", sgd.momentum, "from 0 to below 1, like \"0.9\"",
               [](float v) { return v >= 0 && v < 1; });
  fields.no_other_fields();
  return fields.status();
}

Status read_adamw(JsonReader fields, AdamwConfig& adamw) {
  const auto is_beta = [](float v) { return v >= 0 && v <= kBetaMax; };
  const char* const beta_range = "from 0 to 0.999999";
  if (!fields.has("learningRate")) fields.fail("learningRate", "is required: \"0.001\"");
  read_decimal(fields, "learningRate", adamw.learning_rate, kRateRange, is_rate);
  read_decimal(fields, "beta1", adamw.beta1, beta_range, is_beta);
  read_decimal(fields, "beta2", adamw.beta2, beta_range, is_beta);
  read_decimal(fields, "epsilon", adamw.epsilon, "from 1e-20 to 1, like \"1e-8\"",
               [](float v) { return v >= 1e-20f && v <= 1; });
  read_decimal(fields, "weightDecay", adamw.weight_decay, "from 0 to 1, like \"0.01\"",
               [](float v) { return v >= 0 && v <= 1; });
  adamw.decays_all = !read_choice(fields, "weightDecayOf", {"All", "Matrices"});
  fields.no_other_fields();
  return fields.status();
}

Status read_schedule(JsonReader fields, TrainingConfig& config) {
  const Json* cosine = fields.object("cosine");
  fields.no_other_fields();
  if (cosine == nullptr) fields.fail("cosine", "is required: {warmupSteps: 100}");
  if (!fields.status()) return fields.status();
  JsonReader one(*cosine, fields.path_of("cosine"));
  CosineConfig& schedule = config.cosine.emplace();
  one.optional("warmupSteps", schedule.warmup_steps, {0, bounds::kMaxSteps});
  read_decimal(one, "finalShare", schedule.final_share, "from 0 to 1, like \"0.1\"",
               [](float v) { return v >= 0 && v <= 1; });
  one.no_other_fields();
  return one.status();
}

void read_optimizer(JsonReader& in, TrainingConfig& config) {
  const Json* optimizer = in.object("optimizer");
  if (optimizer == nullptr) {
    return in.fail("optimizer", "is required: {sgd: {learningRate: \"0.1\"}}");
  }
  JsonReader one(*optimizer, in.path_of("optimizer"));
  const Json* sgd = one.object("sgd");
  const Json* adamw = one.object("adamw");
  const Json* schedule = one.object("schedule");
  one.no_other_fields();
  if ((sgd == nullptr) == (adamw == nullptr)) one.fail("", "must have exactly one of sgd or adamw");
  in.take(one.status());
  if (!in.status()) return;
  if (sgd != nullptr) in.take(read_sgd(JsonReader(*sgd, one.path_of("sgd")), config.sgd));
  if (adamw != nullptr) {
    in.take(read_adamw(JsonReader(*adamw, one.path_of("adamw")), config.adamw.emplace()));
  }
  if (schedule != nullptr) {
    in.take(read_schedule(JsonReader(*schedule, one.path_of("schedule")), config));
  }
}

void read_clipping(JsonReader& in, TrainingConfig& config) {
  const Json* clipping = in.object("gradientClipping");
  if (clipping == nullptr) return;
  JsonReader fields(*clipping, in.path_of("gradientClipping"));
  if (!fields.has("maxNorm")) fields.fail("maxNorm", "is required: \"1.0\"");
  read_decimal(fields, "maxNorm", config.gradient_norm_max, "from 1e-9 to 1e9, like \"1.0\"",
               [](float v) { return v >= 1e-9f && v <= 1e9f; });
  fields.no_other_fields();
  in.take(fields.status());
}

void read_rest(JsonReader& in, TrainingConfig& config) {
  if (const Json* evaluation = in.object("evaluation")) {
    JsonReader fields(*evaluation, in.path_of("evaluation"));
    fields.optional("everyEpochs", config.evaluate_every_epochs, {1, bounds::kMaxEpochs});
    fields.optional("everySteps", config.evaluate_every_steps, {1, bounds::kMaxSteps});
    fields.optional("maxSamples", config.evaluate_samples_most, {1, bounds::kMaxTestSamples});
    fields.no_other_fields();
    in.take(fields.status());
  }
  if (const Json* checkpoint = in.object("checkpoint")) {
    JsonReader fields(*checkpoint, in.path_of("checkpoint"));
    config.checkpoint_path = "/var/lib/muster";
    std::string claim;
    fields.optional("path", config.checkpoint_path, bounds::kMaxPathBytes);
    fields.optional("everySteps", config.checkpoint_every_steps, {1, bounds::kMaxSteps});
    fields.optional("keep", config.checkpoint_keep, {1, 1000});
    fields.optional("volumeClaimName", claim, 253);
    fields.no_other_fields();
    config.checkpoint_durable = !claim.empty();
    in.take(fields.status());
  }
  config.rolls_back = !read_choice(in, "onNonFinite", {"RollBack", "Stop"});
  config.is_sharded = read_choice(in, "optimizerState", {"Replicated", "Sharded"});
  config.recomputes_activations = read_choice(in, "activations", {"Kept", "Recomputed"});
  if (config.recomputes_activations && !config.gpt) {
    in.fail("activations", "Recomputed is for a gpt alone");
  }
  config.is_bfloat16 = read_choice(in, "precision", {"Float32", "BFloat16"});
  in.optional("buddies", config.buddies, {1, 2});
  if (config.buddies > 1 && !config.is_sharded) {
    in.fail("buddies", "is for optimizerState: Sharded alone");
  }
  if (const Json* parallelism = in.object("parallelism")) {
    JsonReader fields(*parallelism, in.path_of("parallelism"));
    config.may_be_split = read_choice(fields, "mode", {"Fixed", "Auto"});
    fields.optional("tensor", config.slices, {1, kMaxSlices});
    fields.optional("pipeline", config.stages, {1, kMaxStages});
    fields.no_other_fields();
    in.take(fields.status());
  }
}

}  // namespace

Result<TrainingConfig> parse_training(const Json& training) {
  TrainingConfig config;
  JsonReader in(training, "spec.training");
  std::string algorithm = "Backpropagation";
  std::string mode = "Strict";
  std::int64_t seed = 0;
  in.optional("algorithm", algorithm);
  if (algorithm != "Backpropagation") in.fail("algorithm", "must be Backpropagation");
  in.optional("mode", mode);
  if (mode != "Strict") in.fail("mode", "must be Strict");
  in.optional("seed", seed, {0, INT64_MAX});
  config.seed = static_cast<std::uint64_t>(seed);
  in.optional("logicalRanks", config.logical_ranks, {1, contract::kMaxLogicalRanks});
  if (in.status() && !std::has_single_bit(static_cast<unsigned>(config.logical_ranks))) {
    in.fail("logicalRanks", "must be a power of two");
  }
  in.optional("batchSize", config.batch_size, {1, bounds::kMaxBatchSize});
  if (in.status() && config.batch_size % config.logical_ranks != 0) {
    in.fail("batchSize", "must be a multiple of logicalRanks (" +
                             std::to_string(config.logical_ranks) + "); it is " +
                             std::to_string(config.batch_size));
  }
  in.optional("microBatchSize", config.micro_batch_size, {1, bounds::kMaxBatchSize});
  if (in.status() && in.has("microBatchSize") &&
      config.micro_batch_size < config.batch_size / config.logical_ranks) {
    in.fail("microBatchSize", "must be at least batchSize / logicalRanks (" +
                                  std::to_string(config.batch_size / config.logical_ranks) +
                                  "); it is " + std::to_string(config.micro_batch_size));
  }
  in.optional("epochs", config.epochs, {0, bounds::kMaxEpochs});
  in.optional("steps", config.steps, {0, bounds::kMaxSteps});
  if (in.status() && (config.epochs > 0) == (config.steps > 0)) {
    in.fail("epochs", "exactly one of epochs and steps must be given, at least 1");
  }
  read_model(in, config);
  read_data(in, config);
  read_pretrained(in, config);
  read_optimizer(in, config);
  read_clipping(in, config);
  read_rest(in, config);
  in.no_other_fields();
  if (const Status status = in.status(); !status) {
    return status.error().with_exit_code(contract::exit_code::kInvalidSpec);
  }
  return config;
}

}  // namespace muster::engine
