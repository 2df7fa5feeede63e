#include "worker/engine/identity.h"

#include <string_view>

#include "worker/data/dataset.h"
#include "worker/engine/record.h"

namespace muster::engine {
namespace {

/// What is not given is null: a checkpoint that has it is then refused by its name, too.
void add_optimizer(const TrainingConfig& config, Json& identity) {
  const std::string at = "spec.training.optimizer";
  identity[at] = config.adamw ? "adamw" : "sgd";
  if (config.adamw) {
    identity[at + ".adamw.learningRate"] = decimal(config.adamw->learning_rate);
    identity[at + ".adamw.beta1"] = decimal(config.adamw->beta1);
    identity[at + ".adamw.beta2"] = decimal(config.adamw->beta2);
    identity[at + ".adamw.epsilon"] = decimal(config.adamw->epsilon);
    identity[at + ".adamw.weightDecay"] = decimal(config.adamw->weight_decay);
    Json& decayed = identity[at + ".adamw.weightDecayOf"];
    if (!config.adamw->decays_all) decayed = "Matrices";
  } else {
    identity[at + ".sgd.learningRate"] = decimal(config.sgd.learning_rate);
    identity[at + ".sgd.momentum"] = decimal(config.sgd.momentum);
  }
  // A schedule is stretched over all steps, so that their number belongs to it.
  Json& schedule = identity[at + ".schedule"];
  if (config.cosine) {
    schedule = "cosine";
    identity[at + ".schedule.cosine.warmupSteps"] = config.cosine->warmup_steps;
    identity[at + ".schedule.cosine.finalShare"] = decimal(config.cosine->final_share);
    identity["spec.training.epochs"] = config.epochs;
    identity["spec.training.steps"] = config.steps;
  }
  Json& norm = identity["spec.training.gradientClipping.maxNorm"];
  if (config.gradient_norm_max > 0) norm = decimal(config.gradient_norm_max);
}

/// What stands in the spec; the layers alone do not tell whose field is another one.
void add_model(const TrainingConfig& config, Json& identity) {
  const auto add = [&](const std::string& field, const Json& value) {
    identity["spec.training.model." + field] = value;
  };
  if (config.gpt) {
    add("gpt.layers", config.gpt->layers);
    add("gpt.heads", config.gpt->heads);
    add("gpt.width", config.gpt->width);
    add("gpt.contextLength", config.gpt->context_length);
    // Bytes are not told, as in checkpoints that are older than other tokens.
    const bool is_of_bytes = config.gpt->vocabulary_size == data::kMaxClasses;
    add("gpt.vocabularySize", is_of_bytes ? Json() : Json(config.gpt->vocabulary_size));
    // Nor is what checkpoints that are older than it had not.
    const auto share = [](float of) { return of == 0 ? Json() : Json(decimal(of)); };
    add("gpt.dropout", share(config.gpt->dropout));
    add("gpt.attentionDropout", share(config.gpt->attention_dropout));
    return;
  }
  if (!config.cnn) {
    add("mlp.hidden", config.mlp.hidden);
    add("mlp.dropout", decimal(config.mlp.dropout));
    return;
  }
  add("cnn.channels", config.cnn->channels);
  add("cnn.kernelSize", config.cnn->kernel_size);
  add("cnn.normalization", config.cnn->normalise ? "Batch" : "None");
  add("cnn.hidden", config.cnn->hidden);
  add("cnn.dropout", decimal(config.cnn->dropout));
}

/// Which messages trainers send each other in a step, at a checkpoint and when one enters: another
/// number whenever a build says other things than the one before. A build that would not be
/// understood is not let in, rather than break every step.
constexpr int kExchange = 14;

}  // namespace

Json identity_of(const TrainingConfig& config, const ModelShape& shape, const InputHashes& inputs) {
  Json identity{{"spec.training.seed", config.seed},
                {"spec.training.logicalRanks", config.logical_ranks},
                {"spec.training.batchSize", config.batch_size},
                {"the model's layers", shape.description()}};
  add_model(config, identity);
  add_optimizer(config, identity);
  // Null as where a checkpoint is older than the field.
  identity["spec.training.precision"] = config.is_bfloat16 ? Json("BFloat16") : Json();
  Json& pretrained = identity["SHA-256 of spec.training.pretrained"];
  if (!inputs.pretrained.empty()) pretrained = inputs.pretrained;
  if (!inputs.data.empty()) identity["SHA-256 of spec.training.data.train"] = inputs.data;
  return identity;
}

Sha256Digest configuration_digest(const TrainingConfig& config, const ModelShape& shape,
                                  const std::string& pretrained_sha256) {
  Json all = identity_of(config, shape, {"", pretrained_sha256});
  all["contract"] = kernels::kNumericsContract;
  all["exchange"] = kExchange;
  all["epochs"] = config.epochs;
  all["steps"] = config.steps;
  all["test"] = config.has_test;
  all["evaluateEveryEpochs"] = config.evaluate_every_epochs;
  all["evaluateEverySteps"] = config.evaluate_every_steps;
  all["evaluateSamplesMost"] = config.evaluate_samples_most;
  all["checkpoints"] = !config.checkpoint_path.empty();
  all["checkpointEverySteps"] = config.checkpoint_every_steps;
  // Not of the identity: who keeps the state does not show in a checkpoint.
  all["sharded"] = config.is_sharded;
  all["buddies"] = config.buddies;
  all["stages"] = config.stages;
  all["slices"] = config.slices;
  all["rollsBack"] = config.rolls_back;  // all come to the same end
  return sha256(std::string_view(dump_json(all)));
}

}  // namespace muster::engine
