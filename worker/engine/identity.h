// What must be equal for two runs to be the same training.
#pragma once

#include <string>

#include "common/json.h"
#include "common/sha256.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Of what is read before the first step, as hexadecimal SHA-256; empty: none, or not told.
struct InputHashes {
  std::string data;        ///< of the training set
  std::string pretrained;  ///< of the first parameters, where they are read
};

/// The fields that decide the bits of a step, by their names in the manifest: what a checkpoint
/// shares with the run that goes on from it. Not among them: how long to train, paths, processes,
/// threads.
Json identity_of(const TrainingConfig& config, const ModelShape& shape, const InputHashes& inputs);

/// Of everything that all processes must have alike: the identity, and when to stop, evaluate and
/// save. Data is compared apart.
Sha256Digest configuration_digest(const TrainingConfig& config, const ModelShape& shape,
                                  const std::string& pretrained_sha256 = {});

}  // namespace muster::engine
