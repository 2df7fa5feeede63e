"""Breakages of where jobs go and when their turn is: queues and their quota, what is taken back, cost, the network's tree, what is free."""
from breakage import Breakage

PASS = "operator/core/queue_pass.cpp"
KEPT_ROOM = "operator/core/kept_room.cpp"
LINE = "operator/core/queue_line.cpp"
QUOTA = "operator/core/queue_quota.cpp"
RECLAIM = "operator/core/queue_reclaim.cpp"
PREEMPT = "operator/core/preempt_policy.cpp"
SPENDING = "operator/core/spending.cpp"
COST = "operator/core/cost.cpp"
PLACEMENT = "operator/core/placement.cpp"
FILL = "operator/core/placement_fill.cpp"
INVENTORY = "operator/core/inventory.cpp"
KEPT = "operator/core/kept_inventory.cpp"
ROOMS = "operator/core/rooms.cpp"
GANG_PLACE = "operator/core/gang_place.cpp"
TRAFFIC = "operator/core/traffic.cpp"
SOURCES = "operator/core/topology_sources.cpp"
KUEUE = "operator/core/kueue_policy.cpp"
PRICES = "operator/api/price_list.cpp"
CONFIG = "operator/api/topology_config.cpp"
QUEUE_BOOK = "operator/runtime/queue_book.cpp"
METRICS_QUEUES = "operator/runtime/metrics_queues.cpp"
LOOP_SCHEDULE = "operator/runtime/loop_schedule.cpp"

