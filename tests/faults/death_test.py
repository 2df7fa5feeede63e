#!/usr/bin/env python3
"""Workers of a real run die: trainers, sentinels, whole workers, several at once, in the middle of recovery and joining.

    tests/faults/death_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker
"""

import glob
import json
import math
import os
import re
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import CNN, ENTERS, FaultTest, main, read, signal_all, stat_of  # noqa: E402

TRIES = 5
# What the sentinel of who has trained on says: the step.
MADE = r'made the step of a change.*"step":(\d+)'
# The event TrainingReturned: the step that is made next, and the last that had been made.
WENT_BACK = (r"Warning: training went back to a checkpoint at step (\d+) \(from step (\d+): "
             r"blocks of the optimiser's state were lost with all that kept them")


class Death(FaultTest):
    def dies(self, workers, victims, what, survivors, **rest):
        """So many of `workers` die at once; those that are left train on, and then the dead come back."""
        job = self.training(workers, **rest)
        # By then each trainer knows how long a usual step takes, and tells of the first one after a change.
        stood = job.wait_step(job.step() + 5)
        come = os.path.join(job.directory, "come")
        for slot in victims:
            job.set_slot(slot, f"while [ ! -e '{come}' ]; do sleep 0.01; done")
        before = job.identities(survivors)
        job.kill(*victims, what=what)
        job.wait_for("those that are left make a step", lambda: any(
            int(step) > stood for slot in survivors for step in re.findall(MADE, job.log_of(slot))))
        open(come, "w", encoding="utf-8").close()
        job.wait_trained_by(workers)
        self.assert_undisturbed(job, survivors, before)
        made_by = {entry["workers"] for entry in job.end()["workersOverTime"]}
        self.assertIn(len(survivors), made_by, "nobody trained on meanwhile")
        return job

    def test_a_killed_trainer_is_started_again_by_its_sentinel(self):
        job = self.training(3)
        sentinels = {slot: worker.sentinel for slot, worker in job.workers().items()}
        survivors = job.identities([0, 2])
        for _ in range(TRIES):
            victim = job.trainer(1)
            job.kill(1, what="trainer")
            job.wait_for("another trainer", lambda: job.trainer(1) != victim)
            job.wait_trained_by(3)
            # On a busy machine it may be back before the others have come to the end of a step.
            if any(line["workers"] == 2 for line in job.record()):
                break
        self.assertEqual({slot: worker.sentinel for slot, worker in job.workers().items()}, sentinels)
        self.assert_undisturbed(job, [0, 2], survivors)
        report = job.end()
        self.assertIn(2, {entry["workers"] for entry in report["workersOverTime"]}, "nobody trained on meanwhile")

    def test_over_ipv6_alone_the_dead_are_replaced_as_well(self):
        job = self.job(3, 600)
        job.set_all(f"export MUSTER_PACE_MS={job.pace_file} MUSTER_BIND=::1")
        job.start()
        job.wait_trained_by(3)
        before = job.identities([0, 1])
        job.kill(2)
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [0, 1], before)
        job.kill(1, what="trainer")
        job.wait_trained_by(3)
        job.end()

    def test_a_whole_worker_killed_at_once_is_replaced(self):
        job = self.dies(3, [2], "worker", [0, 1])
        self.assertEqual(job.log_of(2).count('trains in a membership'), 1)

    def test_a_killed_sentinel_takes_its_trainer_with_it_and_both_are_replaced(self):
        job = self.training(3)
        trainer, survivors = job.trainer(1), job.identities([0, 2])
        job.kill(1, what="sentinel")
        job.wait_for("its trainer is gone", lambda: (stat_of(trainer) or "Z")[0] == "Z")
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [0, 2], survivors)
        job.end()

    def test_the_worker_with_the_files_is_killed_and_the_record_lacks_nothing(self):
        self.dies(3, [0], "worker", [1, 2])

    def test_two_of_five_killed_at_once(self):
        self.dies(5, [1, 3], "worker", [0, 2, 4])

    def test_an_owner_and_its_buddy_killed_at_once_go_back_to_the_newest_checkpoint(self):
        job = self.training(5, training={"optimizerState": "Sharded"})
        stood = job.wait_step(150)
        before = job.identities([0, 3, 4])
        job.kill(1, 2)
        job.wait_for("all go back", lambda: "training goes on from the newest checkpoint" in job.log_of(0))
        job.wait_step(stood + 100)
        job.wait_trained_by(5)
        told = job.wait_for("an event tells of it", lambda: re.search(WENT_BACK, read(job.log)))
        begun, lost = map(int, told.groups())
        self.assertGreaterEqual(lost, stood)
        # The steps behind the newest checkpoint, which may just have been being written, are made again, and no others.
        self.assertEqual((begun - 1) % 100, 0, told.group())
        self.assertIn(lost + 1 - begun, range(200), told.group())
        self.assert_undisturbed(job, [0, 3, 4], before)
        job.end()

    def test_two_buddies_keep_the_state_of_an_owner_that_dies_with_one_of_them(self):
        job = self.training(5, training={"optimizerState": "Sharded", "buddies": 2})
        before = job.identities([0, 3, 4])
        job.kill(1, 2)
        job.wait_trained_by(5)
        self.assertNotIn("training goes on from the newest checkpoint", job.logs())
        self.assert_undisturbed(job, [0, 3, 4], before)
        job.end()

    def test_neither_batch_statistics_nor_masks_nor_moments_tell_of_deaths(self):
        self.dies(4, [0, 2], "worker", [1, 3], steps=1000, training=CNN)

    def test_a_node_lost_with_both_its_workers_takes_no_block_along(self):
        # Large enough that each of the four has blocks of its own.
        job = self.job(4, training={"optimizerState": "Sharded", "model": {"mlp": {"hidden": [512]}}})
        for slot in range(4):
            job.set_slot(slot, f"export MUSTER_NODE=node-{slot // 2}")
        job.start()
        job.wait_trained_by(4)
        before = job.identities([2, 3])
        job.kill(0, 1)
        job.wait_trained_by(4)
        self.assertNotIn("training goes on from the newest checkpoint", job.logs())
        # Steps are told in batches, so this line may come after the word that all train.
        job.wait_for("a survivor tells the delay", lambda: "made the step of a change" in job.log_of(2))
        self.assert_undisturbed(job, [2, 3], before)
        job.end()

    def test_the_two_who_would_lead_are_killed_at_once(self):
        self.dies(5, [0, 1], "worker", [2, 3, 4])

    def test_three_of_four_killed_at_once_leave_one_that_trains_on(self):
        self.dies(4, [0, 1, 2], "worker", [3])

    def test_all_trainers_but_one_killed_at_once(self):
        job = self.training(4)
        sentinels = {slot: worker.sentinel for slot, worker in job.workers().items()}
        survivor = job.identities([2])
        job.kill(0, 1, 3, what="trainer")
        job.wait_trained_by(4)
        self.assert_undisturbed(job, [2], survivor)
        self.assertEqual({slot: worker.sentinel for slot, worker in job.workers().items()}, sentinels)
        job.end()

    def test_a_second_worker_dies_while_the_first_death_is_recovered_from(self):
        job = self.training(4)
        before = job.identities([0, 3])
        first, second = job.workers()[1].pids(), job.workers()[2].pids()
        entered = job.wait_entered(1, slot=0)
        signal_all(first, signal.SIGKILL)
        # The next membership is that of the three who are left; on a slow machine it may have the next worker already.
        job.wait_for("the others know", lambda: job.entered(0) > entered)
        signal_all(second, signal.SIGKILL)
        job.wait_trained_by(4)
        self.assert_undisturbed(job, [0, 3], before)
        job.end()

    def test_a_joiner_that_dies_while_it_joins_is_replaced_and_nobody_waits_for_it(self):
        job = self.training(2, most=3)
        before = job.identities([0, 1])
        job.resize(3)
        joiner = job.with_trainer(2)
        signal_all(joiner.pids(), signal.SIGKILL)
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [0, 1], before)
        self.assertNotEqual(job.workers()[2].sentinel, joiner.sentinel)
        job.end()

    def test_all_workers_killed_at_once_go_on_from_the_newest_checkpoint(self):
        job = self.training(3)
        job.wait_step(150)
        job.kill(0, 1, 2)
        killed_after = job.step()
        job.end(restarts=1)
        restored = re.search(r"(?i)checkpoint of step (\d+)", read(job.log))
        self.assertTrue(restored, read(job.log))
        self.assertIn(int(restored.group(1)), range(100, killed_after + 200, 100))

    def test_all_trainers_killed_at_once_go_on_from_the_newest_checkpoint_in_their_pods(self):
        job = self.training(3)
        job.wait_step(150)
        sentinels = {slot: worker.sentinel for slot, worker in job.workers().items()}
        job.kill(0, 1, 2, what="trainer")
        job.wait_trained_by(3)
        self.assertEqual({slot: worker.sentinel for slot, worker in job.workers().items()}, sentinels)
        job.end()


