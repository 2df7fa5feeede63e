// How fast large messages come from a peer over a network. How long they are waited for says who is
// late, which may be any of those who work one after the other; how long they take to come, once
// they have begun to, is the network's. Pure: no IO, threads or clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/clock.h"

namespace muster::comm {

/// From so many bytes on a message is large. What a smaller one takes is more of the way's latency.
inline constexpr std::size_t kLargeMessage = std::size_t{256} * 1024;

/// Large messages of one peer.
struct Arrivals {
  std::uint64_t bytes = 0;
  /// Of the one that came fastest of those that were read as they came; 0: none was.
  double bytes_per_second = 0;
  bool operator==(const Arrivals&) const = default;
};

/// Watches one connection, on which messages come one after the other.
///
/// A reader that comes late finds at once what has come before, and one that looks away finds late
/// what came meanwhile; neither says how fast it came. So a message is timed from the first bytes
/// that are read after there were none left, and only where somebody has looked for more all the
/// time. `watch` is the number of such a time; 0: nobody looks.
class ArrivalMeter {
 public:
  /// All that had come was read.
  void ran_dry(std::uint64_t watch) { dry_ = watch; }
  /// Something was read. Whether the message that it is of may be timed from now on.
  bool may_begin(std::uint64_t watch) {
    return std::exchange(dry_, 0) == watch && watch != 0 && timed_ != watch;
  }
  /// So many bytes of a large message are there.
  void begin(std::uint64_t watch, std::size_t bytes, MonoTime now) {
    timed_ = watch;
    bytes_before_ = bytes;
    began_ = now;
  }
  /// All of a large message is there.
  void end(std::uint64_t watch, std::size_t bytes, MonoTime now) {
    arrivals_.bytes += bytes;
    const double seconds = seconds_of(now - began_);
    const bool is_timed = watch != 0 && std::exchange(timed_, 0) == watch && seconds > 0;
    if (!is_timed || bytes - bytes_before_ < kLargeMessage / 2) return;
    const double rate = static_cast<double>(bytes - bytes_before_) / seconds;
    arrivals_.bytes_per_second = std::max(arrivals_.bytes_per_second, rate);
  }
  /// Since it was last asked.
  Arrivals take() { return std::exchange(arrivals_, {}); }

 private:
  std::uint64_t dry_ = 0;    ///< the watch in which there was nothing left; 0: there may be more
  std::uint64_t timed_ = 0;  ///< that in which the message under way is timed; 0: it is not
  std::size_t bytes_before_ = 0;
  MonoTime began_;
  Arrivals arrivals_;
};

}  // namespace muster::comm
