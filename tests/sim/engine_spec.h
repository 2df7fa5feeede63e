// The spec of a small training, for simulations in which nobody computes.
#pragma once

#include "common/json.h"

namespace muster::sim {

/// spec.training of the built-in engine, valid and without files.
inline Json engine_spec() {
  const Json idx{{"idx", {{"images", "i"}, {"labels", "l"}}}};
  return Json{{"seed", 7},
              {"batchSize", 64},
              {"epochs", 1},
              {"model", {{"mlp", {{"hidden", Json::array({8})}}}}},
              {"data", {{"train", idx}, {"test", idx}}},
              {"optimizer", {{"sgd", {{"learningRate", "0.1"}}}}}};
}

}  // namespace muster::sim
