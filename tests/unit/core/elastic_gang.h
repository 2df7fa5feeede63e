// A gang that trains, for tests of what is decided and said meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/messages.h"
#include "operator/api/training_job.h"
#include "tests/unit/core/builders.h"

namespace muster::test {

/// Of a worker that is a member of that membership of the job j.
ProgressReport member_report(int slot, int attempt, std::int64_t epoch, std::vector<int> members);

/// `count` workers that train together since epoch 1, stored as such; 1 to 8 are allowed.
SnapshotBuilder training(int count);

std::string running_message(const api::TrainingJobStatus& status);

}  // namespace muster::test
