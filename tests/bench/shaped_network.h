// A network of hosts in racks, made for one measurement: every host is a network namespace with a
// TUN device, and every packet between two hosts goes through a switch in this process that keeps
// to the links' rates, latency and queues. The ends are the kernel's own TCP. Nothing is left of it
// when the process ends. Needs root and /dev/net/tun.
//
// It stands in for netem and tbf, which not every kernel has; what it does not do: loss other than
// by full queues, jitter, several paths between two hosts.
#pragma once

#include <cstdint>
#include <deque>
#include <queue>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace muster::bench {

struct NetworkPlan {
  int hosts = 2;
  int racks = 1;                      ///< as even as can be, hosts in order
  double card_bytes_per_second = 0;   ///< each way
  double oversubscription = 1;        ///< a rack's cards together by its uplink
  double latency_seconds = 0;         ///< one way, within a rack
  double uplink_latency_seconds = 0;  ///< more, between racks
  std::size_t queue_bytes = 8 << 20;  ///< of each of the switch's ports
  std::string congestion = "reno";    ///< what the hosts' TCP has for the control of congestion

  int rack_of(int host) const { return host * racks / hosts; }
  int hosts_in(int rack) const;
  double uplink_bytes_per_second(int rack) const {
    return hosts_in(rack) * card_bytes_per_second / oversubscription;
  }
};

std::string address_of(int host);

/// Largest packet, as in networks for training. Of it, what TCP carries.
inline constexpr int kPacketBytes = 9000;
inline constexpr double kPayloadShare = (kPacketBytes - 52.0) / kPacketBytes;

/// Puts the calling process into a network of its own as `host`; the device's descriptor. Its
/// threads must not have been started yet.
Result<int> enter_network(const NetworkPlan& plan, int host);

struct NetworkCounts {
  std::uint64_t packets = 0, dropped = 0;
  std::vector<std::uint64_t> bytes_from, bytes_to;  ///< by host
  double busy_seconds = 0;                          ///< of a processor
};

/// The switch. Threads: one.
class ShapedNetwork {
 public:
  /// `devices` by host, as enter_network gives them; they become the switch's.
  ShapedNetwork(const NetworkPlan& plan, std::vector<int> devices, const Clock& clock);
  ~ShapedNetwork();
  ShapedNetwork(const ShapedNetwork&) = delete;
  ShapedNetwork& operator=(const ShapedNetwork&) = delete;

  /// Until all of `processes` (pidfds) have ended, or the deadline.
  Status run(std::vector<int> processes, MonoTime deadline);

  const NetworkCounts& counts() const { return counts_; }

 private:
  struct Link {
    double bytes_per_second = 0;
    MonoTime free_at{};
  };
  struct Packet {
    std::vector<std::byte> bytes;
    std::vector<int> links;  ///< still to be passed
    int target = 0;
    MonoTime tail{};  ///< when its last byte has left the link before
  };
  /// The first byte of a packet has come to the next link; without one it is delivered.
  struct Event {
    MonoTime at{};
    std::uint64_t number = 0;
    std::uint32_t packet = 0;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  bool take_from(int host);
  void send(int host, std::uint32_t packet, MonoTime start);
  void come_to_link(const Event& event);
  void deliver(std::uint32_t packet);
  std::uint32_t spare_packet();
  nanoseconds duration(std::size_t bytes, const Link& link) const;
  void pass(MonoTime now);
  MonoTime next_due(MonoTime now) const;

  int card_out(int host) const { return host; }
  int card_in(int host) const { return plan_.hosts + host; }
  int up(int rack) const { return 2 * plan_.hosts + rack; }
  int down(int rack) const { return 2 * plan_.hosts + plan_.racks + rack; }

  const NetworkPlan plan_;
  const std::vector<int> devices_;
  const Clock& clock_;
  std::vector<Link> links_;
  std::vector<bool> is_idle_;  ///< by host: nothing was there to be sent when last looked for
  std::vector<Packet> packets_;
  std::vector<std::uint32_t> spare_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  NetworkCounts counts_;
};

}  // namespace muster::bench
