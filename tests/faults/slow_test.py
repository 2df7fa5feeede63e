#!/usr/bin/env python3
"""A process, or its network, is slow in a real run, and it is named with its cause.

    tests/faults/slow_test.py BIN_DIR [unittest arguments]     the networks need root; see wire.py
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from job import FaultTest, main, read, stat_of  # noqa: E402
from wire import TCP, Wire, available  # noqa: E402

LONG = 1_000_000  # steps; these runs are ended when somebody was named
# docs/elastic.md: whoever costs the gang a fifth of a step in seven steps of eight is named within so many.
PROMISED = 20
# Processors that others took meanwhile, beyond which the machine was busy: naming then takes as long as it takes.
BUSY = 0.25
# Of a usual step before. What else is busy on the machine makes steps longer, too, by far less; and while the one that stops the
# process does not get a processor, the process is not slow, and nobody can be named.
CERTAINLY_SLOW = 2
# Four whole copies, each of which sends each other one 0.2 MB twice in a step.
WHOLE = {"model": {"mlp": {"hidden": [1024, 128]}}}
# Two copies in two stages: half a MiB is handed on at a time, two are sent of each half of the gradients.
STAGES = {"model": {"mlp": {"hidden": [1024, 1024, 1024]}}, "batchSize": 512, "microBatchSize": 128, "parallelism": {"pipeline": 2}}
# Over 4 MiB, from where on a host sends what its processes have together. Samples, so that what a slowed process takes for them is
# most of what it is late by: it also waits its turn with each message.
BY_HOSTS = {"model": {"mlp": {"hidden": [1280, 1024]}}, "batchSize": 1024}


def at_once(thread):
    """On a busy machine, too, this thread is given a processor when it wants one."""
    os.setpriority(os.PRIO_PROCESS, thread, -15)


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
        at_once(threading.get_native_id())
        while not self.over.is_set():
            self._signal(signal.SIGSTOP)
            self.over.wait(0.002 * (self.times - 1))
            self._signal(signal.SIGCONT)
            self.over.wait(0.002)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self._signal(signal.SIGCONT)


def promised_by(seconds, before, within):
    """The last of the first `within` steps after `before` of which at least seven in eight were certainly slow; None: there were none.
    `seconds`: by step."""
    usual = statistics.median(seconds[step] for step in range(max(1, before - PROMISED + 1), before + 1))
    for last in range(before + within, max(seconds) + 1):
        steps = range(last - within + 1, last + 1)
        if sum(seconds[step] >= CERTAINLY_SLOW * usual for step in steps) * 8 >= 7 * within:
            return last
    return None


class TakenByOthers:
    """Processors that whoever is not one of these took since it was made, what the host took from this machine included."""

    def __init__(self, pids):
        self.pids = pids
        self.began = self._ticks()

    def _ticks(self):
        """(of all processors, busy, of these processes)"""
        with open("/proc/stat") as file:
            times = [int(one) for one in file.readline().split()[1:9]]
        return sum(times), sum(times) - times[3] - times[4], sum(self._of(pid) for pid in self.pids)

    @staticmethod
    def _of(pid):
        """Who has died took nothing: who is slow must not have."""
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0

    def processors(self):
        whole, busy, own = (now - then for now, then in zip(self._ticks(), self.began))
        return (busy - own) / max(whole, 1) * os.cpu_count()


class SlowTest(FaultTest):
    def said_by(self, job, slot):
        """What its sentinel has said of how slow its trainers are, in lines that are whole."""
        text = job.log_of(slot)
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines() if "holds the others up" in line]

    def wait_named(self, job, slot, cause, before, within=PROMISED, rank=None):
        """Waits until status names the worker for `cause`, and gives what its sentinel said first of the process that is meant, `rank`
        where it has several, which status names then. On a machine that is not busy it must have been `within` the first slow steps
        after `before`, and no other one for as much: whose network it is of two is told a peer first beside other work."""
        which = "" if rank is None else rf" \(process \d+, rank {rank}\)"
        rank = slot if rank is None else rank
        workers = range(job.manifest["spec"]["worker"]["count"])
        machine = TakenByOthers([os.getpid(), *(pid for one in workers for pid in job.with_trainer(one).trainers)])

        def named():
            said = [line for line in self.said_by(job, slot) if line["rank"] == rank and line["step"] > before]
            return said and re.search(rf"worker {slot} slows the gang by \d+ %: {cause}{which}", read(job.log)) and said[0]

        first = job.wait_for(f"worker {slot} is named", named)
        taken = machine.processors()
        said = [line for one in workers for line in self.said_by(job, one)]
        others = [line for line in said if line["rank"] != rank]
        job.wait_step(first["step"])
        last = promised_by({line["step"]: line["seconds"] for line in job.record() if line["step"] <= first["step"]}, before, within)
        print(f"named {first['step'] - before} steps after: {first['percent']} %, {first['delay_ms']} ms a step; others: {len(others)}; "
              f"{taken:.2f} processors were others'; the first {within} slow steps were over {f'{last - before} after' if last else 'later'}")
        self.assertEqual(first["cause"], cause, said)
        if taken >= BUSY:
            return first
        if last:
            self.assertLessEqual(first["step"], last, said)
        for line in others:
            if line["cause"] not in ("compute", "files"):
                self.assertLess(line["delay_ms"], first["delay_ms"], line)
        return first


class Slow(SlowTest):
    def named(self, workers, slot, hidden, parallelism, times=16):
        """Slows the trainer of `slot` and waits until status names it, for what it computes."""
        training = {"model": {"mlp": {"hidden": hidden}}, "checkpoint": {"path": "/unused", "everySteps": LONG}, "parallelism": parallelism}
        job = self.job(workers, steps=LONG, pace_ms=0, spec={"min": workers}, training=training)
        job.start("--hash-every", str(LONG), "--log-level", "info")
        job.wait_step(40)
        with Slowed(job.trainer(slot), times):
            self.wait_named(job, slot, "compute", job.step())

    def test_a_slow_stage_is_named_beside_the_same_stage_of_another_copy(self):
        # The second stage has sixteen times the first one's work.
        self.named(4, 3, [2048, 1024], parallelism={"pipeline": 2})

    def test_a_slow_stage_of_the_only_copy_is_named_by_what_the_graph_foretells(self):
        self.named(2, 1, [1024, 1024, 1024], parallelism={"pipeline": 2}, times=32)

    def test_a_slow_slice_is_named_beside_the_others_of_its_stage(self):
        self.named(2, 1, [2048, 1024], parallelism={"tensor": 2})


@unittest.skipUnless(available(), "needs root and /dev/net/tun")
class Network(SlowTest):
    def wired(self, workers, training, **worker):
        """(job, wire) of a job that trains over a network of the test's, after some steps."""
        training = {"checkpoint": {"path": "/unused", "everySteps": LONG}, **training}
        job = self.job(workers, steps=LONG, pace_ms=0, spec={"min": workers, **worker}, training=training)
        others = set(threading.enumerate())
        wire = Wire(job, workers, seed=1)
        # What is slow where a machine is busy is to be its workers, not the network between them.
        for thread in set(threading.enumerate()) - others:
            at_once(thread.native_id)
        self.addCleanup(wire.close)
        self.addCleanup(job.close)
        job.start("--hash-every", str(LONG), "--log-level", "info")
        job.wait_step(20)
        return job, wire

    def not_yet_named(self, job, slots=(3, 1)):
        """One of these, of stages the two second ones; a busy machine may have had another named before anything was done to it."""
        return next(slot for slot in slots if not self.said_by(job, slot))

    def name_network_of_whole(self, bytes_per_second, delay, link=False):
        """Status, and an event, name the worker of a whole copy whose packets are throttled so. Its sentinel's datagrams are not."""
        job, wire = self.wired(4, WHOLE)
        slot = self.not_yet_named(job, (3, 2, 1))
        wire.throttle(bytes_per_second, delay, slot, protocols=(TCP,), link=link)
        first = self.wait_named(job, slot, "network", job.step())
        told = f"worker {slot} slows the gang by {first['percent']} %: network; seen at step {first['step']}"
        job.wait_for(f"an event: {told}", lambda: f"Warning: {told}" in read(job.log))

    def test_a_slow_link_of_a_whole_copy_is_named(self):
        self.name_network_of_whole(8e6, 0, link=True)  # 75 ms to all others, twice in a step

    def test_late_packets_of_a_whole_copy_are_named(self):
        self.name_network_of_whole(1e9, 0.06)  # once to it and once from it, twice in a step

    def test_of_a_host_the_slow_process_is_named_and_not_the_one_beside_it(self):
        job, _ = self.wired(2, BY_HOSTS, processes=2)
        beside, slowed = sorted(job.with_trainer(1).trainers, key=lambda pid: (stat_of(pid)[2], pid))
        before = job.step()
        with Slowed(slowed, 8):
            first = self.wait_named(job, 1, "compute", before, rank=3)
        told = f"worker 1 slows the gang by {first['percent']} %: compute (process 1, rank 3); seen at step {first['step']}"
        job.wait_for(f"an event: {told}", lambda: f"Warning: {told}" in read(job.log))
        self.assertTrue(stat_of(beside), "the other process has died meanwhile")
        # Both send what their host has together, which was late for all others.
        for line in self.said_by(job, 1):
            if line["rank"] == 2 and line["step"] > before:
                self.assertLess(2 * line["delay_ms"], first["delay_ms"], line)

    def test_a_slow_network_of_a_stage_is_named(self):
        job, wire = self.wired(4, STAGES)
        slot = self.not_yet_named(job)
        # The sentinels' datagrams do not queue behind it: nobody is to be missed.
        wire.throttle(10e6, 0, slot, protocols=(TCP,))
        # Beside other work its peers' messages are slow for a while, too; alone it takes 14 steps.
        self.wait_named(job, slot, "network", job.step(), within=3 * PROMISED)

    def test_of_a_stage_that_is_stopped_in_turns_the_network_is_not_named(self):
        job, _ = self.wired(4, STAGES)
        slot = self.not_yet_named(job)
        with Slowed(job.trainer(slot), 16):
            self.wait_named(job, slot, "compute", job.step())

    def test_on_a_busy_machine_nobodys_network_is_named(self):
        job, _ = self.wired(4, STAGES)
        for processor in os.sched_getaffinity(0):
            burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.addCleanup(burner.wait)
            self.addCleanup(burner.kill)
            os.sched_setaffinity(burner.pid, {processor})
        job.wait_step(job.step() + 40)
        said = [line for slot in range(4) for line in self.said_by(job, slot)]
        print(f"named on a busy machine: {[line['cause'] for line in said]}")
        for line in said:
            self.assertIn(line["cause"], ("compute", "files"), line)


if __name__ == "__main__":
    main()
