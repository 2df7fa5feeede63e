#include "operator/core/traffic.h"

#include <algorithm>
#include <utility>

namespace muster::core {
namespace {

/// What a gang adds to a link: on the average of a step, and never more than the link carries.
LinkUse added_use(const Crossing& one, double bytes_per_flow, double step_seconds, double duty) {
  const double wanted = 2 * bytes_per_flow * one.flows / step_seconds;
  return {std::min(wanted, one.bytes_per_second), duty * one.flows};
}

LinkUse operator+(const LinkUse& a, const LinkUse& b) {
  return {a.bytes_per_second + b.bytes_per_second, a.flows + b.flows};
}

LinkUse operator-(const LinkUse& a, const LinkUse& b) {
  return {std::max(0.0, a.bytes_per_second - b.bytes_per_second), std::max(0.0, a.flows - b.flows)};
}

std::vector<const SendingGang*> pointers_to(const std::vector<SendingGang>& gangs) {
  std::vector<const SendingGang*> pointers;
  for (const SendingGang& gang : gangs) pointers.push_back(&gang);
  return pointers;
}

}  // namespace

StepWork work_of(const StepFacts& facts, int pods, const HostLink& host) {
  StepWork work;
  work.gradient_bytes = facts.gradient_bytes;
  if (facts.step_seconds > 0) {
    work.compute_seconds = std::max(0.0, facts.step_seconds - facts.exchange_seconds);
  } else {
    const double load = work.gradient_bytes * (pods - 1) / pods / host.bytes_per_second;
    work.compute_seconds = 2 * (host.latency_seconds + load) * (1 / kUsualDuty - 1);
  }
  return work;
}

Traffic::Traffic(const Topology& topology, const std::vector<SendingGang>& gangs, PcieSeats* seats)
    : Traffic(topology, pointers_to(gangs), seats) {}

Traffic::Traffic(const Topology& topology, std::vector<const SendingGang*> gangs, PcieSeats* seats)
    : topology_(topology), seats_(seats), model_(topology, {}) {
  uses_.resize(model_.links());
  on_link_.resize(model_.links());
  busy_inside_.resize(topology.domains.size());
  // Sums are then the same bits for any order. Mostly it is this one.
  const auto comes_first = [](const SendingGang* a, const SendingGang* b) {
    return a->job < b->job;
  };
  if (!std::is_sorted(gangs.begin(), gangs.end(), comes_first)) {
    std::sort(gangs.begin(), gangs.end(), comes_first);
  }
  if (seats_ != nullptr) {
    last_unseated_.assign(topology.nodes.size(), -1);
    seats_->when_asked([this](int node) { take_seats(node); });
    std::size_t shares = 0;
    for (const SendingGang* gang : gangs) {
      shares += gang->gpus_per_pod > 0 ? gang->hosts.size() : 0;
    }
    unseated_.reserve(shares);
  }
  for (const SendingGang* gang : gangs) know(*gang);
  for (const SendingGang* gang : gangs) enter(*gang);
}

/// Seats are given when somebody asks for the node: of thousands few are looked at in a pass.
void Traffic::wait_for_seats(const SendingGang& gang, int sender) {
  if (seats_ == nullptr || gang.gpus_per_pod <= 0) return;
  const std::string* resource = &*gpu_resources_.insert(gang.gpu_resource).first;
  for (const HostShare& host : gang.hosts) {
    int& last = last_unseated_[as_index(host.node)];
    unseated_.push_back({sender, host.pods, gang.gpus_per_pod * host.pods, resource, last});
    last = static_cast<int>(unseated_.size()) - 1;
    if (seats_->is_asked(host.node)) take_seats(host.node);
  }
}

/// Of all that stand on a node, in the order in which they came.
void Traffic::take_seats(int node) {
  std::vector<int> order;
  for (int at = last_unseated_[as_index(node)]; at >= 0; at = unseated_[as_index(at)].next) {
    order.push_back(at);
  }
  last_unseated_[as_index(node)] = -1;
  std::reverse(order.begin(), order.end());
  for (const int at : order) {
    const Unseated& one = unseated_[as_index(at)];
    const std::vector<PcieSeat>& seats = seats_->take(node, *one.gpu_resource, one.gpus);
    uses_.resize(std::max(uses_.size(), static_cast<std::size_t>(seats_->links())));
    on_link_.resize(uses_.size());
    // One alone has nobody to send to.
    if (one.sender < 0 || !senders_[as_index(one.sender)].is_below_switches) continue;
    Sender& sender = senders_[as_index(one.sender)];
    const std::size_t first = sender.crossings.size();
    for (const PcieSeat& seat : seats) {
      const double flows =
          flows_over(seat, sender.gpus_per_pod, one.pods, sender.pods, topology_.host);
      if (flows > 0) sender.crossings.push_back({seat.link, flows, seat.bytes_per_second});
    }
    sender.load = -1;
    add_to_links(one.sender, first);
  }
}

/// False: it sends nothing that anybody could meet.
bool Traffic::take_facts(Sender& sender, const SendingGang& gang) const {
  if (gang.hosts.empty()) return false;
  sender.job = gang.job;
  int most = 0;
  for (const HostShare& host : gang.hosts) {
    sender.pods += host.pods;
    most = std::max(most, host.pods);
  }
  sender.crossings = model_.crossings(gang.hosts);
  std::erase_if(sender.crossings, [](const Crossing& one) { return one.link < 0; });
  const int first = topology_.leaf_of_node[as_index(gang.hosts.front().node)];
  const int last = topology_.leaf_of_node[as_index(gang.hosts.back().node)];
  const int common = topology_.common_domain(first, last);
  // Where hosts send from GPU to GPU nothing of it goes over PCIe.
  sender.is_below_switches = seats_ != nullptr && gang.gpus_per_pod > 0 && sender.pods > 1 &&
                             model_.link_of(gang.hosts.front().node, common) >= 0;
  if (sender.crossings.empty() && !sender.is_below_switches) return false;
  if (sender.is_below_switches) {
    sender.gpus_per_pod = gang.gpus_per_pod;
    sender.gpu_resource = gang.gpu_resource;
    sender.hosts = gang.hosts;
  }
  sender.bytes_per_flow = gang.step.gradient_bytes / sender.pods;
  sender.local_load = (most - 1) * sender.bytes_per_flow / topology_.host.local_bytes_per_second;
  // Something, so that there is a step to divide by whatever was told.
  sender.latency = std::max(
      1e-9, gang.hosts.size() > 1 ? model_.latency(common) : topology_.host.local_latency_seconds);
  if (gang.step.step_seconds > 0) {
    sender.step_seconds = gang.step.step_seconds;
    sender.duty = std::clamp(gang.step.exchange_seconds / gang.step.step_seconds, 0.0, 1.0);
    return true;
  }
  double alone = sender.local_load;
  for (const Crossing& one : sender.crossings) {
    alone = std::max(alone, load_on(sender, one, {}));
  }
  sender.duty = kUsualDuty;
  sender.step_seconds = 2 * (sender.latency + alone) / kUsualDuty;
  return true;
}

void Traffic::know(const SendingGang& gang) {
  if (seats_ == nullptr || gang.gpus_per_pod <= 0) return;
  for (const HostShare& host : gang.hosts) {
    seats_->know(host.node, std::int64_t{gang.gpus_per_pod} * host.pods);
  }
}

void Traffic::add(const SendingGang& gang) {
  know(gang);
  enter(gang);
}

void Traffic::enter(const SendingGang& gang) {
  Sender sender;
  if (!take_facts(sender, gang)) return wait_for_seats(gang, -1);
  senders_.push_back(std::move(sender));
  meetings_.emplace_back();
  const int number = static_cast<int>(senders_.size()) - 1;
  add_to_links(number, 0);
  wait_for_seats(gang, number);
}

LinkUse Traffic::use_of(const Sender& sender, const Crossing& one) {
  return added_use(one, sender.bytes_per_flow, sender.step_seconds, sender.duty);
}

void Traffic::add_to_links(int gang, std::size_t first_crossing) {
  const Sender& sender = senders_[as_index(gang)];
  const int domains = static_cast<int>(topology_.domains.size());
  for (std::size_t i = first_crossing; i < sender.crossings.size(); ++i) {
    const Crossing& one = sender.crossings[i];
    for_each_on(one.link, [&](const OnLink& other) { senders_[as_index(other.gang)].load = -1; });
    const int entry = static_cast<int>(entries_.size());
    entries_.push_back({gang, i, -1});
    Users& users = on_link_[as_index(one.link)];
    (users.first < 0 ? users.first : entries_[as_index(users.last)].next) = entry;
    users.last = entry;
    const LinkUse use = use_of(sender, one);
    uses_[as_index(one.link)] = uses_[as_index(one.link)] + use;
    // Uplinks of switches are within a host, which no search passes over for being busy inside.
    if (one.link >= static_cast<int>(model_.links())) continue;
    int at = one.link < domains ? topology_.domains[as_index(one.link)].parent
                                : topology_.leaf_of_node[as_index(one.link - domains)];
    const double part = use.bytes_per_second / one.bytes_per_second;
    for (; at >= 0; at = topology_.domains[as_index(at)].parent) busy_inside_[as_index(at)] += part;
  }
}

double Traffic::busy(int domain) const {
  const double uplink = uses_[as_index(domain)].bytes_per_second / model_.uplink(domain);
  return uplink + busy_inside_[as_index(domain)] / topology_.domains[as_index(domain)].nodes;
}

double Traffic::busy_card(int node) const {
  const std::size_t link = topology_.domains.size() + as_index(node);
  return uses_[link].bytes_per_second / topology_.host.bytes_per_second;
}

/// Seconds of one exchange on a link that it crosses, beside others there.
double Traffic::load_on(const Sender& sender, const Crossing& one, const LinkUse& others) const {
  return one.flows * sender.bytes_per_flow / rate_beside(others, one.flows, one.bytes_per_second);
}

double Traffic::load_of(const Sender& sender) const {
  if (!std::exchange(sender.is_seated, true)) {
    for (const HostShare& host : sender.hosts) {
      if (!seats_->is_asked(host.node)) seats_->ask(host.node, sender.gpu_resource);
    }
  }
  if (sender.load >= 0) return sender.load;
  sender.load = sender.local_load;
  for (const Crossing& one : sender.crossings) {
    const LinkUse others = uses_[as_index(one.link)] - use_of(sender, one);
    sender.load = std::max(sender.load, load_on(sender, one, others));
  }
  return sender.load;
}

Slowdown Traffic::slowdown(const std::vector<Crossing>& own, double bytes_per_flow,
                           const StepTime& time) const {
  Slowdown all;
  if (time.step_seconds <= 0) return all;
  const double duty = std::min(1.0, time.exchange_seconds / time.step_seconds);
  std::vector<int> met;
  // Links that are not shared load them as before, so only these are looked at.
  for (const Crossing& ours : own) {
    if (!is_used(ours.link)) continue;
    const LinkUse added = added_use(ours, bytes_per_flow, time.step_seconds, duty);
    for_each_on(ours.link, [&](const OnLink& there) {
      const Sender& sender = senders_[as_index(there.gang)];
      const Crossing& one = sender.crossings[there.crossing];
      const LinkUse others = uses_[as_index(one.link)] - use_of(sender, one);
      const double load = load_on(sender, one, others + added);
      Meeting& meeting = meetings_[as_index(there.gang)];
      if (meeting.link < 0) met.push_back(there.gang);
      if (load > meeting.load) meeting = {load, one.link};
    });
  }
  for (const int gang : met) {
    const Sender& sender = senders_[as_index(gang)];
    const Meeting meeting = std::exchange(meetings_[as_index(gang)], {});
    const double before = load_of(sender);
    const double longer = std::max(0.0, meeting.load - before);
    const double part = sender.duty * longer / (sender.latency + before);
    all.workers += sender.pods * part;
    if (part > all.most) {
      all.most = part;
      all.gang = gang;
      all.link = meeting.link;
    }
  }
  return all;
}

std::vector<api::ObjectKey> Traffic::jobs_on(int link) const {
  std::vector<api::ObjectKey> jobs;
  if (!is_used(link)) return jobs;
  for_each_on(link, [&](const OnLink& one) { jobs.push_back(job(one.gang)); });
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

}  // namespace muster::core
