#include "operator/core/placement_words.h"

#include <algorithm>

#include "operator/core/text.h"

namespace muster::core {
namespace {

constexpr std::size_t kMaxJobsInText = 3;
constexpr double kWorthTelling = 0.005;  ///< that much more of a step

std::string many(int count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string milliseconds_text(double seconds) { return decimal(seconds * 1e3, 3) + " ms"; }

std::string level_text(const Topology& topology, int domain) {
  const int level = topology.domains[as_index(domain)].level;
  if (level >= 0) return topology.levels[as_index(level)].name;
  return domain == 0 ? "cluster" : "host";
}

std::string domain_text(const Topology& topology, int domain) {
  if (domain == 0) return "the cluster";
  return level_text(topology, domain) + " " + topology.path_of(domain);
}

int room_of(const Room& room, int domain) { return room.in_domain[as_index(domain)]; }

/// The lowest domain with room for all, the tightest of these; -1 = there is none.
int lowest_with_room(const Topology& topology, const Room& room, int pods) {
  int best = -1;
  for (std::size_t i = 0; i < topology.domains.size(); ++i) {
    const int domain = static_cast<int>(i);
    if (room_of(room, domain) < pods) continue;
    if (best >= 0) {
      const int height = topology.domains[as_index(best)].height;
      if (topology.domains[i].height > height) continue;
      if (topology.domains[i].height == height && room_of(room, domain) >= room_of(room, best)) {
        continue;
      }
    }
    best = domain;
  }
  return best;
}

std::string roomiest_text(const Topology& topology, const Room& room, const PlacementWish& wish,
                          int& most) {
  most = 0;
  std::string where;
  if (names_host(wish.required)) {
    for (std::size_t i = 0; i < room.on_node.size(); ++i) {
      if (room.on_node[i] <= most) continue;
      most = room.on_node[i];
      where = topology.nodes[i];
    }
    return where;
  }
  const std::vector<int> levels = topology.levels_named(wish.required);
  for (std::size_t i = 0; i < topology.domains.size(); ++i) {
    const int domain = static_cast<int>(i);
    const bool is_level =
        std::find(levels.begin(), levels.end(), topology.domains[i].level) != levels.end();
    if (!is_level || room_of(room, domain) <= most) continue;
    most = room_of(room, domain);
    where = topology.path_of(domain);
  }
  return where;
}

std::string job_text(const api::ObjectKey& job) { return job.namespace_name + "/" + job.name; }

/// "ns/a uses", "ns/a and ns/b use".
std::string users_text(const std::vector<api::ObjectKey>& jobs) {
  return jobs_text(jobs) + (jobs.size() == 1 ? " uses" : " use");
}

/// ", bound by the uplink of rack r1 (bandwidth: confidence low)". A card's or an uplink's
/// bandwidth is either told or from a table, a switch's was read on the machine. Empty: no link
/// bounds it.
std::string bound_text(const Topology& topology, const PlacementWish& wish,
                       const Placement& placement) {
  const StepTime& time = placement.time;
  const auto level_at = [&](int domain) -> const TopologyLevel* {
    const int level = topology.domains[as_index(domain)].level;
    return level < 0 ? nullptr : &topology.levels[as_index(level)];
  };
  std::string what;
  Confidence confidence = topology.host.confidence;
  if (time.bound_switch >= 0) {
    const PcieSeats& seats = *wish.gpus.seats;
    const PcieSeats::Place place{time.bound_node, time.bound_switch};
    const bool is_switch = seats.is_switch(place);
    what = (is_switch ? "uplink of " : "link of ") + seats.text(place);
    confidence = is_switch ? Confidence::kHigh : Confidence::kLow;
  } else if (time.bound_domain >= 0) {
    what = "uplink of " + domain_text(topology, time.bound_domain);
    const TopologyLevel* level = level_at(time.bound_domain);
    if (level != nullptr) confidence = std::min(confidence, level->confidence);
  } else if (time.bound_node >= 0) {
    what = "link of host " + topology.nodes[as_index(time.bound_node)];
    const TopologyLevel* level = level_at(placement.domain);
    if (level != nullptr && level->is_fast) confidence = Confidence::kLow;
  } else {
    return "";
  }
  return ", bound by the " + what + " (bandwidth: confidence " + confidence_text(confidence) + ")";
}

/// Where the tree is from, and the first of what could not be used for it.
std::string source_text(const Topology& topology) {
  std::string text = "topology from " + topology.source;
  const std::string note = passed_over_text(topology);
  return note.empty() ? text : text + "; " + note;
}

}  // namespace

std::string jobs_text(const std::vector<api::ObjectKey>& jobs, const std::string& others) {
  std::vector<std::string> words;
  const std::size_t shown = std::min(jobs.size(), kMaxJobsInText);
  for (std::size_t i = 0; i < shown; ++i) words.push_back(job_text(jobs[i]));
  if (jobs.size() > shown) words.push_back(std::to_string(jobs.size() - shown) + " more");
  if (!others.empty()) words.push_back(others);
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  }
  return text;
}

std::string passed_over_text(const Topology& topology) {
  return topology.notes.empty() ? "" : "passed over: " + head_of(topology.notes.front(), 300);
}

std::string why_here(const Topology& topology, const Room& room, const PlacementWish& wish,
                     const Placement& placement) {
  const int domain = placement.domain;
  std::string text;
  if (!placement.is_wish_kept) {
    text = topology.levels_named(wish.preferred).empty() && !names_host(wish.preferred)
               ? why_unknown_level(topology, "spec.topology.preferred", wish.preferred) + "; "
               : "no " + wish.preferred + " has room for all; ";
  }
  text += domain_text(topology, domain) + " is the lowest domain with room for " +
          std::to_string(wish.pods) + (wish.groups.empty() ? "" : " in whole groups") + " (" +
          std::to_string(room_of(room, domain)) + "): ";
  if (placement.leaves > 1) text += many(placement.leaves, "leaf domain") + ", ";
  text += many(static_cast<int>(placement.hosts.size()), "host") + "; predicted exchange " +
          milliseconds_text(placement.time.exchange_seconds) + " a step" +
          bound_text(topology, wish, placement);
  text +=
      " (" + source_text(topology) + ", confidence " + confidence_text(topology.confidence) + ")";
  if (placement.spares_room) text += "; of places alike the one that breaks up the least room";
  if (placement.is_search_cut) text += "; the search was cut short";
  return text;
}

std::string why_beside(const Topology& topology, const PlacementWish& wish, const Traffic& traffic,
                       const Placement& placement) {
  std::string text;
  if (const int link = placement.avoided_link; link >= 0) {
    const int first_node = static_cast<int>(topology.domains.size());
    const int first_switch = first_node + static_cast<int>(topology.nodes.size());
    const bool is_node = link >= first_node, is_in_host = link >= first_switch;
    const PcieSeats::Place place =
        is_in_host ? wish.gpus.seats->place_of(link) : PcieSeats::Place{link - first_node, -1};
    const int node = place.node;
    const bool is_uplink = !is_node || (is_in_host && wish.gpus.seats->is_switch(place));
    const bool stays =
        std::any_of(placement.hosts.begin(), placement.hosts.end(), [&](const HostShare& host) {
          if (is_node) return host.node == node;
          const Domain& domain = topology.domains[as_index(link)];
          return host.node >= domain.first_node && host.node < domain.first_node + domain.nodes;
        });
    const std::string where = is_in_host ? wish.gpus.seats->text(place)
                              : is_node  ? "host " + topology.nodes[as_index(node)]
                                         : domain_text(topology, link);
    text += stays ? "; with less than otherwise on " : "; rather than on ";
    text +=
        where + ", whose " + (is_uplink ? "uplink " : "link ") + users_text(traffic.jobs_on(link));
  }
  const double more = placement.time.exchange_seconds - placement.undisturbed_seconds;
  if (more > kWorthTelling * placement.time.exchange_seconds) {
    text += "; " + milliseconds_text(more) + " of the exchange are due to others' traffic";
  }
  if (placement.slowdown.most > kWorthTelling) {
    text += "; slows " + job_text(traffic.job(placement.slowdown.gang)) + " by " +
            decimal(100 * placement.slowdown.most, 0) + " %";
  }
  return text;
}

std::string why_unknown_level(const Topology& topology, const std::string& field,
                              const std::string& level) {
  return field + " is " + head_of(level, 63) + ", and no node says in which it stands; known are " +
         topology.level_names() + " (" + source_text(topology) + ")";
}

std::string why_not_here(const Topology& topology, const Room& room, const PlacementWish& wish) {
  const std::string needs = "needs room for " + std::to_string(wish.pods);
  const int all = room_of(room, 0);
  if (wish.required.empty()) {
    return needs + "; the whole cluster has room for " + std::to_string(all);
  }
  int most = 0;
  const std::string where = roomiest_text(topology, room, wish, most);
  const bool is_forced = !wish.one_host_for.empty();
  std::string text = needs + (is_forced ? " on one node, because " + wish.one_host_for
                                        : " within one " + wish.required);
  text += where.empty() ? ", and none has room for any"
                        : "; the roomiest, " + where + ", has room for " + std::to_string(most);
  const int lowest = lowest_with_room(topology, room, wish.pods);
  if (is_forced) {
    // No other level would do.
  } else if (lowest < 0) {
    text += "; the whole cluster has room for " + std::to_string(all);
  } else if (lowest == 0) {
    text += "; it would fit without topology.required";
  } else {
    text += "; it would fit with required: " + level_text(topology, lowest) + " (" +
            topology.path_of(lowest) + " has room for " + std::to_string(room_of(room, lowest)) +
            ")";
  }
  if (most > 0) text += "; " + std::to_string(most) + " would fit as they are";
  return text;
}

std::string why_not_in_groups(const Topology& topology, const Room& room, const PlacementWish& wish,
                              int most) {
  const std::vector<int> levels = topology.levels_named(wish.required);
  bool fits = false;
  for (std::size_t i = 0; i < topology.domains.size(); ++i) {
    const bool is_level =
        wish.required.empty() ||
        std::find(levels.begin(), levels.end(), topology.domains[i].level) != levels.end();
    fits = fits || (is_level && room.in_domain[i] >= wish.pods);
  }
  if (!fits) return why_not_here(topology, room, wish);
  std::string text = "needs room for " + std::to_string(wish.pods);
  if (!wish.required.empty()) text += " within one " + wish.required;
  for (const GroupWish& one : wish.groups) {
    text +=
        ", each " + std::to_string(one.size) + " within one " + one.level + " (" + one.field + ")";
  }
  return text + "; there is room for " + std::to_string(most) +
         " so, and for all of them without these groups";
}

}  // namespace muster::core
