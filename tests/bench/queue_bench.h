// What the parts of the queues' benchmark share.
#pragma once

namespace muster::bench {

/// Passes over so many gangs that wait because nodes are short, with queues and without, and with
/// volumes that limit each of them.
void measure_short_nodes(int nodes, int gangs, int passes);

}  // namespace muster::bench
