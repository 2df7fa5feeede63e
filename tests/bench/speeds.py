#!/usr/bin/env python3
"""What shares that follow speed are worth: steps a second of two workers, each on a processor of its own, where others burn the second.

    tests/bench/speeds.py --muster build/release/bin/muster [--seconds 10]

With 2 logical ranks each worker has one, and nothing can move; with 16 they move while it is measured. The bits are the same whoever
computes them (tests/unit/engine/speeds_test.cpp).
"""

import argparse
import contextlib
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

WAIT = 120
SHAPES = {"MLP 64-2048-1024-10, batch 512": ("examples/digits.yaml", ["training.epochs=100000", "training.model.mlp.hidden=[2048, 1024]",
                                                                     "training.batchSize=512", "training.data.test=null"]),
          "GPT 4-4-128-64, batch 16": ("examples/gpt-tiny.yaml", ["training.steps=1000000", "training.data.test=null"])}
EVEN, FOLLOWING = "2", "16"


class Run:
    """`muster run` with two workers, each trainer on its own processor."""

    def __init__(self, muster, manifest, fields, directory):
        self.out = os.path.join(directory, "out")
        command = [muster, "run", manifest, "--quiet", "--output", self.out, "--hash-every", "1000000", "--log-level", "info"]
        for field in ("worker.count=2", "worker.min=2", "worker.max=2", "worker.processes=1", "worker.threads=1", "training.checkpoint.everySteps=1000000", *fields):
            command += ["--set", f"spec.{field}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def check(self):
        if self.process.poll() is not None:
            sys.exit(f"speeds.py: muster run ended with {self.process.returncode}: {self.process.stderr.read()[-2000:]}")

    def steps(self):
        for path in glob.glob(f"{self.out}/**/record.jsonl", recursive=True):
            with open(path, encoding="utf-8") as file:
                return sum(1 for line in file if '"step"' in line)
        return 0

    def await_steps(self, more):
        wanted, deadline = self.steps() + more, time.monotonic() + WAIT
        while self.steps() < wanted:
            self.check()
            if time.monotonic() > deadline:
                sys.exit(f"speeds.py: not {more} steps in {WAIT} s")
            time.sleep(0.05)

    def rate(self, seconds):
        begun, before = time.monotonic(), self.steps()
        time.sleep(seconds)
        self.check()
        return (self.steps() - before) / (time.monotonic() - begun)

    def pin(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as environment:
                    if b"--trainer" not in words.read():
                        continue
                    told = environment.read()
                slot = re.search(rb"MUSTER_SLOT=(\d+)\0", told)
                if slot and self.out.encode() in told:
                    for thread in os.listdir(f"/proc/{pid}/task"):
                        os.sched_setaffinity(int(thread), {int(slot[1])})

    def shares(self):
        """Logical ranks of the two workers as they were divided last; empty: never."""
        last = []
        for path in sorted(glob.glob(f"{self.out}/logs/*.log")):
            with open(path, encoding="utf-8") as file:
                told = [json.loads(line)["now"] for line in file if "logical ranks are divided by how fast" in line]
            last += [str(told[-1])] if told else []
        return ":".join(last)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


def measured(arguments, manifest, fields, burners):
    """Steps a second, and the shares at the end."""
    with tempfile.TemporaryDirectory() as directory:
        run, burning = Run(arguments.muster, manifest, fields, directory), []
        try:
            run.await_steps(20)
            run.pin()
            for _ in range(burners):
                burning.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                os.sched_setaffinity(burning[-1].pid, {1})
            run.await_steps(100)  # shares have moved, if they do
            return run.rate(arguments.seconds), run.shares()
        finally:
            for one in burning:
                one.kill()
                one.wait()
            run.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--muster", required=True)
    parser.add_argument("--seconds", type=float, default=10, help="that are measured of each (default 10)")
    arguments = parser.parse_args()
    if (os.cpu_count() or 1) < 2:
        sys.exit("speeds.py: needs two processors")
    print("| model | beside the second worker | even shares, steps/s | that follow speed | shares | ratio |\n|---|---|---|---|---|---|", flush=True)
    for shape, (manifest, fields) in SHAPES.items():
        for burners in (0, 1, 2):
            even, _ = measured(arguments, manifest, [*fields, f"training.logicalRanks={EVEN}"], burners)
            follows, shares = measured(arguments, manifest, [*fields, f"training.logicalRanks={FOLLOWING}"], burners)
            print(f"| {shape} | {burners} burning | {even:.1f} | {follows:.1f} | {shares or '8:8'} | {follows / even:.2f} |", flush=True)


if __name__ == "__main__":
    main()
