"""Breakages of where jobs go and when their turn is: queues and their quota, what is taken back, cost, the network's tree, what is free."""
from breakage import Breakage

PASS = "operator/core/queue_pass.cpp"
LINE = "operator/core/queue_line.cpp"
QUOTA = "operator/core/queue_quota.cpp"
RECLAIM = "operator/core/queue_reclaim.cpp"
SPENDING = "operator/core/spending.cpp"
COST = "operator/core/cost.cpp"

BREAKAGES = [
    # Whose turn it is
    Breakage("who has borrowed once takes what others of the cohort wait for", PASS, "  if (line_.others_wait(turn.queue)) {",
             "  if (turn.queue < 0) {", "test_queue"),
    Breakage("those behind the first get the nodes that it waits for", PASS,
             "(*caps)[i] = std::min((*caps)[i], std::max<std::int64_t>(0, left / amount));",
             "(*caps)[i] = std::max<std::int64_t>((*caps)[i], left / amount);", "test_queue"),
    Breakage("who could never start holds up its line", PASS, "  if (!is_behind && could_ever_start(turn, gang)) {",
             "  if (!is_behind) {", "test_queue"),
    Breakage("who trains grows beyond its queue's quota", PASS, "    if (is_new && more == within) break;\n", "", "test_queue"),
    Breakage("whoever has a deadline goes ahead of the first", PASS,
             "return waits && *gang.ends_within + kHandOver <= *waits;", "return waits.has_value();", "test_queue"),
    Breakage("who stands still is awaited as if it ended in time", "operator/core/queue_backfill.cpp",
             "if (one.ends_within && leaves)", "if (one.ends_within)", "test_queue"),
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
             "lent - (pool.reserved - limit.reserved_part());", "lent;", "test_queue"),
    # What is taken back
    Breakage("equals preempt each other", RECLAIM, "from.holder->turn.priority < turn.priority;",
             "from.holder->turn.priority <= turn.priority;", "test_queue"),
    Breakage("who gave way to a job preempts it in turn", RECLAIM,
             "(!one.holder->uid.empty() && one.holder->uid == claim.head.gang.preempted_for_uid);", "false;", "test_queue"),
    Breakage("elastic jobs shrink by more than is needed", RECLAIM, "      give_back(claim, before);\n      return true;\n",
             "      return true;\n", "test_queue"),
    Breakage("preempted is whoever is found first", RECLAIM,
             "return !best || std::pair(lost, taken.size()) < std::pair(best_lost, best->size());", "return !best;", "test_queue"),
    Breakage("room is made without a look at the level that the gang requires", RECLAIM,
             "  least.count = gang.min;\n  const auto caps = claim.head.caps(rooms_);\n",
             "  least.count = gang.min;\n  least.required_level.clear();\n  const auto caps = claim.head.caps(rooms_);\n", "test_queue"),
    # Money
    Breakage("what was spent in one month counts in the next", SPENDING, "  if (since < begin) next.spent = 0;\n", "", "test_queue"),
    Breakage("a clock that was set back spends hours twice", SPENDING, "  next.updated_at = std::max(now, updated);",
             "  next.updated_at = now;", "test_queue"),
    Breakage("all hours cost what the first step of the volume says", COST,
             "const double room = is_last ? hours : plain(price.volume[i + 1].from_hours) - before;", "const double room = hours;",
             "test_core"),
    Breakage("a node in two tiers costs what the last says", COST, "    if (found != nullptr) {\n      why =",
             "    if (found == &tier) {\n      why =", "test_core"),
]
