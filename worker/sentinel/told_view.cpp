#include "worker/sentinel/told_view.h"

namespace muster::sentinel {

std::optional<ViewMessage> message_of(const View& view, const ToldTrainer& trainer) {
  ViewMessage message;
  message.epoch = view.epoch;
  message.stop = view.stop;
  message.urgent = trainer.told_epoch < view.urgent_epoch && trainer.told_epoch > 0;
  for (const Seat& seat : view.seats) {
    for (const TrainerPlace& one : seat.trainers) {
      const bool is_own = seat.id == trainer.worker && one.local_rank == trainer.local_rank &&
                          one.incarnation == trainer.incarnation;
      if (is_own) message.rank = static_cast<int>(message.peers.size());
      message.peers.push_back(
          {seat.host, one.port, seat.id.slot, one.local_rank, one.incarnation, seat.domain});
    }
  }
  const bool is_put_off = find_seat(view, trainer.worker) != nullptr && !view.stop;
  if (message.rank < 0 && (trainer.told_epoch == 0 || is_put_off)) return std::nullopt;
  return message;
}

}  // namespace muster::sentinel
