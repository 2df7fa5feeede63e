#!/usr/bin/env python3
"""What identical bits on any number of workers cost in a steady state: the engine's step beside the fastest of ours that
does not care about the order of its sums (tests/bench/determinism_bench.cpp), in turn in the same processes.

    tests/bench/determinism.py --binary build/release/bench/determinism_bench [--workers 2,4,8] [--seconds 60]
                               [--gigabits G] [--latency-us U] [--no-quota] [--out FILE]

Every worker is a process with one thread under its own quota of 2/P processors. With --gigabits its transfers take as
long as a link of that speed would.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(TESTS, "faults"), os.path.join(TESTS, "cluster")]
import cgroup  # noqa: E402
from processes import free_ports  # noqa: E402

PROCESSORS = 2
KINDS = ("strict", "sharded", "after", "overlapped", "fast", "piped")  # the last three do not care about the order


def rounds(arguments, workers):
    """Seconds of each kind of step, round by round."""
    has_quota = not arguments.no_quota and cgroup.available("cpu")
    groups = [cgroup.Group(processors=PROCESSORS / workers) for _ in range(workers)] if has_quota else []
    ports = ",".join(map(str, free_ports(workers)))
    processes = []
    try:
        for rank in range(workers):
            enter = groups[rank].enter if groups else ""
            command = f"{enter}\nexec {arguments.binary} {rank} {ports} --seconds {arguments.seconds} " \
                      f"--gigabits {arguments.gigabits} --latency-us {arguments.latency_us}"
            processes.append(subprocess.Popen(["/bin/sh", "-c", command], text=True,
                                              stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
        out = processes[0].communicate(timeout=arguments.seconds * 4 + 300)[0]
        codes = [process.wait(60) for process in processes]
    finally:
        for process in processes:
            process.kill()
        for group in groups:
            group.close()
    if any(codes):
        sys.exit(f"determinism.py: exit codes {codes}")
    return [json.loads(line) for line in out.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--workers", default="2,4,8")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--gigabits", type=float, default=0, help="of each link; 0: whatever loopback does")
    parser.add_argument("--latency-us", type=float, default=0)
    parser.add_argument("--no-quota", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    print("MLP 784-4x2000-10, batch 256, L = 16, SGD with momentum; "
          + ("no quota" if arguments.no_quota else "each worker under its quota" if cgroup.available("cpu")
             else "NO quota: cgroups are not ours to make")
          + (f"; links of {arguments.gigabits:g} Gbit/s" if arguments.gigabits else ""))
    raw = {}
    for workers in map(int, arguments.workers.split(",")):
        made = raw[workers] = rounds(arguments, workers)
        middle = {kind: statistics.median(one[kind] for one in made) for kind in KINDS}
        fastest = min(KINDS[-3:], key=middle.get)
        costs = {kind: statistics.median(one[kind] / one[fastest] for one in made) - 1 for kind in ("strict", "sharded")}
        used = {kind: statistics.median(one[kind + "_processor"] for one in made) for kind in KINDS}
        print(f"P = {workers}: " + ", ".join(f"{kind} {middle[kind]:.3f} ({used[kind]:.3f})" for kind in KINDS)
              + f" s a step (of processor time); cost beside {fastest} {100 * costs['strict']:+.1f} %, with shards that have "
              f"one copy more {100 * costs['sharded']:+.1f} % (median of {len(made)} rounds)", flush=True)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(raw, file, indent=1)


if __name__ == "__main__":
    main()
