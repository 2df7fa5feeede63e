// A sentinel's message from bytes: whatever is taken survives its way back, and is obeyed by a
// member without a broken rule.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "worker/sentinel/membership.h"

using namespace muster;
using namespace muster::sentinel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto message = decode_message(std::span(reinterpret_cast<const std::byte*>(data), size));
  if (!message) return 0;
  const auto again = decode_message(encode(*message));
  if (!again || encode(*again) != encode(*message)) std::abort();
  const MonoTime now{seconds(1)};
  View first;
  first.epoch = 1;
  for (int slot = 0; slot < 3; ++slot) first.seats.push_back({{slot, 0}, "h", 1, 1, {}});
  Membership member({}, first.seats[0], first, now);
  member.receive(now, *message);
  member.tick(now + seconds(1));
  (void)member.take_outputs();
  (void)judge_paces(member.paces(), std::vector<int>(member.paces().size()));
  return 0;
}
