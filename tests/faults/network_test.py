#!/usr/bin/env python3
"""The network between the workers of a real run is cut, slow, lossy or wrong. Needs root; see wire.py.

    tests/faults/network_test.py BIN_DIR [unittest arguments]     MUSTER_SEED repeats what happens to packets
"""

import functools
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import CNN, ENTERS, FaultTest, main  # noqa: E402
from wire import MTU, SMALL_MTU, Wire, available  # noqa: E402

SEED = int(os.environ.get("MUSTER_SEED") or time.time_ns() % 1_000_000)


@unittest.skipUnless(available(), "needs root and /dev/net/tun")
class NetworkTest(FaultTest):
    def wired(self, workers, steps=2000, mtu=MTU, policy=Wire.deliver, **rest):
        """A job whose workers train over a network of the test's, with a policy from the start on."""
        job = self.job(workers, steps, **rest)
        wire = Wire(job, rest.get("most") or workers, SEED, mtu)
        wire.policy = functools.partial(policy, wire)
        self.addCleanup(wire.close)
        self.addCleanup(job.close)
        job.start()
        job.wait_trained_by(workers)
        return job, wire

    def halved(self, part):
        """(job, wire, identities before) of four workers, two of whom `part`, a way of Wire's, keeps from the other two and all
        from the operator; both halves wait."""
        job, wire = self.wired(4, 900)
        before = job.identities(range(4))
        wire.cut_off = {0, 1, 2, 3}
        part(wire, lambda source, target: (source < 2) != (target < 2))
        job.wait_for("both halves wait", lambda: all("membership waits" in job.log_of(slot) for slot in range(4)))
        return job, wire, before

    def assert_heals(self, job, wire, before):
        wire.heal()
        job.wait_trained_by(4)
        self.assert_undisturbed(job, [], before)
        job.end()

    def assert_rejoins(self, job, wire, slots, workers):
        """After the cut is mended, those who were left out are members again, each with its sentinel of before."""
        wire.heal()
        sentinels = {slot: worker.sentinel for slot, worker in job.workers().items() if slot in slots}
        job.wait_trained_by(workers)
        self.assertEqual({slot: job.workers()[slot].sentinel for slot in slots}, sentinels)