BREAKAGES = [
    # Whose turn it is
    Breakage("who has borrowed once takes what others of the cohort wait for", PASS, "  if (line_.others_wait(turn.queue)) {",
             "  if (turn.queue < 0) {", "test_queue"),
    Breakage("those behind the first get the nodes that it waits for", KEPT_ROOM,
             "(*caps)[i] = std::min((*caps)[i], std::max<std::int64_t>(0, left[i] / amount));",
             "(*caps)[i] = std::max<std::int64_t>((*caps)[i], left[i] / amount);", "test_queue"),
    Breakage("what the first of two lines need is there for one of them alone", KEPT_ROOM, "sum[i] += amounts[i];",
             "sum[i] = std::max(sum[i], amounts[i]);", "test_queue"),
    Breakage("who could never start holds up its line", PASS, "  if (!is_behind && could_ever_start(turn, gang)) {",
             "  if (!is_behind) {", "test_queue"),
    Breakage("the first loses what is kept for it while a node is away", ROOMS,
             "  rooms.inventory_->count_closed_for_a_while();\n", "", "test_queue"),
    Breakage("who trains grows beyond its queue's quota", PASS, "gang.wish.only_grows ? std::min<std::int64_t>(gang.count, within) : gang.count;", "gang.count;", "test_queue"),
    Breakage("a gang that lost a worker grows before it has another", "operator/core/elastic.cpp",
             "  if (slots.empty()) add_new(0, wish);", "  add_new(0, wish);", "test_core"),
    Breakage("who takes a lost worker's place waits behind those who want to start", "operator/core/schedule.cpp",
             "if (!gang.wish.slots.empty()) return 0;", "if (!gang.wish.slots.empty()) return 1;", "test_queue"),
    Breakage("whoever has a deadline goes ahead of the first", PASS,
             "return waits && *gang.ends_within + kHandOver <= *waits;", "return waits.has_value();", "test_queue"),
    Breakage("who stands still is awaited as if it ended in time", "operator/core/queue_backfill.cpp",
             "if (!one.ends_within || !leaves) continue;", "if (!one.ends_within) continue;", "test_queue"),
    Breakage("a borrower of higher priority comes before who stays within its quota", LINE,
             "  if (of_a.borrows != of_b.borrows) return of_b.borrows;\n", "", "test_queue"),
    Breakage("of equals the younger job comes first", LINE,
             "return std::tie(a.created, a.job) < std::tie(b.created, b.job);",
             "return std::tie(b.created, b.job) < std::tie(a.created, a.job);", "test_queue"),
    Breakage("who has borrowed most borrows as soon as anybody", LINE,
             "  if (of_a.share != of_b.share) return of_a.share < of_b.share;\n", "", "test_queue"),
    # Quota
    Breakage("what a queue does not lend is lent", QUOTA, "is_alone ? 0 : up_to(one.lending_limit, nominal);",
             "is_alone ? 0 : nominal;", "test_queue"),
    Breakage("a queue borrows beyond its limit", QUOTA, "sum(nominal, is_alone ? 0 : up_to(one.borrowing_limit, kMostAmount));",
             "sum(nominal, is_alone ? 0 : kMostAmount);", "test_queue"),
    Breakage("what the first of another queue waits for is lent to others", QUOTA,
             "lent - of_others;", "lent;", "test_queue"),
    # What is taken back
    Breakage("jobs are preempted for room that others leave", RECLAIM,
             "    if (node >= 0) rooms_.inventory().give_back(node, amounts_of(one.requests));\n", "", "test_queue"),
    Breakage("who went ahead by its deadline puts it off", "operator/api/training_job.cpp",
             "is_bound && was && (!is || *is > *was);", "is_bound && was && !is;", "test_api"),
    Breakage("equals preempt each other", RECLAIM, "from.holder->turn.priority < turn.priority;",
             "from.holder->turn.priority <= turn.priority;", "test_queue"),
    Breakage("who gave way to a job preempts it in turn", RECLAIM,
             "(!one.holder->uid.empty() && one.holder->uid == claim.head.gang.preempted_for_uid);", "false;", "test_queue"),
    Breakage("elastic jobs shrink by more than is needed", RECLAIM, "      give_back(claim, before);\n      return true;\n",
             "      return true;\n", "test_queue"),
    Breakage("preempted is whoever is found first", RECLAIM,
             "return !best || std::pair(lost, taken.size()) < std::pair(best_lost, best->size());", "return !best;", "test_queue"),
    Breakage("who was preempted does not know for whom", PREEMPT, "  taken.preempted_for_uid = take_back.job_uid;\n", "", "test_sim"),
    Breakage("a preemption is not counted", PREEMPT, "  if (is_for_a_job) count_preemption(status.taken_back, *take_back);\n", "",
             "test_sim"),
    Breakage("room is made without a look at the level that the gang requires", RECLAIM,
             "  least.count = gang.min;\n  const auto caps = claim.head.caps(rooms_);\n",
             "  least.count = gang.min;\n  least.required_level.clear();\n  const auto caps = claim.head.caps(rooms_);\n", "test_queue"),
    # Money
    Breakage("what was spent in one month counts in the next", SPENDING, "  if (since < begin) next.spent = 0;\n", "", "test_queue"),
    Breakage("a clock that was set back spends hours twice", SPENDING, "  next.updated_at = std::max(now, updated);",
             "  next.updated_at = now;", "test_queue"),
    Breakage("a budget that is spent stops nobody", PASS, "found->second->spent.empty()) continue;",
             "found->second->name == holder.turn.queue) continue;", "test_queue"),
    Breakage("all hours cost what the first step of the volume says", COST,
             "const double room = is_last ? hours : plain(price.volume[i + 1].from_hours) - before;", "const double room = hours;",
             "test_core"),
    Breakage("a node in two tiers costs what the last says", COST, "    if (found != nullptr) {\n      why =",
             "    if (found == &tier) {\n      why =", "test_core"),
    Breakage("steps of a price by volume overlap", PRICES, "step.from_hours < end.value_or(0)) {", "step.from_hours < 0) {", "test_api"),
    Breakage("two tiers are of the same nodes", PRICES, "      if (before.nodes != tier.nodes) continue;\n", "      continue;\n", "test_api"),
    # Where a gang goes
    Breakage("a gang stands in a higher domain than it must", PLACEMENT, "      if (domain.height < height) found.clear();\n", "",
             "test_placement"),
    Breakage("the tightest domain is taken, on however many leaves", PLACEMENT,
             "return std::tuple(one.branches, one.leaves, busy(one.domain), room_of(one.domain),",
             "return std::tuple(room_of(one.domain), one.branches, one.leaves, busy(one.domain),", "test_placement"),
    Breakage("of several branches the roomiest are taken, on more leaves", PLACEMENT,
             "const int fewer = table.fewest(wish_.pods);", "const int fewer = 0;", "test_placement"),
    Breakage("a gang does not mind what its traffic costs others", PLACEMENT,
             "    filling.cost *= 1 + slowdown.workers / wish_.pods;\n", "", "test_placement"),
    Breakage("the rest of a gang breaks up whatever room is next", FILL,
             "if (one.busy <= last.busy && wasted(one) < wasted(last)) last = one;", "if (one.busy < last.busy) last = one;",
             "test_placement"),
    Breakage("a small gang shares a switch beside one that is free", FILL,
             "  if (wish_.pcie == nullptr || !wish_.pcie->must_share(node, pods)) return node;\n", "  return node;\n", "test_placement"),
    Breakage("who takes all GPUs that are left is said to share a switch", "operator/core/pcie_use.cpp", "sum <= all - own; ++sum",
             "sum < all - own; ++sum", "test_placement"),
    Breakage("a gang is told more traffic than its links carry", TRAFFIC,
             "return {std::min(wanted, one.bytes_per_second), duty * one.flows};", "return {wanted, duty * one.flows};", "test_placement"),
    Breakage("a gang that lacks one place holds the others meanwhile", "operator/core/gang_place.cpp",
             "  if (total < gang.min) return {std::nullopt, why_not(gang,",
             "  if (total < gang.min) deal_out(gang, rooms, candidates, total);\n"
             "  if (total < gang.min) return {std::nullopt, why_not(gang,", "test_core"),
    Breakage("of several nodes that are lost together none is given up", "operator/core/gang_view.cpp",
             "return snapshot.not_ready_nodes.contains(node) &&",
             "return snapshot.not_ready_nodes.size() == 1 && snapshot.not_ready_nodes.contains(node) &&", "test_sim"),
    Breakage("who was placed a moment before sends nothing", ROOMS, "    for (std::size_t i = in_traffic_; i < sending_.size(); ++i) traffic_->add(sending_[i]);\n", "", "test_core"),
    # What is free, and what tells where nodes stand
    Breakage("what pods have of a node's own disk is given away twice", "operator/api/pod.cpp",
             "    if (!is_disk && name.find('/') == std::string::npos) continue;\n", "    if (name.find('/') == std::string::npos) continue;\n",
             "test_api"),
    Breakage("a gang with a claim of one node's stands on several", GANG_PLACE, "  together.required_level = \"host\";\n", "", "test_core"),
    Breakage("a claim of one node's is anybody's", "operator/core/volumes.cpp",
             "  } else if (limits.one_node.empty() && is_of_one_node(claim, storage)) {",
             "  } else if (limits.one_node.empty() && !is_of_one_node(claim, storage)) {", "test_core"),
    Breakage("who waits for a node that is occupied is told of nodes that come on demand", GANG_PLACE,
             ".offered >= need.second;", ".free >= need.second;", "test_core"),
    Breakage("a node that is tainted by the name of its devices is for nobody", "operator/core/schedule.cpp",
             "    gang.tolerations.push_back({key, \"Exists\", \"\", \"\"});\n", "", "test_core"),
    Breakage("pods with devices do not bear the taint that is named after them", "operator/api/make_pod.cpp",
             "  add_device_tolerations(job, pod.spec);\n", "", "test_api"),
    Breakage("pods go to a node that is cordoned", INVENTORY, "if (one.unschedulable && !counts_closed_ && !tolerates_taint(shape.tolerations, cordon)) {",
             "if (one.unschedulable && shape.requests.empty()) {", "test_placement"),
    Breakage("what was tried is still counted for shapes of pods that were asked for", INVENTORY,
             "column[as_index(node)] = *value++;\n    touch(node);", "column[as_index(node)] = *value++;", "test_placement"),
    Breakage("a pod that is gone keeps its room", KEPT, "    charge(held, -1);\n", "", "test_placement"),
    Breakage("a DaemonSet's pods count as if they would ever leave", ROOMS,
             "    if (is_of_node) inventory.set_aside(node, amounts_of(requests));\n", "", "test_queue"),
    Breakage("what belongs to a node is not kept from event to event", KEPT,
             "inventory_->set_aside(index, amounts_of(held.taken.requests), pods);",
             "inventory_->set_aside(index, amounts_of(held.taken.requests), 0 * pods);", "test_placement"),
    Breakage("a stranger's pinned pod takes room", ROOMS, "return pod.is_of_job() ? pod.required_node : kNowhere;",
             "return pod.required_node;", "test_core"),
    Breakage("nodes are kept for whom their taints keep out", PASS, "const bool may_stand = is_reached && !is_closed_to(gang, node);",
             "const bool may_stand = is_reached;", "test_queue"),
    Breakage("who names another queue leaves behind what is held", QUEUE_BOOK,
             "holds && has(job.status.queue) ? job.status.queue : queue_of(job);", "queue_of(job);", "test_runtime"),
    Breakage("what was promised to a job is kept for it for ever", KEPT,
             "    for (const Assumed& one : before->second) charge(one.node, one.requests, -1);\n", "", "test_placement"),
    Breakage("a pod that has ended keeps its room", ROOMS, "  if (pod.ended()) return kNowhere;\n", "", "test_core"),
    Breakage("EKS' layers are read from the wrong end", SOURCES, "for (int layer = 1; layer <= 4; ++layer) {",
             "for (int layer = 4; layer >= 1; --layer) {", "test_placement"),
    Breakage("a rack within a block that is not known is taken for its namesake", SOURCES,
             "        ++gaps_[level.key];\n        break;\n      }\n      break;\n", "        ++gaps_[level.key];\n        break;\n      }\n",
             "test_placement"),
    Breakage("a bandwidth of nothing is believed", CONFIG, "std::isfinite(value) && value > 0 && value <= kMostDecimal",
             "std::isfinite(value) && value <= kMostDecimal", "test_placement"),
    # Beside Kueue, and what the loop makes of it all
    Breakage("a gang that Kueue has deactivated asks again at once", KUEUE,
             "pod.kueue_stop.starts_with(api::kueue::kDeactivated);", "pod.kueue_stop.empty();", "test_core"),
    Breakage("each word of Kueue's is a write", KUEUE, "if (!is_first_word && left.count() > 0) {", "if (left.count() > 99999) {", "test_core"),
    Breakage("who names no queue evades the one called default", QUEUE_BOOK,
             "job.spec.queue_name.empty() && queues_.find(kFallback) != nullptr;", "false;", "test_sim"),
    Breakage("a queue's status is written once more for each look at it", QUEUE_BOOK, "    if (now < from) {\n", "    if (from < began_) {\n",
             "test_sim"),
    Breakage("the last queue's metrics outlive it", QUEUE_BOOK, "(!empty() || !figures_.empty())", "!empty()", "test_runtime"),
    Breakage("metrics count a queue's cpu in thousandths", METRICS_QUEUES, "kThousandths = 1000", "kThousandths = 1", "test_runtime"),
    Breakage("the room of a worker that has ended is given away before its gang has decided", LOOP_SCHEDULE,
             "if (pod == nullptr || pod->ended()) {", "if (pod == nullptr) {", "test_runtime"),
    Breakage("a job is told that there is no such queue before queues are known", LOOP_SCHEDULE,
             "    if (gang.turn.queue.empty() || queue_book_.synced()) cluster.gangs", "    cluster.gangs", "test_sim"),
    Breakage("what is decided of a job and not yet stored is not counted as taken", LOOP_SCHEDULE,
             "if (memory == memory_.end() || !memory->second.decided_places) return list;", "return list;", "test_sim"),
    Breakage("what has come into status is counted as taken once more", LOOP_SCHEDULE,
             "    if (!has_placement(job.status, placement)) {\n", "    {\n", "test_runtime"),
    Breakage("a queue has what a deleted job's pods still use", LOOP_SCHEDULE,
             "    if (!gone.leaving.empty()) holders.push_back(std::move(gone));\n", "", "test_runtime"),
]
