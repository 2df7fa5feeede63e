#include "worker/engine/identity.h"

#include <string_view>

#include "worker/engine/record.h"

namespace muster::engine {

Json identity_of(const TrainingConfig& config, const MlpShape& shape,
                 const std::string& data_sha256) {
  Json identity{{"spec.training.seed", config.seed},
                {"spec.training.logicalRanks", config.logical_ranks},
                {"spec.training.batchSize", config.batch_size},
                {"spec.training.model.mlp.hidden", config.mlp.hidden},
                {"spec.training.optimizer.sgd.learningRate", decimal(config.sgd.learning_rate)},
                {"spec.training.optimizer.sgd.momentum", decimal(config.sgd.momentum)},
                {"widths of the model", shape.widths}};
  if (!data_sha256.empty()) identity["SHA-256 of spec.training.data.train"] = data_sha256;
  return identity;
}

Sha256Digest configuration_digest(const TrainingConfig& config, const MlpShape& shape) {
  Json all = identity_of(config, shape, "");
  all["contract"] = kernels::kNumericsContract;
  all["epochs"] = config.epochs;
  all["steps"] = config.steps;
  all["test"] = config.has_test;
  all["evaluateEveryEpochs"] = config.evaluate_every_epochs;
  all["checkpoints"] = !config.checkpoint_path.empty();
  all["checkpointEverySteps"] = config.checkpoint_every_steps;
  return sha256(std::string_view(dump_json(all)));
}

}  // namespace muster::engine
