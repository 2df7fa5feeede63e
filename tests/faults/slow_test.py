#!/usr/bin/env python3
"""A process that has a part of a model is slow in a real run, and it is named with its cause.

    tests/faults/slow_test.py BIN_DIR [unittest arguments]
"""

import json
import os
import re
import signal
import sys
import threading
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from job import FaultTest, main, read  # noqa: E402

LONG = 1_000_000  # steps; these runs are ended when somebody was named


class Slowed:
    """While it is there, this process takes so many times as long, in turns far shorter than a step."""

    def __init__(self, pid, times):
        self.pid, self.times, self.over = pid, times, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _run(self):
        while not self.over.is_set():
            self._signal(signal.SIGSTOP)
            self.over.wait(0.008 * (self.times - 1))
            self._signal(signal.SIGCONT)
            self.over.wait(0.008)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self._signal(signal.SIGCONT)


class Slow(FaultTest):
    def named(self, workers, slot, hidden, parallelism, times=4):
        """Slows the trainer of `slot` and waits until status names it, for what it computes."""
        training = {"model": {"mlp": {"hidden": hidden}}, "checkpoint": {"path": "/unused", "everySteps": LONG}, "parallelism": parallelism}
        job = self.job(workers, steps=LONG, pace_ms=0, spec={"min": workers}, training=training)
        job.start("--hash-every", str(LONG), "--log-level", "info")
        job.wait_step(40)
        with Slowed(job.trainer(slot), times):
            before = job.step()
            job.wait_for(f"worker {slot} is named", lambda: re.search(rf"worker {slot} slows the gang by \d+ %: compute", read(job.log)))
        said = [json.loads(line) for line in job.log_of(slot).splitlines() if "holds the others up" in line]
        first = next(line for line in said if line["step"] > before)
        others = [line for other in range(workers) if other != slot for line in job.log_of(other).splitlines()
                  if "holds the others up" in line]
        print(f"named {first['step'] - before} steps after: {first['percent']} %, {first['delay_ms']} ms a step; others: {len(others)}")
        self.assertEqual(first["cause"], "compute", said)
        self.assertLessEqual(first["step"] - before, 20, said)
        # A busy machine may have slowed another one, too, but nobody's data or network.
        for line in others:
            self.assertIn(json.loads(line)["cause"], ("compute", "files"), line)

    def test_a_slow_stage_is_named_beside_the_same_stage_of_another_copy(self):
        # The second stage has sixteen times the first one's work.
        self.named(4, 3, [2048, 1024], parallelism={"pipeline": 2})

    def test_a_slow_stage_of_the_only_copy_is_named_by_what_the_graph_foretells(self):
        self.named(2, 1, [1024, 1024, 1024], parallelism={"pipeline": 2}, times=16)

    def test_a_slow_slice_is_named_beside_the_others_of_its_stage(self):
        self.named(2, 1, [2048, 1024], parallelism={"tensor": 2})


if __name__ == "__main__":
    main()
