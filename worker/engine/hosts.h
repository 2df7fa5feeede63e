// Which processes are on one host, where bytes go through memory, and what that saves on the wire
// between hosts: a host adds up what its processes hold of the sum before it sends it, and is sent
// once what all of them are to have. Pure functions of what all members know: every process
// computes them for itself.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/engine/assignment.h"

namespace muster::engine {

class Hosts {
 public:
  /// Each process is on a host of its own.
  Hosts() = default;
  /// `host_of[rank]`: any numbers, the same for those who are on one host. Empty: as above.
  explicit Hosts(std::vector<int> host_of);

  bool are_together(int a, int b) const;
  /// Whether there is a host with several processes, and another one.
  bool is_any_shared() const { return members_.size() > 1 && members_.size() < host_of_.size(); }
  int count(int processes) const;
  /// Ranks by host, ascending; empty where nothing is known of hosts.
  const std::vector<std::vector<int>>& members() const { return members_; }
  /// All ranks on that of `rank`, ascending, itself included.
  std::vector<int> beside(int rank) const;
  /// Who of the host of `rank` takes what others of it are to have, too: each in turn.
  int first_of(int rank, std::size_t turn) const;

 private:
  std::vector<int> host_of_;               ///< by rank, numbered as they come; may be empty
  std::vector<std::vector<int>> members_;  ///< by host, ascending
};

/// A node of the sum as it leaves the host that holds it.
struct HostNode {
  RankRange ranks;
  std::vector<HeldNode> parts;  ///< what it is the sum of, ascending
  std::vector<int> holders;     ///< of these, ascending

  /// Whether it must be made first.
  bool is_made() const { return holders.size() > 1; }
  /// One who holds a part of it: each in turn.
  int maker(std::size_t turn) const { return holders[turn % holders.size()]; }
};

/// The fewest complete subtrees that each host has of the sum, ascending. What one process holds
/// alone stays in the nodes in which it is held.
std::vector<HostNode> host_nodes(const Assignment& assignment, const Hosts& hosts);

/// Sums of nodes that `rank` is sent, as many as of one owner's share where all own as much: for
/// its own share, and for those of others where it makes their nodes; at most, but for shares that
/// are not even.
std::size_t chunks_received(const Assignment& assignment, const Hosts& hosts, int rank);

/// By rank, how long `rank` has waited for it, of `waited`, which is how long for its messages:
/// each elsewhere for as long as for all of its host. What those have together several of them send
/// in turn, whoever of them was late.
std::vector<double> waits_by_host(const Hosts& hosts, int rank, std::vector<double> waited);

/// Whose turn it is where `owner` adds up a bucket: so that all of a host have as much to do.
inline std::size_t turn_of(int owner, std::size_t bucket) {
  return static_cast<std::size_t>(owner) + bucket;
}

}  // namespace muster::engine
