"""Breakages of what keeps the bits and the steps while members come, go and die."""
from breakage import Breakage

STEP = "worker/engine/step.cpp"
SHARDED = "worker/engine/sharded.cpp"
SHARD = "worker/engine/shard.cpp"
KEEPING = "worker/engine/keeping.cpp"
COPYING = "worker/engine/copying.cpp"
EXCHANGE = "worker/engine/exchange.cpp"
ASSIGNMENT = "worker/engine/assignment.cpp"
ENTRY = "worker/engine/entry.cpp"
SETTLE = "worker/engine/settle.cpp"
TRAINER = "worker/engine/trainer.cpp"
COPIES = "worker/engine/copies.cpp"
MEMBERSHIP = "worker/sentinel/membership.cpp"
BALLOTS = "worker/sentinel/membership_ballots.cpp"
WISH = "worker/sentinel/membership_wish.cpp"
TCP = "worker/comm/tcp_communicator.cpp"
HANDSHAKE = "worker/comm/handshake.cpp"
FRAME = "worker/comm/frame.cpp"
LANE = "worker/comm/memory_lane.cpp"

BREAKAGES = [
    Breakage("a pass has more samples than the memory holds", "worker/engine/memory_needs.cpp",
             "share, ranks).total() <= config.memory_bytes) return ranks;", "share, ranks).total() > 0) return ranks;", "test_engine"),
    # The step
    Breakage("the write-ahead rule is skipped: an update is made before all have logged it", SHARDED,
             "  MUSTER_RETURN_IF_ERROR(named(confirm(*communicator_, stamp, deadline(), point)));\n", "", "test_engine"),
    Breakage("what was computed for the last step is taken for the next", STEP,
             "  sums_->forget();\n  MUSTER_RETURN_IF_ERROR(commit());", "  MUSTER_RETURN_IF_ERROR(commit());", "test_engine"),
    Breakage("what a survivor had computed is not known after a death", STEP,
             " sums_->set_computed(k);", ";", "test_engine"),
    Breakage("the learning rate is that of the next step", STEP,
             "learning_rate_at(config_, standing_.step, total_steps_)",
             "learning_rate_at(config_, standing_.step + 1, total_steps_)", "test_engine"),
    Breakage("a flag of an earlier membership stays in a node", STEP,
             "tail[kTailAhead] = k == 0 ? ahead : 0.0f;", "if (k == 0) tail[kTailAhead] = ahead;", "test_engine"),
    Breakage("one that is prepared is enough to enter the next membership", STEP,
             "return sum > 0 && squares * static_cast<double>(members_computing_) == sum * sum;",
             "return sum > 0 && squares > 0;", "test_engine"),
    Breakage("a gradient is sent while its layer is still being computed", EXCHANGE,
             "buckets[sent_].begin >= first", "buckets[sent_].end >= first", "test_engine"),
    Breakage("the sum runs from left to right and not along the tree", ASSIGNMENT,
             "    append(left, base, order);\n    append(right, base, order);\n    order.push_back(-1);",
             "    static_cast<void>(left), static_cast<void>(right);\n"
             "    for (int node = span.begin; node < span.end; ++node) {\n"
             "      order.push_back(static_cast<std::int8_t>(node - base));\n"
             "      if (node != span.begin) order.push_back(-1);\n    }", "test_engine"),
    Breakage("two nodes of the tree are swapped", ASSIGNMENT,
             "    for (int node = span.begin; node < span.end; ++node) pass.inputs.push_back(node);",
             "    for (int node = span.begin; node < span.end; ++node) pass.inputs.push_back(node);\n"
             "    if (pass.inputs.size() > 3) std::swap(pass.inputs[1], pass.inputs[2]);", "test_engine"),
    Breakage("logical ranks that are no subtree are summed as one", ASSIGNMENT,
             "return static_cast<int>(std::min(fits, aligned));", "return static_cast<int>(fits);", "test_engine"),
    Breakage("parts of a node are added, but not what they make together", STEP,
             "slot > piece.slot - piece.merges", "slot > piece.slot - (piece.merges > 0 ? 1 : 0)", "test_engine"),
    Breakage("parts of a node are added from left to right", "worker/engine/passes.cpp",
             "static_cast<unsigned>(std::popcount(number)),\n                       static_cast<unsigned>(std::countr_one(number))",
             "number > 0 ? 1u : 0u,\n                       number > 0 ? 1u : 0u", "test_engine"),
    Breakage("a branch is taken for the one that is in memory", "worker/engine/model.cpp",
             "  if (branch_held_ == first) return;", "  if (branch_held_ >= first) return;", "test_engine"),
    # The record, while the process with the files is away
    Breakage("the record's lines are told after the state", TRAINER,
             "  MUSTER_RETURN_IF_ERROR(share_record(greetings, plan));\n"
             "  MUSTER_RETURN_IF_ERROR(is_sharded() ? receive_shards(greetings, plan, entry)\n"
             "                                      : receive_state(plan, entry));\n",
             "  MUSTER_RETURN_IF_ERROR(is_sharded() ? receive_shards(greetings, plan, entry)\n"
             "                                      : receive_state(plan, entry));\n"
             "  MUSTER_RETURN_IF_ERROR(share_record(greetings, plan));\n", "recovery_seeds"),
    Breakage("lines of steps that are lost again are told", ENTRY,
             "one.from != one.to && keeper.has_state && keeper.record_bytes", "one.from != one.to && keeper.record_bytes",
             "recovery_seeds"),
    Breakage("who joins while the files are away is told no lines", ENTRY,
             "owner >= 0 ? Telling{rank, owner} : Telling{source, rank}", "owner >= 0 ? Telling{rank, owner} : Telling{rank, rank}",
             "recovery_seeds"),
    Breakage("who is given another state keeps its own lines", SETTLE,
             "  if (is_given_state && !is_owner()) forget_record();\n", "", "recovery_seeds"),
    Breakage("a member goes back and tells no reason", TRAINER,
             "plan.standing.step < standing_.step && returned_.empty()", "plan.standing.step < 0 && returned_.empty()",
             "recovery_seeds"),
    Breakage("a joiner is given the state beside a step, and another membership is entered meanwhile", STEP,
             "const std::int64_t newer = has_learners() ? 0 : prepared_epoch_ - view_.epoch;",
             "const std::int64_t newer = prepared_epoch_ - view_.epoch;", "recovery_seeds"),
    Breakage("a reduced gradient is not waited for", EXCHANGE,
             "    MUSTER_RETURN_IF_ERROR(bucket.reduced_under_way->wait(deadline));\n", "", "test_engine"),
    # Entering a membership
    Breakage("after a death all is computed anew", ENTRY,
             "held.push_back(has_state ? greetings[r].computed : std::vector<RankRange>());",
             "held.push_back({});", "test_engine"),
    Breakage("one who stands a step behind gives its state", ENTRY,
             "return one.has_state && one.standing.step == newest;", "return one.has_state;", "test_engine"),
    Breakage("a state from before all went back to a checkpoint counts", ENTRY,
             "if (!one.has_state || one.standing.lineage == newest) continue;", "continue;", "test_engine"),
    Breakage("who is a step behind learns beside a step that it would need", ENTRY,
             "    if (is_behind && greetings[r].has_state) return false;\n",
             "    static_cast<void>(is_behind);\n", "test_engine"),
    Breakage("a node that two survivors hold is summed twice", ASSIGNMENT,
             "      if (!is_free(node)) continue;\n", "", "test_engine"),
    Breakage("the record has a step twice", SETTLE,
             "  if (recorded_step_ >= step) return {};\n  recorded_step_ = step;", "  recorded_step_ = step;", "test_engine"),
    # Shards
    Breakage("the copies of a shard are on its owner's worker", SHARD,
             "std::size_t to = (i + step) % processes;", "std::size_t to = (i + 1) % processes;", "test_engine"),
    Breakage("a state with a hole counts as complete", SHARD,
             "return without({{0, trained}}, united(std::move(all))).empty();",
             "return trained == 0 || !all.empty();", "test_engine"),
    Breakage("a shard is dropped before its new keeper has it", KEEPING,
             "if (is_lacking || is_one_of(one.to_keep, rank)) {", "if (is_one_of(one.to_keep, rank)) {", "test_engine"),
    Breakage("what has most copies is copied first", KEEPING,
             "return a.stretch.keepers.size() < b.stretch.keepers.size();",
             "return a.stretch.keepers.size() > b.stretch.keepers.size();", "test_engine"),
    Breakage("a process gives more than a portion", KEEPING,
             "elements_most - std::max(given[as_index(from)], taken[as_index(to)]);",
             "elements_most - taken[as_index(to)];", "test_engine"),
    Breakage("shards are dealt out before the next step", SHARDED,
             "if (is_beginning(plan)) {", "if (plan.standing.step >= 0) {", "test_engine"),
    Breakage("all copies ride with one step", COPYING,
             "portion_most(shards_.trained, config_.copy_blocks)", "2 * shards_.trained + 4096", "test_engine"),
    Breakage("the step that a death has cut short takes copies along", COPYING,
             "if (is_assignment_even_) {", "if (is_assignment_even_ || !has_learners()) {", "test_engine"),
    Breakage("a return does not tell that copies were being made", SHARDED,
             "if (blocks_short_ > 0) why +=", "if (blocks_short_ > 1'000'000) why +=", "test_engine"),
    Breakage("who leaves does not hand its shards over", SHARDED,
             "if (staying == 0 || staying == std::ssize(stays)) return {};",
             "if (staying <= std::ssize(stays)) return {};", "test_engine"),
    Breakage("the minority of the copies is right", COPIES,
             "if (2 * wrong.size() < sums.size()) verdict", "if (2 * wrong.size() > sums.size()) verdict", "test_engine"),
    # The membership
    Breakage("a message of an old epoch counts", BALLOTS,
             "return is_member_ && message.epoch == view_.epoch && find_seat",
             "return is_member_ && find_seat", "membership_seeds"),
    Breakage("half of the workers are enough", BALLOTS,
             "if (slots.size() * 2 > view_.seats.size()) return true;",
             "if (slots.size() * 2 >= view_.seats.size()) return true;", "membership_seeds"),
    Breakage("a promise is not kept", BALLOTS,
             "  if (accept.ballot < acceptor_.promised) {", "  if (accept.ballot.round < 0) {", "test_sentinel"),
    Breakage("what was accepted before is forgotten", BALLOTS,
             "proposal_->value = earlier != nullptr ? earlier->accepted : numbered(wish, epoch_max_ + 1);",
             "proposal_->value = numbered(wish, epoch_max_ + 1);", "membership_seeds"),
    Breakage("the oldest of what was accepted is taken", BALLOTS,
             "promise.accepted_ballot > newest->accepted_ballot", "promise.accepted_ballot < newest->accepted_ballot",
             "test_sentinel"),
    Breakage("a witness's yes to other voters counts", BALLOTS,
             "    if (answer.epoch != own.asked_epoch || answer.members != own.voters) return;\n", "", "test_sentinel"),
    Breakage("an older view takes the place of the newer", MEMBERSHIP,
             "if (view.epoch <= view_.epoch || is_out_) return;", "if (view.epoch == view_.epoch || is_out_) return;",
             "membership_seeds"),
    Breakage("a newcomer is told that it counts before all who counted know", MEMBERSHIP,
             "if (find_seat(view_, id) == nullptr || holds(view_.previous, id)) return true;", "if (id.slot >= 0) return true;",
             "test_sentinel"),
    Breakage("a late message brings a dead worker back", MEMBERSHIP,
             "    if (find_seat(view_, message.from) != nullptr) return;\n", "", "test_sentinel"),
    Breakage("who was stopped itself holds the others for silent", MEMBERSHIP,
             "one.heard = std::min(now, one.heard + slept);", "one.heard = std::min(now, one.heard);", "test_sentinel"),
    Breakage("the certain death of one who heard us no more counts as fresh", MEMBERSHIP,
             " && one.epoch <= view_.epoch && !complained;", " && one.epoch <= view_.epoch;", "test_sentinel"),
    Breakage("newcomers enter in the breath in which others are cut off", WISH,
             "if (is_quiet && !next.stop) add_newcomers(now, next);",
             "static_cast<void>(is_quiet);\n  if (!next.stop) add_newcomers(now, next);", "test_sentinel"),
    Breakage("a joiner with another spec or other data is let in", WISH,
             "if (next.digest != 0 && one.beat.digest != next.digest) {", "if (next.digest == 1) {", "test_sentinel"),
    Breakage("the last who hold the state leave without waiting", WISH,
             "  if (!is_held) {\n", "  if (leaving == 0) {\n", "test_sentinel"),
    # The wire
    Breakage("a frame of another epoch is taken", TCP,
             "header->session != connection.session || header->epoch != epoch_", "header->session != connection.session",
             "test_comm_tcp"),
    Breakage("a payload that does not match its checksum is taken", TCP,
             "if (transfer.message.crc(transfer.frame_begin, transfer.frame_bytes) != header->payload_crc) {",
             "if (header->payload_bytes == 0) {", "test_comm_tcp"),
    Breakage("a header that does not match its checksum is taken", FRAME,
             "if (reader.integer<std::uint32_t>() != crc32c(0, bytes.data(), kFrameHeaderBytes - 4)) {",
             "if (reader.integer<std::uint32_t>() == 0 && header.payload_bytes == 0) {", "test_comm"),
    Breakage("who calls need not know the job's key", HANDSHAKE, "if (!equal(right, introduction->proof)) {",
             "if (introduction->proof.empty()) {",
             "test_comm_tcp"),
    Breakage("who answers need not know the job's key", HANDSHAKE, "if (!equal(right, answer->proof)) {",
             "if (answer->proof.empty()) {", "test_comm_tcp"),
    # Memory that two processes share
    Breakage("shared memory of others is taken", LANE, "if (!equal(mapped.shared->proof, proof)) {", "if (proof.empty()) {",
             "test_comm_tcp"),
    Breakage("shared memory is taken that its maker may cut short", LANE,
             "(fcntl(fd.get(), F_GET_SEALS) & kLaneSeals) != kLaneSeals", "!fd", "test_comm"),
    Breakage("a count of the other side is believed", LANE, "if (there > size) return nonsense();", "", "test_comm"),
    Breakage("a ring is written beyond what was read", LANE, "std::min<std::size_t>(kCopyBytes, size - used)",
             "std::min<std::size_t>(kCopyBytes, size)", "test_comm"),
    Breakage("a reader that sleeps is not woken", LANE,
             "return Moved{moved, ring.reader_sleeps.load() != 0 && ring.reader_sleeps.exchange(0) != 0};",
             "return Moved{moved, false};", "test_comm"),
    Breakage("a writer that sleeps is not woken", LANE, "const bool has_room = there - moved <= size / 2;",
             "const bool has_room = there - moved > size;", "test_comm"),
    Breakage("a peer that has ended is waited for", TCP, "connection.has_ended |= ended;", "", "test_comm_tcp"),
    Breakage("memory that was not found is used", HANDSHAKE, "if (!accept->lane_is_taken) attempt.lane.reset();", "",
             "test_comm_tcp"),
    Breakage("nobody moves the bytes of who computes", TCP, "  if (!polling_) work_for_thread_.notify_one();\n}", "}",
             "test_comm_tcp"),
]
