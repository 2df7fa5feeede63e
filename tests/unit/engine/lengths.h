// How many logical ranks each process of an assignment computes, for tests.
#pragma once

#include <vector>

#include "worker/engine/assignment.h"

namespace muster::test {

inline std::vector<int> lengths_of(const engine::Assignment& assignment) {
  std::vector<int> lengths;
  for (const auto& nodes : assignment.nodes) lengths.push_back(engine::count_ranks(nodes));
  return lengths;
}

}  // namespace muster::test
