#!/usr/bin/env python3
"""Real signals exactly at each place of a step and of a membership that the engine names: SIGKILL of the trainer that has come
there, SIGSTOP of it and then SIGCONT, SIGTERM of its sentinel.

    tests/faults/places_test.py BIN_DIR [unittest arguments]     beside BIN_DIR is tests/muster-worker-at-places

The workers are places_worker.cpp's. tests/unit/engine/elastic_places_test.cpp has more workers and models, with threads.
"""

import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import CNN, ENDLESS, ROOT, FaultTest, main, read, replace, stat_of  # noqa: E402

SIGNALS = ["KILL", "STOP", "TERM"]
WORKERS = 4
OF_STEP = ["idle", "layer", "forward", "backward", "scatter", "reduced", "gather", "update", "half updated", "updated", "compare",
           "evaluate", "checkpoint"]
OF_SHARDED_STEP = ["log", "logged"]
OF_LARGE_STEP = ["bucket"]  # where gradients are more than are sent at once
OF_ENTRY = ["connect", "enter", "transfer"]
OF_SHARDED_RECOVERY = ["copy"]
# In the order in which they come, of the last checkpoint first, and a slot that comes there: who stands is let go on before the next.
OF_END = [("piece", 0), ("finish", 1), ("sample", 0)]
# Some 1.1 million parameters: with the layers above it the widest one just fills a bucket, so that there are two.
LARGE = {"model": {"mlp": {"hidden": [1024, 1024]}}, "batchSize": 16}
DIGITS = {name: {"idx": {"images": f"data/digits-{name}-images.idx.gz", "labels": f"data/digits-{name}-labels.idx.gz"}}
          for name in ("train", "test")}
TEXT = {"model": {"gpt": {"layers": 1, "heads": 2, "width": 32, "contextLength": 16}}, "batchSize": 16,
        "data": {"train": {"text": {"file": "data/shakespeare-train.txt"}}}}
# With one buddy the state of two who are lost at once might be gone, and training go back.
STATES = {"Replicated": {"optimizerState": "Replicated"}, "Sharded": {"optimizerState": "Sharded", "buddies": 2}}
GOES_BACK = "training goes on from the newest checkpoint"
MOST_STOPPED_SECONDS = 1  # who stands for longer may have been killed as hung


def facts(lines):
    return [(line["step"], line["loss"], line["sha256"], line["samples"]) for line in lines]


class Orders(FaultTest):
    def obeying(self, state, workers, steps, pace_ms, training):
        """A job that is not yet started, of workers that follow orders."""
        job = self.job(workers, steps, training={**STATES[state], **training})
        program = os.path.join(os.path.dirname(self.bin_dir), "tests", "muster-worker-at-places")
        job.set_pace(pace_ms)
        job.set_all(f'export MUSTER_PACE_MS="{job.pace_file}" MUSTER_TEST_PLACES="{job.directory}"\nWORKER="{program}"')
        return job

    @staticmethod
    def path(job, slot, place):
        return os.path.join(job.directory, f"at-{slot}-{place}")

    def order(self, job, slot, place, name):
        """The next trainer of that slot to come to that place gets, or sends, the signal there."""
        taken = self.path(job, slot, place) + ".taken"
        if os.path.exists(taken):
            os.remove(taken)
        replace(self.path(job, slot, place), name + "\n")

    def follower(self, job, slot, place):
        """Waits until somebody follows the order: (pid of the trainer, pid of its sentinel)."""
        def found():
            lines = read(self.path(job, slot, place) + ".taken").split("\n")
            return [int(word) for word in lines[1].split()] if len(lines) == 3 else None
        trainer, sentinel, _ = job.wait_for(f"slot {slot} comes to \"{place}\"", found)
        return trainer, sentinel

    def let_go_on(self, job, slot, place, trainer):
        """SIGCONT for who stands there; whether it stood so briefly that nobody can have minded."""
        job.wait_for(f"slot {slot} stands at \"{place}\"", lambda: (stat_of(trainer) or "Z")[0] in "TZ")
        job.go_on([trainer])
        return time.time() - os.stat(self.path(job, slot, place) + ".taken").st_mtime < MOST_STOPPED_SECONDS


