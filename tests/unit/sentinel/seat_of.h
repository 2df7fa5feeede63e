// A worker of a gang, as tests of the membership have it.
#pragma once

#include "worker/sentinel/membership.h"

namespace muster::test {

/// Its first attempt, with one trainer that is ready.
inline sentinel::Seat seat_of(int slot) {
  sentinel::Seat seat;
  seat.id = {slot, 0};
  seat.host = "127.0.0.1";
  seat.sentinel_port = 1'000 + slot;
  seat.trainers = {{0, 1, 2'000 + slot}};
  return seat;
}

}  // namespace muster::test