class Cut(NetworkTest):
    def test_a_worker_whose_plug_is_pulled_is_left_behind_and_let_in_again(self):
        job, wire = self.wired(3, 1000)
        survivors = job.identities([0, 1])
        wire.isolate(2)
        job.wait_trained_by(2)
        self.assert_rejoins(job, wire, [2], 3)
        self.assert_undisturbed(job, [0, 1], survivors)
        job.end()

    def test_a_node_without_power_is_missed_without_a_word_from_its_kernel(self):
        job, wire = self.wired(3, 1000)
        survivors = job.identities([0, 1])
        wire.isolate(2)
        job.kill(2)
        job.wait_trained_by(2)
        wire.heal()
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [0, 1], survivors)
        job.end()

    def test_a_node_without_power_that_has_the_files_is_missed_and_the_record_lacks_nothing(self):
        job, wire = self.wired(3, 1500)
        job.wait_step(job.step() + 20)  # how long a change delays a step they know by how long steps take
        survivors = job.identities([1, 2])
        stood = {slot: job.newest_epoch(slot, ENTERS) for slot in survivors}
        wire.isolate(0)
        job.kill(0)
        # Nobody writes the record: that they make steps they say themselves.
        job.wait_for("the others train on", lambda: all(
            job.newest_epoch(slot, "made the step of a change") > epoch for slot, epoch in stood.items()))
        wire.heal()
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [1, 2], survivors)
        job.end()

    def test_of_two_halves_one_trains_on_with_the_witness_and_the_other_joins_again(self):
        job, wire = self.wired(4, 1200)
        wire.cut(lambda source, target: (source < 2) != (target < 2))
        # The record is of no help: slot 0 may be on the other side.
        job.wait_for("the witness lets one side go on", lambda: '"granted":true' in job.logs())
        sides = lambda: {slot // 2 for slot in range(4) if '"workers":2' in job.log_of(slot)}
        job.wait_for("it does", sides)
        self.assertEqual(len(sides()), 1, "both halves went on")
        self.assert_rejoins(job, wire, [0, 1, 2, 3], 4)
        job.end()

    def test_of_two_halves_without_a_witness_neither_goes_on(self):
        job, wire, before = self.halved(Wire.cut)
        stood = job.step()
        looks = []

        def is_still():
            looks.append(job.step())
            return len(looks) > 200

        job.wait_for("looked for a while", is_still)
        self.assertLessEqual(looks[-1], stood + 1)
        self.assert_heals(job, wire, before)

    def test_two_halves_that_a_firewall_rejects_do_not_take_each_other_for_dead(self):
        job, wire, before = self.halved(Wire.reject)
        self.assertGreater(wire.counts["rejected"], 0)
        self.assertNotIn('"workers":2', job.logs(), "one half went on alone")
        self.assert_heals(job, wire, before)

    def test_one_of_two_alone_waits_and_goes_on_when_the_network_is_back(self):
        job, wire = self.wired(2, 800)
        wire.cut_off = {0, 1}
        wire.cut(lambda source, target: True)
        job.wait_for("both wait", lambda: all("membership waits" in job.log_of(slot) for slot in range(2)))
        wire.heal()
        job.wait_trained_by(2)
        job.end()

    def test_one_way_cut_between_two_of_four_leaves_one_out_and_not_both(self):
        job, wire = self.wired(4, 1500)
        wire.cut(lambda source, target: (source, target) == (1, 2))
        job.wait_trained_by(3, more=100)
        lost = [slot for slot in range(4) if "the others went on without this worker" in job.log_of(slot)]
        self.assertLessEqual(len(lost), 1)
        settled = job.entered()
        job.wait_step(job.step() + 100)
        self.assertLessEqual(job.entered() - settled, 4, f"the membership changes all the time\n{job.logs()[-6000:]}")
        wire.heal()
        job.wait_trained_by(4)
        job.end()

    def test_connections_that_a_firewall_has_forgotten_are_made_anew_although_everybody_lives(self):
        job, wire = self.wired(3, 1500)
        before = job.identities(range(3))
        wire.forget_connections()
        job.wait_trained_by(3, more=100)
        self.assertGreater(wire.counts["dropped"], 0)
        job.wait_said(None, "answers nothing any more")
        self.assert_undisturbed(job, range(3), before)
        job.end()


class Small(NetworkTest):
    def test_a_gang_whose_view_fits_no_packet_trains_where_fragments_are_dropped(self):
        # With the model this small: each step's 760 exchanges pass through Python.
        training = {"logicalRanks": 32, "batchSize": 64, "model": {"mlp": {"hidden": [4]}}}
        job, wire = self.wired(20, 150, SMALL_MTU, Wire.drop_fragments, pace_ms=50, training=training)
        before = job.workers()[19].identity
        job.kill(19)
        job.wait_for("slot 19 is another worker", lambda: (worker := job.workers().get(19)) and worker.identity[0] != before[0])
        job.wait_trained_by(20)
        job.end()
        self.assertEqual(wire.counts["fragments"], 0, "something has to be cut on its way")


class Slow(NetworkTest):
    def undisturbed(self, steps, disturb, **rest):
        """Whatever is done to the packets changes no membership."""
        job, wire = self.wired(3, steps, pace_ms=500, **rest)
        entered, before = job.wait_entered(3), job.identities(range(3))
        disturb(wire)
        job.set_pace(0)
        job.wait_step(min(steps - 20, job.step() + 20))
        self.assert_undisturbed(job, range(3), before)
        self.assertEqual(job.entered(), entered, f"a worker was evicted\n{job.logs()[-6000:]}")
        job.end()
        return job, wire

    def test_lost_late_and_doubled_packets_evict_nobody(self):
        _, wire = self.undisturbed(700, lambda wire: wire.disturb(loss=0.01, twice=0.01, late=0.02))
        print(f"MUSTER_SEED={SEED} {wire.counts}")
        self.assertGreater(wire.counts["dropped"], 0)
        self.assertGreater(wire.counts["twice"], 0)

    def test_neither_batch_statistics_nor_masks_nor_moments_tell_of_late_packets(self):
        _, wire = self.undisturbed(400, lambda wire: wire.disturb(twice=0.01, late=0.05, delay=(0.0, 0.005)), training=CNN)
        self.assertGreater(wire.counts["twice"], 0)

    def test_ten_megabits_and_two_hundred_milliseconds_of_jitter_evict_nobody(self):
        for steps, disturb in ((200, lambda wire: wire.throttle(10e6 / 8, 0.02, slot=1)),
                               (60, lambda wire: wire.disturb(delay=(0.0, 0.2)))):
            job, wire = self.undisturbed(steps, disturb)
            self.assertGreater(wire.counts["late"], steps, f"{wire.counts}\n{job.logs()[-6000:]}")


class Dials(NetworkTest):
    def after_a_death(self, **how):
        """What Wire.disturb_dials gives, after slot 1 has died, and all three train again."""
        job, wire = self.wired(3)
        survivors = job.identities([0, 2])
        dials = wire.disturb_dials(2, 0, **how)
        job.kill(1)
        job.wait_for("slot 2 dials again", lambda: len(dials) > 1)
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [0, 2], survivors)
        job.end()
        return list(dials.values())

    def test_a_dial_whose_packets_are_lost_is_made_anew_before_the_system_has_repeated_it_twice(self):
        # It repeats it after 1 s, and again 1 or 2 s later.
        self.assertLessEqual(self.after_a_death()[0], 2)

    def test_over_a_network_whose_answers_are_late_a_later_dial_waits_for_its_own(self):
        self.after_a_death(late=0.25)


class Wrong(NetworkTest):
    def test_flipped_bits_are_noticed_and_never_summed(self):
        job, wire = self.wired(3, 800, pace_ms=500)
        before = job.identities(range(3))
        wire.flip(0.01)
        job.set_pace(0)
        job.wait_for("bits were flipped", lambda: wire.counts["changed"] >= 3)
        wire.heal()
        job.wait_trained_by(3)
        job.wait_said(None, r"checksum|corrupt")
        self.assert_undisturbed(job, range(3), before)
        job.end()
        print(f"MUSTER_SEED={SEED} {wire.counts}")


if __name__ == "__main__":
    main()
