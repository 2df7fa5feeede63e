// What a trainer is told of a view that the sentinels have agreed on. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "worker/sentinel/channel.h"
#include "worker/sentinel/view.h"

namespace muster::sentinel {

/// One trainer as its sentinel knows it.
struct ToldTrainer {
  WorkerId worker;
  int local_rank = 0;
  std::int64_t incarnation = 0;
  std::int64_t told_epoch = 0;  ///< of the newest view that it was told; 0: of none
};

/// Nothing for one that was never in and is not now, nor for one that was put off: its worker
/// stays, and it waits for a view with it. One that is told that it is out ends.
std::optional<ViewMessage> message_of(const View& view, const ToldTrainer& trainer);

}  // namespace muster::sentinel