class Leave(FaultTest):
    def test_two_of_four_asked_to_leave_hand_over_and_nothing_is_computed_twice(self):
        self.two_leave(self.training(4))

    def test_neither_batch_statistics_nor_masks_nor_moments_tell_of_those_who_leave(self):
        self.two_leave(self.training(4, steps=1000, training=CNN))

    def two_leave(self, job):
        before = job.identities([0, 1])
        workers = job.workers()
        signal_all([workers[2].sentinel, workers[3].sentinel], signal.SIGTERM)
        job.wait_for("others take their places", lambda: job.workers().get(2, workers[2]).sentinel != workers[2].sentinel
                     and job.workers().get(3, workers[3]).sentinel != workers[3].sentinel)
        job.wait_trained_by(4)
        self.assert_undisturbed(job, [0, 1], before)
        job.end()
        self.assert_nothing_recomputed(job)

    def test_the_worker_with_the_files_saves_before_it_leaves_and_nothing_is_computed_twice(self):
        steps = 1000
        # No other checkpoint is due before the end.
        job = self.training(3, steps, pace_ms=20, training={"checkpoint": {"path": "/unused", "everySteps": steps}})
        before, leaving = job.identities([1, 2]), job.workers()[0]
        signal_all([leaving.sentinel], signal.SIGTERM)
        job.wait_for("another takes its place", lambda: job.workers().get(0, leaving).sentinel != leaving.sentinel)
        saved = self.checkpoints(job)
        job.wait_trained_by(3)
        self.assert_undisturbed(job, [1, 2], before)
        job.end()
        self.assert_nothing_recomputed(job)
        self.assertEqual(len(saved), 1, job.log_of(0))
        # The others went on with the step behind it.
        begun = [json.loads(line)["step"] for line in job.log_of(1).splitlines() if ENTERS in line]
        self.assertIn(saved[0] + 1, begun[1:], job.log_of(1))

    @staticmethod
    def checkpoints(job):
        """The steps of which there is a whole one."""
        names = glob.glob(os.path.join(job.output, "checkpoints", "step-*", "manifest.json"))
        return sorted(int(os.path.basename(os.path.dirname(name)).removeprefix("step-")) for name in names)

    def assert_nothing_recomputed(self, job):
        found = [int(number) for number in re.findall(r'"recomputed":(\d+)', job.logs())]
        self.assertTrue(found)
        self.assertEqual(sum(found), 0, found)

    def test_growing_and_shrinking_restarts_nobody_and_computes_nothing_twice(self):
        job = self.training(1, most=5)
        before = job.identities([0])
        for count in (5, 3, 4, 1, 2):
            job.resize(count)
            job.wait_trained_by(count)
            # Whoever was there and is wanted still.
            self.assert_undisturbed(job, [slot for slot in before if slot < count], before)
            before = job.identities(range(count))
            self.assertEqual(len(before), count)
        report = job.end()
        self.assert_nothing_recomputed(job)
        self.assert_only_joiners_waited(job)
        self.assertEqual([entry["workers"] for entry in report["workersOverTime"]][-1], 2)

    def assert_only_joiners_waited(self, job):
        """Who trains is connected with a joiner, and with those who stay, before it stops for them."""
        folder = os.path.join(job.output, "logs")
        logs = [read(os.path.join(folder, name)) for name in os.listdir(folder) if name.endswith(".log")]
        ahead = [text.count('"was connected ahead"') for text in logs]
        self.assertGreaterEqual(max(ahead), 5, ahead)
        for text in logs:
            lines = [json.loads(line) for line in text.splitlines() if "waits to be connected" in line or ENTERS in line]
            first = next((line["epoch"] for line in lines if line["message"] == ENTERS), math.inf)
            waits = [line["epoch"] for line in lines if line["message"] != ENTERS]
            self.assertTrue(waits, text)
            # A membership that is replaced before a joiner trains in it is waited for, too.
            self.assertLessEqual(max(waits), first, "each but for its first membership")


if __name__ == "__main__":
    main()
