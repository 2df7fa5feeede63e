#!/usr/bin/env python3
"""Which part of a step waits for the others' gradients, where these go out while the backward pass goes on, and where they do not.

    tests/bench/overlap.py --binary build/release/bench/step_time_bench [--seconds 6] [--runs 3] [--workers 2]

Real workers in network namespaces of their own (tests/bench/step_time_bench.cpp), links of 200 and of 1,000 Mbit/s, 200 us one way.
Needs root.
"""

import argparse
import json
import statistics
import subprocess
import sys

MODELS = ("gpt-tiny", "cnn", "mlp-2m", "mlp-14m-512")
MEGABITS = (200, 1000)


def measured(arguments, model, megabits, overlap):
    """(milliseconds of a step, those of them that wait), means over steps and workers."""
    command = [arguments.binary, "--model", model, "--workers", str(arguments.workers), "--seconds", str(arguments.seconds),
               "--megabits", str(megabits), "--overlap", str(overlap)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=500, check=False)
    if run.returncode != 0:
        sys.exit(f"overlap.py: {' '.join(command)}: exit code {run.returncode}: {run.stderr[-2000:]}")
    ranks = json.loads(run.stdout.splitlines()[-1])["ranks"]
    return tuple(1000 * statistics.mean(rank[part] for rank in ranks) for part in ("reported", "communicate"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--seconds", type=float, default=6, help="of each run, after three steps; at least eight steps")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    print("| model | Mbit/s | step without, ms | waits | step with, ms | waits | shorter |\n|---|---|---|---|---|---|---|", flush=True)
    for model in MODELS:
        for megabits in MEGABITS:
            found = {0: [], 1: []}
            for _ in range(arguments.runs):
                for overlap, runs in found.items():
                    runs.append(measured(arguments, model, megabits, overlap))
            cells, steps = [], []
            for runs in found.values():
                step, wait = (statistics.median(run[part] for run in runs) for part in (0, 1))
                steps.append(step)
                cells += [f"{step:.1f}", f"{wait / step:.2f}"]
            print(f"| {model} | {megabits} | {' | '.join(cells)} | {1 - steps[1] / steps[0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
