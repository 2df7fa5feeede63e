#include <utility>

#include "common/contract.h"
#include "worker/comm/shared_communicator.h"
#include "worker/engine/agreement.h"
#include "worker/engine/membership.h"

namespace muster::engine {
Result<View> FixedMembership::next(std::int64_t after, std::optional<MonoTime>) {
  if (after >= kEpoch) {
    if (failure_) return *failure_;
    return Error(ErrorCode::kAborted, "this membership never changes")
        .with_exit_code(contract::exit_code::kPeerLost);
  }
  View view;
  view.epoch = kEpoch;
  view.rank = communicator_.rank();
  for (int slot = 0; slot < communicator_.size(); ++slot) view.slots.push_back(slot);
  return view;
}

Result<std::unique_ptr<comm::Communicator>> FixedMembership::connect(const View& /*view*/) {
  // It is the caller's, and goes on when the engine is done with it.
  std::shared_ptr<comm::Communicator> borrowed(&communicator_, [](comm::Communicator*) {});
  return std::unique_ptr<comm::Communicator>(
      std::make_unique<comm::SharedCommunicator>(std::move(borrowed)));
}

void FixedMembership::broken(std::int64_t /*epoch*/, const Error& why) {
  failure_ = std::make_unique<Error>(peer_error(why));
}

}  // namespace muster::engine
