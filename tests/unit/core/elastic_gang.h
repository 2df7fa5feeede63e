// A gang that trains, for tests of what is decided and said meanwhile.
#pragma once

#include <cstddef>
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

/// The first pod of the slot; the test fails without one.
api::Pod& pod_of(SnapshotBuilder& job, int slot);
void end_pod(SnapshotBuilder& job, int slot, int code);
void remove_pod(SnapshotBuilder& job, int slot);

/// schedule's answer to what the job asks for: every slot, or the first so many, on `node`.
void answer(SnapshotBuilder& job, const std::string& node, std::size_t most = 99);

/// Slots for which the job asks for places.
std::vector<int> wanted(const SnapshotBuilder& job);

/// slot/attempt@node, "*" for a member.
std::string placement_of(const api::TrainingJobStatus& status);

/// Runs all pods that were made and lets them say that they are members.
void join_all(SnapshotBuilder& job, std::int64_t epoch);

}  // namespace muster::test