class Places(Orders):
    def setUp(self):
        self.times_stopped = self.times_let_alone = 0

    def training_at(self, state, training=None):
        # Checkpoints, with comparisons of the copies before them, and evaluations come often, so that nobody waits long for them.
        often = {"data": DIGITS, "evaluation": {"everySteps": 10}, "checkpoint": {"path": "/unused", "everySteps": 10}}
        job = self.obeying(state, WORKERS, ENDLESS, 10, {**often, **(training or {})}).start()
        job.wait_trained_by(WORKERS)
        return job

    def strike(self, job, slot, place, name, lost=None):
        """One signal to who comes to the place in that slot. `lost`: a slot whose worker is killed, so that somebody comes there."""
        try:
            self.strike_now(job, slot, place, name, lost)
        except AssertionError as error:
            error.add_note(f"SIG{name} at \"{place}\" in slot {slot}" + (f", with slot {lost} killed" if lost is not None else ""))
            raise

    def strike_now(self, job, slot, place, name, lost):
        job.wait_trained_by(WORKERS, more=5)  # those who came last have their copies of what is sharded
        kept = [one for one in range(WORKERS) if one not in (slot, lost)]
        before, recorded = job.identities(range(WORKERS)), facts(job.record())
        self.order(job, slot, place, name)
        if lost is not None:
            job.kill(lost)
        trainer, sentinel = self.follower(job, slot, place)
        if name == "STOP":
            was_brief = self.let_go_on(job, slot, place, trainer)
            self.times_stopped += 1
            self.times_let_alone += was_brief
            if was_brief and slot != lost:
                kept.append(slot)
        elif name == "KILL":
            job.wait_anew(slot, trainer)
        else:
            def is_replaced():
                worker = job.workers().get(slot)
                return worker and worker.sentinel != sentinel
            job.wait_for(f"another takes the place of slot {slot}", is_replaced)
        job.wait_trained_by(WORKERS)
        self.assert_undisturbed(job, kept, before)
        if name == "KILL":
            self.assertEqual(job.workers()[slot].sentinel, sentinel, "the worker itself need not go")
        # What was made is made: the step never goes back, and no line is another one afterwards.
        self.assertEqual(facts(job.record()[:len(recorded)]), recorded)

    def end(self, job):
        self.assertNotIn(GOES_BACK, job.logs())
        self.assertGreater(self.times_let_alone, 0, f"all of {self.times_stopped} stood for longer than they may")
        self.ended_by_request(job)

    def at_each_place_of_a_step(self, state, places, training=None):
        job = self.training_at(state, training)
        for number, place in enumerate(places):
            for name in SIGNALS:
                self.strike(job, number % WORKERS, place, name)
        self.end(job)

    def test_at_each_place_of_a_step(self):
        self.at_each_place_of_a_step("Replicated", OF_STEP)

    def test_at_each_place_of_a_step_with_sharded_state(self):
        self.at_each_place_of_a_step("Sharded", OF_STEP + OF_SHARDED_STEP)

    def test_between_the_buckets_of_a_large_gradient(self):
        for state in STATES:
            seldom = {"checkpoint": {"path": "/unused", "everySteps": 1000}, "evaluation": {"everySteps": 1000}}
            self.at_each_place_of_a_step(state, OF_LARGE_STEP, {**LARGE, **seldom})

    def at_each_place_of_an_entry(self, state, of_recovery, training=None):
        """By those who are there when another worker dies, and by who takes its place."""
        job = self.training_at(state, training)
        number = 0
        for place in OF_ENTRY + of_recovery:
            for name in SIGNALS:
                slot = number % WORKERS
                number += 1
                self.strike(job, slot, place, name, lost=(slot + 1) % WORKERS)
                if place not in of_recovery:
                    self.strike(job, slot, place, name, lost=slot)
        self.end(job)

    def test_at_each_place_of_recovery_and_join(self):
        # Whose state has statistics over batches and two moments, and whose steps have masks.
        self.at_each_place_of_an_entry("Replicated", [], CNN)

    def test_at_each_place_of_recovery_and_join_with_sharded_state(self):
        # Of few blocks not every survivor would be given a copy.
        self.at_each_place_of_an_entry("Sharded", OF_SHARDED_RECOVERY)

    def test_each_place_that_the_engine_names_is_tried(self):
        named = re.search(r"^namespace point \{(.*?)^\}", read(os.path.join(ROOT, "worker/engine/training.h")), re.M | re.S).group(1)
        tried = OF_STEP + OF_SHARDED_STEP + OF_LARGE_STEP + OF_ENTRY + OF_SHARDED_RECOVERY + [place for place, _ in OF_END]
        self.assertEqual(sorted(re.findall(r'= "([^"]+)"', named)), sorted(tried))


class End(Orders):
    def test_at_each_place_of_the_end(self):
        for state in STATES:
            for name in SIGNALS:
                with self.subTest(state=state, signal=name):
                    self.at_the_end(state, name)

    def at_the_end(self, state, name):
        job = self.obeying(state, 3, 20, 0, TEXT)
        for place, slot in OF_END:
            self.order(job, slot, place, name)
        job.start()
        for place, slot in OF_END:
            trainer, _ = self.follower(job, slot, place)
            if name == "STOP":
                self.let_go_on(job, slot, place, trainer)
        job.end()


if __name__ == "__main__":
    main()
