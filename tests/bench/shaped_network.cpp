#include "tests/bench/shaped_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace muster::bench {
namespace {

constexpr int kDeviceQueuePackets = 4000;
constexpr std::size_t kPacketsMost = 200'000;
constexpr char kDevice[] = "wire";
constexpr std::uint32_t kFirstAddress = 0x0a580001;  // 10.88.0.1
constexpr std::size_t kTargetOffset = 16, kIpHeader = 20;

Error failed(const std::string& what) {
  return Error(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

sockaddr in_address(std::uint32_t address) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  sockaddr out{};
  static_assert(sizeof out == sizeof in);
  std::memcpy(&out, &in, sizeof in);
  return out;
}

Status set_up(int fd, const char* device, int host) {
  ifreq request{};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  if (host >= 0) {
    request.ifr_addr = in_address(kFirstAddress + static_cast<std::uint32_t>(host));
    if (ioctl(fd, SIOCSIFADDR, &request) != 0) return failed("address");
    request.ifr_netmask = in_address(0xffffff00);
    if (ioctl(fd, SIOCSIFNETMASK, &request) != 0) return failed("netmask");
    request.ifr_mtu = kPacketBytes;
    if (ioctl(fd, SIOCSIFMTU, &request) != 0) return failed("packet size");
    request.ifr_qlen = kDeviceQueuePackets;
    if (ioctl(fd, SIOCSIFTXQLEN, &request) != 0) return failed("queue");
  }
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) return failed("bringing up " + std::string(device));
  return {};
}

nanoseconds in_nanoseconds(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

int NetworkPlan::hosts_in(int rack) const {
  int count = 0;
  for (int host = 0; host < hosts; ++host) count += rack_of(host) == rack ? 1 : 0;
  return count;
}

std::string address_of(int host) { return "10.88.0." + std::to_string(host + 1); }

Result<int> enter_network(const NetworkPlan& plan, int host) {
  if (unshare(CLONE_NEWNET) != 0) return failed("a network of one's own");
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) return failed("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, kDevice, IFNAMSIZ - 1);
  if (ioctl(device, TUNSETIFF, &request) != 0) return failed("TUN device");
  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  Status set = set_up(control, "lo", -1);
  if (set) set = set_up(control, kDevice, host);
  close(control);
  MUSTER_RETURN_IF_ERROR(set);
  // /proc/sys/net is that of the process that looks.
  std::ofstream congestion("/proc/sys/net/ipv4/tcp_congestion_control");
  congestion << plan.congestion << std::flush;
  if (!congestion) return Error(ErrorCode::kInvalid, "no congestion control " + plan.congestion);
  return device;
}

ShapedNetwork::ShapedNetwork(const NetworkPlan& plan, std::vector<int> devices, const Clock& clock)
    : plan_(plan), devices_(std::move(devices)), clock_(clock) {
  const auto hosts = static_cast<std::size_t>(plan.hosts);
  links_.assign(2 * hosts, {plan.card_bytes_per_second, {}});
  for (int way = 0; way < 2; ++way) {
    for (int rack = 0; rack < plan.racks; ++rack) {
      links_.push_back({plan.uplink_bytes_per_second(rack), {}});
    }
  }
  is_idle_.assign(hosts, true);
  counts_.bytes_from.assign(hosts, 0);
  counts_.bytes_to.assign(hosts, 0);
}

ShapedNetwork::~ShapedNetwork() {
  for (const int device : devices_) close(device);
}

nanoseconds ShapedNetwork::duration(std::size_t bytes, const Link& link) const {
  return in_nanoseconds(static_cast<double>(bytes) / link.bytes_per_second);
}

std::uint32_t ShapedNetwork::spare_packet() {
  if (spare_.empty()) {
    packets_.emplace_back().bytes.resize(kPacketBytes);
    return static_cast<std::uint32_t>(packets_.size() - 1);
  }
  const std::uint32_t packet = spare_.back();
  spare_.pop_back();
  packets_[packet].bytes.resize(kPacketBytes);
  return packet;
}

/// False: the host has nothing to send. What it has waits with it until its card is free, so that
/// its own TCP feels the card.
bool ShapedNetwork::take_from(int host) {
  const auto at = static_cast<std::size_t>(host);
  const std::uint32_t number = spare_packet();
  Packet& packet = packets_[number];
  const ssize_t bytes = read(devices_[at], packet.bytes.data(), packet.bytes.size());
  std::uint32_t target = 0;
  if (bytes > static_cast<ssize_t>(kIpHeader)) {
    std::memcpy(&target, packet.bytes.data() + kTargetOffset, sizeof target);
    target = ntohl(target) - kFirstAddress;
  }
  const bool is_ours = bytes > static_cast<ssize_t>(kIpHeader) &&
                       target < static_cast<std::uint32_t>(plan_.hosts) &&
                       (static_cast<int>(packet.bytes[0]) >> 4) == 4;
  if (!is_ours) {
    spare_.push_back(number);
    return bytes > 0;
  }
  packet.bytes.resize(static_cast<std::size_t>(bytes));
  packet.target = static_cast<int>(target);
  // One that waited was sent when the card was free, however late this process is.
  const MonoTime now = clock_.mono_now();
  const MonoTime free_at = links_[at].free_at;
  send(host, number, is_idle_[at] ? std::max(now, free_at) : free_at);
  is_idle_[at] = false;
  return true;
}

void ShapedNetwork::send(int host, std::uint32_t number, MonoTime start) {
  Packet& packet = packets_[number];
  Link& card = links_[static_cast<std::size_t>(card_out(host))];
  card.free_at = start + duration(packet.bytes.size(), card);
  const int from = plan_.rack_of(host), to = plan_.rack_of(packet.target);
  double latency = plan_.latency_seconds;
  packet.links.assign(1, card_in(packet.target));
  if (from != to) {
    packet.links.push_back(down(to));
    packet.links.push_back(up(from));
    latency += plan_.uplink_latency_seconds;
  }
  packet.tail = card.free_at + in_nanoseconds(latency);
  ++counts_.packets;
  counts_.bytes_from[static_cast<std::size_t>(host)] += packet.bytes.size();
  events_.push({start + in_nanoseconds(latency), next_number_++, number});
}

/// The switches send on what they have of a packet: a link begins with it when its first byte is
/// there, and ends no sooner than the last one is.
void ShapedNetwork::come_to_link(const Event& event) {
  Packet& packet = packets_[event.packet];
  if (packet.links.empty()) return deliver(event.packet);
  Link& link = links_[static_cast<std::size_t>(packet.links.back())];
  packet.links.pop_back();
  const double waiting =
      std::chrono::duration<double>(std::max(nanoseconds{0}, link.free_at - event.at)).count();
  if (waiting * link.bytes_per_second > static_cast<double>(plan_.queue_bytes)) {
    ++counts_.dropped;
    spare_.push_back(event.packet);
    return;
  }
  const MonoTime start = std::max(event.at, link.free_at);
  link.free_at = start + duration(packet.bytes.size(), link);
  packet.tail = std::max(packet.tail, link.free_at);
  events_.push({packet.links.empty() ? packet.tail : start, next_number_++, event.packet});
}

void ShapedNetwork::deliver(std::uint32_t number) {
  const Packet& packet = packets_[number];
  const auto target = static_cast<std::size_t>(packet.target);
  // A host that has ended takes no more.
  if (write(devices_[target], packet.bytes.data(), packet.bytes.size()) < 0) ++counts_.dropped;
  counts_.bytes_to[target] += packet.bytes.size();
  spare_.push_back(number);
}

/// All that is due.
void ShapedNetwork::pass(MonoTime now) {
  while (!events_.empty() && events_.top().at <= now) {
    const Event event = events_.top();
    events_.pop();
    come_to_link(event);
  }
  for (int host = 0; host < plan_.hosts; ++host) {
    const auto at = static_cast<std::size_t>(host);
    while (links_[at].free_at <= now && packets_.size() < kPacketsMost) {
      if (take_from(host)) continue;
      is_idle_[at] = true;
      break;
    }
  }
}

MonoTime ShapedNetwork::next_due(MonoTime now) const {
  MonoTime due = now + milliseconds(50);
  if (!events_.empty()) due = std::min(due, events_.top().at);
  for (std::size_t host = 0; host < is_idle_.size(); ++host) {
    if (!is_idle_[host]) due = std::min(due, links_[host].free_at);
  }
  return due;
}

Status ShapedNetwork::run(std::vector<int> processes, MonoTime deadline) {
  // Wake-ups to the microsecond, and before the workers: a switch is nobody's processor.
  prctl(PR_SET_TIMERSLACK, 1);
  sched_param first{};
  first.sched_priority = 10;
  sched_setscheduler(0, SCHED_FIFO, &first);
  while (!processes.empty()) {
    const MonoTime now = clock_.mono_now();
    if (now > deadline) return Error(ErrorCode::kDeadlineExceeded, "the workers did not end");
    pass(now);
    std::vector<pollfd> wanted;
    for (const int process : processes) wanted.push_back({process, POLLIN, 0});
    for (std::size_t host = 0; host < devices_.size(); ++host) {
      if (is_idle_[host]) wanted.push_back({devices_[host], POLLIN, 0});
    }
    const nanoseconds left = std::max(nanoseconds{0}, next_due(now) - clock_.mono_now());
    const timespec pause{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    ppoll(wanted.data(), wanted.size(), &pause, nullptr);
    const std::size_t count = processes.size();
    for (std::size_t i = count; i-- > 0;) {
      if (wanted[i].revents != 0) processes.erase(processes.begin() + static_cast<long>(i));
    }
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  counts_.busy_seconds = of(usage.ru_utime) + of(usage.ru_stime);
  return {};
}

}  // namespace muster::bench
