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

Traffic::Traffic(const Topology& topology, const std::vector<SendingGang>& gangs)
    : topology_(topology), model_(topology, {}) {
  uses_.resize(model_.links());
  on_link_.resize(model_.links());
  busy_inside_.resize(topology.domains.size());
  std::vector<const SendingGang*> order;
  for (const SendingGang& gang : gangs) order.push_back(&gang);
  // Sums are then the same bits for any order.
  std::sort(order.begin(), order.end(),
            [](const SendingGang* a, const SendingGang* b) { return a->job < b->job; });
  for (const SendingGang* gang : order) add(*gang);
}

/// False: it sends nothing that anybody could meet.
bool Traffic::take_facts(Sender& sender, const SendingGang& gang) const {
  if (gang.hosts.size() < 2) return false;
  sender.job = gang.job;
  int most = 0;
  for (const HostShare& host : gang.hosts) {
    sender.pods += host.pods;
    most = std::max(most, host.pods);
  }
  sender.crossings = model_.crossings(gang.hosts);
  std::erase_if(sender.crossings, [](const Crossing& one) { return one.link < 0; });
  if (sender.crossings.empty()) return false;
  sender.bytes_per_flow = gang.step.gradient_bytes / sender.pods;
  sender.local_load = (most - 1) * sender.bytes_per_flow / topology_.host.local_bytes_per_second;
  const int first = topology_.leaf_of_node[as_index(gang.hosts.front().node)];
  const int last = topology_.leaf_of_node[as_index(gang.hosts.back().node)];
  // Something, so that there is a step to divide by whatever was told.
  sender.latency = std::max(1e-9, model_.latency(topology_.common_domain(first, last)));
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

void Traffic::add(const SendingGang& gang) {
  Sender sender;
  if (!take_facts(sender, gang)) return;
  senders_.push_back(std::move(sender));
  meetings_.emplace_back();
  add_to_links(static_cast<int>(senders_.size()) - 1);
}

LinkUse Traffic::use_of(const Sender& sender, const Crossing& one) {
  return added_use(one, sender.bytes_per_flow, sender.step_seconds, sender.duty);
}

void Traffic::add_to_links(int gang) {
  const Sender& sender = senders_[as_index(gang)];
  const int domains = static_cast<int>(topology_.domains.size());
  for (std::size_t i = 0; i < sender.crossings.size(); ++i) {
    const Crossing& one = sender.crossings[i];
    for (const OnLink& other : on_link_[as_index(one.link)]) {
      senders_[as_index(other.gang)].load = -1;
    }
    on_link_[as_index(one.link)].push_back({gang, i});
    const LinkUse use = use_of(sender, one);
    uses_[as_index(one.link)] = uses_[as_index(one.link)] + use;
    int at = one.link < domains ? topology_.domains[as_index(one.link)].parent
                                : topology_.leaf_of_node[as_index(one.link - domains)];
    for (; at >= 0; at = topology_.domains[as_index(at)].parent) {
      busy_inside_[as_index(at)] += use.bytes_per_second / one.bytes_per_second;
    }
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
    for (const OnLink& there : on_link_[as_index(ours.link)]) {
      const Sender& sender = senders_[as_index(there.gang)];
      const Crossing& one = sender.crossings[there.crossing];
      const LinkUse others = uses_[as_index(one.link)] - use_of(sender, one);
      const double load = load_on(sender, one, others + added);
      Meeting& meeting = meetings_[as_index(there.gang)];
      if (meeting.link < 0) met.push_back(there.gang);
      if (load > meeting.load) meeting = {load, one.link};
    }
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
  for (const OnLink& one : on_link_[as_index(link)]) jobs.push_back(job(one.gang));
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

}  // namespace muster::core
